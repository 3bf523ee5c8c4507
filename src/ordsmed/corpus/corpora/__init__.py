"""The menu of corpora: each file is one choice of `kind`."""

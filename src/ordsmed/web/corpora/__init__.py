"""The menu of this package's corpora: each file is one choice of `kind`."""

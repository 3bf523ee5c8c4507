"""The menu of tokenizers: each file is one choice of `kind`."""

"""The menu of cleaning steps: each file is one choice of `kind`."""

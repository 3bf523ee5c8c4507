"""Run command lines of other training codes, translated into recipes."""

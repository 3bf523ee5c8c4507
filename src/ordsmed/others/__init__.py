"""Command lines of other codes, translated into recipes."""

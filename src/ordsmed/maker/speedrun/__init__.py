"""Speedrun: the best model of a fixed budget of operations and words, with scores, so that another can repeat it."""

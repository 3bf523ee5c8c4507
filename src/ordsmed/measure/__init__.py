"""Measure: how good, how fast."""

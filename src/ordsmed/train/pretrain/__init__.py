"""Pretraining on encoded text, and trials of it."""

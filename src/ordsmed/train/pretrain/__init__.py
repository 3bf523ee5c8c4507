"""Pretraining on encoded text."""

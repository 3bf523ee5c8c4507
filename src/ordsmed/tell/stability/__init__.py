"""Stability over seeds: one recipe trained with several seeds, and two recipes compared with the same seeds."""

"""Speedrun: train the best model within a fixed budget of operations and words, reproducibly, and score it."""

"""Benches of speed and memory."""

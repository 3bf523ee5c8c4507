"""Benchmarks of speed and memory."""

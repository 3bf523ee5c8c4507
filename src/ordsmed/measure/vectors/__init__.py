"""Text vectors for probes: stored in files while they are computed, and compared exactly."""

"""Vectors of texts, as probes compare them: read in blocks that are kept, searched exactly."""

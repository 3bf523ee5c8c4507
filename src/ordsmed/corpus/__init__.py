"""Build a corpus from sources: cleaned in chunks, deduplicated, split, reported."""

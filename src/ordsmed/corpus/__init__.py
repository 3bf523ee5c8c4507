"""From sources to documents: cleaned in chunks, deduplicated, held out, split, reported."""

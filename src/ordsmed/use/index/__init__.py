"""Search index: the passages of a corpus with their vectors and inverted word lists, stored in files."""

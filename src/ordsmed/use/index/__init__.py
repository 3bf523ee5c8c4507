"""Index: the passages of a corpus as vectors and as words, in files; asked by questions."""

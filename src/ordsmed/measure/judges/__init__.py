"""Scorers of documents, used by the cleaning step `judge` to keep or drop a document."""

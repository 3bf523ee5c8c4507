"""What gives a document a score, by which the cleaning step `judge` keeps it or not."""

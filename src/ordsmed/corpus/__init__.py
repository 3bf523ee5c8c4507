"""Machine: from sources to a corpus: cleaned in chunks, each document once, held out, split, reported."""

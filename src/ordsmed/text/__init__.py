"""Machine: documents, sentences, languages, reading files, and tokenizers as the rest of the house sees them."""

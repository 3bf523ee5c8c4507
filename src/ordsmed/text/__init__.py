"""Machine: documents, sentences, the corpus pipeline, and tokenizers as the rest of the house sees them."""

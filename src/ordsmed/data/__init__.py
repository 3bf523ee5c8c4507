"""Encoded text: tokenizer training, the token store, and batches as a function of row numbers."""

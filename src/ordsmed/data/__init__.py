"""Encoded text: a trained tokenizer, the token store, and the rows of a batch by their numbers."""

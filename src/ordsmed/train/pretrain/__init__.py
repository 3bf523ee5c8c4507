"""Machine: pretraining on encoded text, and the whole way once."""

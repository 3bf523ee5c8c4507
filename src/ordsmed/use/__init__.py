"""A trained model in use: fill, generate, embed, answer, predict."""

"""Machine: what is done with a trained model: fill, generate, embed, predict, answer, export, import."""

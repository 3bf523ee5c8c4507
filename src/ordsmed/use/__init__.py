"""Use a trained model: fill masks, generate text, embed, answer questions, predict and search."""

"""Generation: how a model writes text: what is chosen, going on token by token, unmasking, prompts in and texts out."""

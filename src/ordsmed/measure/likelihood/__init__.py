"""How likely texts are under a model, token by token."""

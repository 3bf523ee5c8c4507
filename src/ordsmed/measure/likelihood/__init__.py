"""Likelihood of texts under a model, token by token."""

"""Evaluation of models: probes of language models, likelihoods of texts, speed and memory."""

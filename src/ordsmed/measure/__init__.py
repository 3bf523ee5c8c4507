"""Evaluation: probes of a language model, how likely texts are, speed and memory."""

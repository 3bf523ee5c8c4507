"""Weights: files of weights in and out, and a model that is opened."""

"""Machine: layers, losses, what a model family offers, weights in and out."""

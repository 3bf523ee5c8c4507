"""Machine: what is done with a trained model: fill, export; and with recipes and runs: show, bench."""

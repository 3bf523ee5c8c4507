"""The verb `make`: from text files to a trained model with one command, within a given time."""

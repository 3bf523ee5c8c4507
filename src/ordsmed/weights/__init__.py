"""Files of weights, read and written, and models opened, converted and exported."""

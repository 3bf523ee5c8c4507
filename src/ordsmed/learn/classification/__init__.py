"""What the task classify is made of: its records, its features, its predictions."""

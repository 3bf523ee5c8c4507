"""What the task squad is made of: its records, its features, its predictions."""

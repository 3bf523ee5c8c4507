"""What the task tag is made of: its tags, its features, its predictions."""

"""What the task pairs is made of: its records, its features, what is compared with what, its predictions."""

"""What a person checks before a long job, and what one process finds of another."""

"""Fine-tuning of a pretrained network for a task, and trials of it."""

"""Machine: fine-tuning on a task's examples, one run or trials side by side."""

"""Parts of the task pairs: records, features, losses and predictions."""

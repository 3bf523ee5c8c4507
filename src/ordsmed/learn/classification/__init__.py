"""Parts of the task classify: records, features and predictions."""

"""Parts of the task squad: records, features and predictions."""

"""Parts of the task tag: tags, features and predictions."""

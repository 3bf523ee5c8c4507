"""Others: command lines of other codes."""

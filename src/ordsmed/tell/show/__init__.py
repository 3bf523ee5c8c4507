"""What a recipe would do, the state of a run, the contents of a corpus."""

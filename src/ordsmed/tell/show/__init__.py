"""Lines on what a recipe would do, the state of a run, and the contents of a corpus."""

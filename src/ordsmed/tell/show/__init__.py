"""Machine: what a recipe would do, how a run stands, what a corpus holds."""

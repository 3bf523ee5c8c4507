"""Data and statistics of the BabyLM evaluation: task folders, reading-time regressions, ages of acquisition."""

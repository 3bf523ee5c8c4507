"""Reports of runs: lines, pages, charts, comparisons over seeds, and experiment trackers."""

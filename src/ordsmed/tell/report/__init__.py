"""Reports of runs: a page, Markdown or JSON of what their folders hold."""

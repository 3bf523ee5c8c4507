"""Reports of runs as a page, Markdown or JSON, made from the files in their folders."""

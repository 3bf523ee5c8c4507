"""Plain text of wikitext, web pages, EPUB, WARC files and books wrapped at a width."""

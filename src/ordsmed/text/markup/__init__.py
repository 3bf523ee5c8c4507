"""Machine: prose out of wikitext, web pages, epubs, WARC files and books wrapped at a width."""

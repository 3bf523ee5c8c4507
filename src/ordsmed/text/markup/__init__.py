"""Extract plain text from wikitext, web pages, EPUB, Word, OpenDocument, PDF, WARC files and hard-wrapped books."""

"""Documents, sentences, languages, markup, downloads, and tokenizers."""

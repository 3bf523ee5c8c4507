"""Machine: a tokenizer learned, the token store, encoding into it, and the way from a row's number to a batch."""

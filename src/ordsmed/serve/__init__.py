"""Serve: trained models asked over HTTP, by clients that exist already and by `ordsmed.open` from another machine."""

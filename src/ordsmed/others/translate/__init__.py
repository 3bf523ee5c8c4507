"""Translate command lines of other codes into recipes and run them."""

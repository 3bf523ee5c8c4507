"""Protocols: the shapes in which clients ask, a file each; it names its paths, requests, answers and errors."""

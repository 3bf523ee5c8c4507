"""A menu: one file is one verb of the command line."""

"""Readers of files of labeled examples: questions, tables, tagged words, text pairs, GLUE."""

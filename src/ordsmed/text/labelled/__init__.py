"""Files of examples with labels: questions, tables, tagged words, GLUE."""

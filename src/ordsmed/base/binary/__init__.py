"""File formats of other frameworks, read and written byte by byte: TensorFlow's bundles and records, torch's files."""

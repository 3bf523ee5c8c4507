"""Files of other frameworks, byte by byte: TensorFlow's bundles and records, torch's pickles."""

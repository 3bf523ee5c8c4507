"""What the verbs of the command line share: finding them, their flags, their help, what they print."""

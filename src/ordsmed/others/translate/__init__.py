"""The command lines of other codes as calls of ours: their flags, what each becomes, and recipes to run."""

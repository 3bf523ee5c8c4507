"""The list that is the same on every machine: what it asks, its golden numbers, its report."""

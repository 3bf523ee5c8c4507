"""The validation suite, the same on every machine: its items, golden numbers and reports."""

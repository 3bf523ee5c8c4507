"""Official scores of answers, labels and spans, in numpy alone."""

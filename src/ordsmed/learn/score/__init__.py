"""Machine: official numbers of answers, labels and spans, with numpy alone."""

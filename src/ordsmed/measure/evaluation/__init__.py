"""Many models and probes: scored, resumed, compared, reported, drawn."""

"""Machine: probes asked of models, what they answered kept, reported and drawn."""

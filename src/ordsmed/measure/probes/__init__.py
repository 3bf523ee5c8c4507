"""Menu: probes, which measure how well a language model knows its language, without training."""

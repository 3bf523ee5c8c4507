"""Menu: probes, each asking how well a language model knows its language, without training anything."""

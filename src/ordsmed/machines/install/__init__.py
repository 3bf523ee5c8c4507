"""Installations on machines: what a site wants is written for its own tools, and done when asked for."""

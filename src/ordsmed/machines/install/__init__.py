"""Installations on clusters: write scripts for the tools of each site, and run them on request."""

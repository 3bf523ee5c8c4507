"""Slurm and the sites it runs on: job scripts, descriptions of sites, and comparisons with the real machine."""

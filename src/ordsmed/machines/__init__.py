"""Machines: around a long job."""

"""Checks of a machine, its software and its disks before a long job."""

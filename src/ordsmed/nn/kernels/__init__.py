"""Kernels of our own for GPUs, in Triton: optional, each beside the plain form that it must equal."""

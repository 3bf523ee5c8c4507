"""The resources of this machine: devices, threads, memory, and measured speed."""

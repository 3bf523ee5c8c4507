"""What the machine lends a process: devices, threads, memory, and how fast it multiplies."""

"""How processes are started, on this machine and by Slurm; what is started knows nothing of it."""

"""Start processes on this machine and by Slurm. The code that runs in them does not depend on this package."""

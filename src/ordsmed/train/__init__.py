"""The training loop and the modules around it: sessions, checkpoints, parallelism, callbacks and recovery."""

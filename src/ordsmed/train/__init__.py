"""The training loop and what is around it: sessions, checkpoints, parallelism, callbacks, recovery."""

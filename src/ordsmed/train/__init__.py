"""Machine: the one loop, checkpoints, meters, and the deed `pretrain`."""

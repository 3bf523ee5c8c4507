"""Machine: the one loop and what stands round it: session, checkpoints, meters, guard, watch."""

"""What a training is on a cluster: sent in, estimated, and the machine looked at."""

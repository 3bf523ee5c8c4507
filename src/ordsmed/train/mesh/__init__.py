"""How a training is placed on devices: layout, split of the batch, replicas, precision."""

"""The placement of a training on devices: layout, split of the batch, replicas and precision."""

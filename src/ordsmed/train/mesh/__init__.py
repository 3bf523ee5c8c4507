"""Machine: how a training lies on devices: layout, cut of the batch, replicas, precision."""

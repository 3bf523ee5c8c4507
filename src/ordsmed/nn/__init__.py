"""Networks: layers, attention, losses, kernels, model families."""

"""Optional GPU kernels in Triton; each module also has a plain torch version with the same results."""

"""Parameter groups: which weights decay, decided by shape: matrices and tables do, biases and norms do not."""

from __future__ import annotations

from typing import Any

from torch import nn


def groups(module: nn.Module) -> list[dict[str, Any]]:
    """Two groups with their names, in the network's order; each parameter once."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return [
        {"decayed": decayed, "names": [n for n, p in named if (p.ndim > 1) == decayed],
         "params": [p for _, p in named if (p.ndim > 1) == decayed]}
        for decayed in (True, False)
    ]  # fmt: skip

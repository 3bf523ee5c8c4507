"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2017), torch's fused kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Settings:
    """AdamW; biases, norms and other vectors are not decayed."""

    betas: tuple[float, float] = (0.9, 0.999)
    """how slowly the two moments forget"""
    epsilon: float = 1e-8
    """added to the root of the second moment"""
    decay: float = 0.01
    """weight decay of matrices"""

    def __post_init__(self) -> None:
        if not all(0 <= b < 1 for b in self.betas):
            raise ValueError(f"betas: found {self.betas}; wanted two numbers from 0 to below 1")
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon: found {self.epsilon}; wanted a number above 0 and below 1")
        if not 0 <= self.decay < float("inf"):
            raise ValueError(f"decay: found {self.decay}; wanted 0 or more")

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        made = [{**group, "weight_decay": self.decay if group["decayed"] else 0.0} for group in groups]
        return torch.optim.AdamW(made, lr=0.0, betas=self.betas, eps=self.epsilon, fused=True)

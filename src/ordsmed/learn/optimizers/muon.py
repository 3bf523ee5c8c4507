"""MuonOptimizer: momentum of matrices made orthogonal (Jordan 2024; equal to torch.optim.Muon), AdamW for all else."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ordsmed.base.menu import Choice
from ordsmed.learn import updates
from ordsmed.nn import shards

QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: steepest at 0, so that small singular values grow in few steps


@dataclass(frozen=True)
class Muon(Choice):
    """Muon for matrices; tables, biases and norms learn by AdamW."""

    momentum: float = 0.95
    """how slowly the mean of a matrix's gradients forgets (Nesterov's form)"""
    decay: float = 0.1
    """weight decay of matrices; elsewhere weight_decay"""
    steps: int = 5
    """Newton-Schulz steps"""
    adjust: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    """a matrix's rate by its shape: Jordan's, for rates near 0.02, or so that AdamW's rates do (Liu et al. 2025)"""
    rest_rate: float = 1.0
    """rate of what is no matrix, as a share of the phase's; with Jordan's adjustment about 0.02"""
    rest_betas: tuple[float, float] = (0.9, 0.95)
    """how slowly the moments of what is no matrix forget"""
    rest_epsilon: float = 1e-8
    """added to the root of their second moment"""
    rest_decay: float = 0.1
    """weight decay of tables"""

    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum: found {self.momentum}; wanted a number from 0 to below 1")
        if not 1 <= self.steps < 100:
            raise ValueError(f"steps: found {self.steps}; wanted 1 to 99")
        for name in ("decay", "rest_rate", "rest_decay"):
            updates.check_share(name, getattr(self, name))
        updates.check_betas(self.rest_betas, "rest_betas")
        updates.check_epsilon(self.rest_epsilon, "rest_epsilon")

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        all_groups = list(groups)
        matrices = updates.with_decay([g for g in all_groups if g["kind"] == "matrix"], self.decay)
        rest = updates.with_decay([g for g in all_groups if g["kind"] != "matrix"], self.rest_decay)
        return MuonOptimizer(matrices + rest, self)


class MuonOptimizer(torch.optim.Optimizer):
    """w -= rate (adjusted orthogonal(g + momentum) + decay w)."""

    def __init__(self, groups: list[dict[str, Any]], how: Muon) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.how = how

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        how = self.how
        matrices = [g for g in self.param_groups if g["kind"] == "matrix"]
        rest = [g for g in self.param_groups if g["kind"] != "matrix"]
        for turn in updates.turns(self, "momentum_buffer", groups=matrices):
            for weight, part, grad, mean in zip(
                turn.weights, turn.parts, turn.grads, turn.kept["momentum_buffer"], strict=True
            ):
                mean.lerp_(grad, 1 - self.how.momentum)
                ahead = grad.lerp(mean, self.how.momentum).bfloat16()  # here: half as much to gather, and the same bits
                whole = shards.gathered(part, ahead)
                update = orthogonal(whole.flatten(1), self.how.steps).reshape(whole.shape)
                weight.mul_(1 - turn.rate * turn.decay)
                weight.add_(shards.cut(part, update), alpha=-turn.rate * adjustment(whole.flatten(1), self.how.adjust))
        for turn in updates.turns(self, *updates.MOMENTS, groups=rest):
            updates.walk(turn, updates.directions(turn, how.rest_betas, how.rest_epsilon), turn.rate * how.rest_rate)


def orthogonal(matrix: Tensor, steps: int) -> Tensor:
    """Newton-Schulz: the matrix with its singular values brought near 1 (0.7 to 1.2), in bf16."""
    a, b, c = QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def adjustment(matrix: Tensor, how: str) -> float:
    """What a matrix's rate is multiplied by, for its shape."""
    rows, columns = matrix.shape
    return math.sqrt(max(1, rows / columns)) if how == "original" else 0.2 * math.sqrt(max(rows, columns))

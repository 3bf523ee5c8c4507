"""StableAdamW: AdamW that slows down, tensor by tensor, where gradients outgrow their past (Wortsman et al. 2023)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordsmed.base.menu import Choice
from ordsmed.learn import updates
from ordsmed.learn.updates import WeightGroup


@dataclass(frozen=True)
class StableAdamW(Choice):
    """AdamW with Adafactor's update clipping; needs no clipping of gradients."""

    betas: tuple[float, float] = (0.9, 0.99)
    """how slowly the two moments forget"""
    epsilon: float = 1e-8
    """added to the root of the second moment"""
    decay: float = 0.01
    """weight decay of matrices and tables; elsewhere weight_decay"""

    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        updates.check_betas(self.betas)
        updates.check_epsilon(self.epsilon)
        updates.check_share("decay", self.decay)

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        return StableAdamWOptimizer(updates.with_decay(groups, self.decay), self)


class StableAdamWOptimizer(torch.optim.Optimizer):
    """The update w -= r (m / (√v + ε) + decay w), with r = rate / max(1, √mean(g² / max(v, ε²))).

    Both betas are `debiased`.
    """

    def __init__(self, groups: list[dict[str, Any]], how: StableAdamW) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.how = how

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        groups = list(updates.weight_groups(self, *updates.MOMENTS))
        for group in groups:
            first, second = ([debiased(beta, step) for step in group.steps] for beta in self.how.betas)
            updates.move_moments(group, (first, second))
        if groups:
            slower = self._slower(groups).split([len(group.weights) for group in groups])
            for group, factors in zip(groups, slower, strict=True):
                directions = updates.quotients(group, self.how.epsilon)
                if group.decay:
                    torch._foreach_add_(directions, group.weights, alpha=group.decay)
                updates.scale(directions, group.rate * factors)
                torch._foreach_sub_(group.weights, directions)

    def _slower(self, groups: list[WeightGroup]) -> Tensor:
        """Return 1 / max(1, RMS) of every weight of all groups, [n]; needs one all-reduce per step."""
        surprise = [tensor for group in groups for tensor in self._surprise(group)]
        parts = [part for group in groups for part in group.parts]
        counts = torch.tensor([max(1, part.size) for part in parts], dtype=torch.float32)
        means = updates.squares(surprise, parts) / counts.to(surprise[0].device, non_blocking=True)
        return 1 / means.sqrt().clamp_min(1)

    def _surprise(self, group: WeightGroup) -> list[Tensor]:
        floor = torch._foreach_clamp_min(group.kept["exp_avg_sq"], self.how.epsilon**2)
        torch._foreach_sqrt_(floor)
        return list(torch._foreach_div(group.grads, floor))


def debiased(beta: float, step: float) -> float:
    """Return the beta with which the moving average needs no bias correction at this step."""
    return float(beta * (1 - beta ** (step - 1)) / (1 - beta**step))

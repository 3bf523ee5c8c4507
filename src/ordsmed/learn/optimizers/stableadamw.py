"""StableAdamW: AdamW that lowers a tensor's rate while gradients exceed their running mean (Wortsman et al. 2023)."""

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
    """AdamW with Adafactor's update clipping, which replaces gradient clipping."""

    betas: tuple[float, float] = (0.9, 0.99)
    """decay rates of the two moments' running means"""
    epsilon: float = 1e-8
    """added to the square root of the second moment"""
    decay: float = 0.01
    """weight decay of matrices and tables; elsewhere weight_decay"""

    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        updates.check_betas(self.betas)
        updates.check_epsilon(self.epsilon)
        updates.check_not_negative("decay", self.decay)

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        return StableAdamWOptimizer(updates.with_decay(groups, self.decay), self)


class StableAdamWOptimizer(torch.optim.Optimizer):
    """The update w -= r (m / (√v + ε) + decay w), with r = rate / max(1, √mean(g² / max(v, ε²))).

    Betas that depend on the step replace the bias correction (`debiased`).
    """

    def __init__(self, groups: list[dict[str, Any]], settings: StableAdamW) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.settings = settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        groups = list(updates.weight_groups(self, *updates.MOMENTS))
        for group in groups:
            first, second = ([debiased(beta, step) for step in group.steps] for beta in self.settings.betas)
            updates.move_moments(group, (first, second))
        if groups:
            clipping = self._clip_factors(groups).split([len(group.weights) for group in groups])
            for group, factors in zip(groups, clipping, strict=True):
                directions = updates.quotients(group, self.settings.epsilon)
                if group.decay:
                    torch._foreach_add_(directions, group.weights, alpha=group.decay)
                updates.scale(directions, group.rate * factors)
                torch._foreach_sub_(group.weights, directions)

    def _clip_factors(self, groups: list[WeightGroup]) -> Tensor:
        """Return 1 / max(1, RMS of g / √v) of every weight of all groups, [n], with one all-reduce."""
        relative = [tensor for group in groups for tensor in self._relative_gradients(group)]
        parts = [part for group in groups for part in group.parts]
        counts = torch.tensor([max(1, part.size) for part in parts], dtype=torch.float32)
        means = updates.squared_norms(relative, parts) / counts.to(relative[0].device, non_blocking=True)
        return 1 / means.sqrt().clamp_min(1)

    def _relative_gradients(self, group: WeightGroup) -> list[Tensor]:
        floor = torch._foreach_clamp_min(group.state["exp_avg_sq"], self.settings.epsilon**2)
        torch._foreach_sqrt_(floor)
        return list(torch._foreach_div(group.grads, floor))


def debiased(beta: float, step: float) -> float:
    """Return the beta with which the moving average needs no bias correction at this step."""
    return float(beta * (1 - beta ** (step - 1)) / (1 - beta**step))

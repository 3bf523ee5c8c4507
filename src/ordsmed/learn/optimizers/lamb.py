"""LAMB: AdamW whose steps are, tensor by tensor, in proportion to the weights (You et al. 2019); for large batches."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ordsmed.base.menu import Choice
from ordsmed.base.settings import as_toml
from ordsmed.learn import updates
from ordsmed.learn.updates import WeightGroup
from ordsmed.nn.kernels import switch


@dataclass(frozen=True)
class Lamb(Choice):
    """LAMB; NVIDIA's ELECTRA has betas 0.878 and 0.974, their BERT 0.9 and 0.999."""

    betas: tuple[float, float] = (0.9, 0.999)
    """how slowly the two moments forget"""
    epsilon: float = 1e-6
    """added to the root of the second moment"""
    decay: float = 0.01
    """weight decay of matrices and tables; elsewhere weight_decay"""
    correct: bool = True
    """whether the moments are corrected for beginning at 0; the paper's later version does not"""
    adapt: Literal["all", "matrices", "decayed"] = "all"
    """whose step is in proportion: all (NVIDIA's ELECTRA; NVLAMB); matrices: not biases and norms (its skip_adaptive);
    decayed: where weight decay applies (apex without NVLAMB)"""
    clamp: tuple[float, float] | None = None
    """limits between which a tensor's norm counts (the paper's phi)"""

    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        updates.check_betas(self.betas)
        updates.check_epsilon(self.epsilon)
        updates.check_share("decay", self.decay)
        if self.clamp is not None and not 0 <= self.clamp[0] < self.clamp[1]:
            raise ValueError(f"clamp: found {as_toml(self.clamp)}; wanted 0 or more, and more than that")

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        return LambOptimizer(updates.with_decay(groups, self.decay), self)


class LambOptimizer(torch.optim.Optimizer):
    """The update w -= rate |w| / |u| u, with u = m̂ / (√v̂ + ε) + decay w."""

    def __init__(self, groups: list[dict[str, Any]], how: Lamb) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.how = how

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        ready = list(updates.weight_groups(self, *updates.MOMENTS))
        if ready and switch.runs("proportional_step", ready[0].weights[0].device) and self._by_kernels(ready):
            return
        pairs = [(group, self._directions(group)) for group in ready]
        self._adapt([(group, directions) for group, directions in pairs if self._adapts(group)])
        for group, directions in pairs:
            torch._foreach_add_(group.weights, directions, alpha=-group.rate)

    def _directions(self, group: WeightGroup) -> list[Tensor]:
        directions = updates.directions(group, self.how.betas, self.how.epsilon, "yes" if self.how.correct else "no")
        if group.decay:
            torch._foreach_add_(directions, group.weights, alpha=group.decay)
        return directions

    def _by_kernels(self, ready: list[WeightGroup]) -> bool:
        """Run the step with Triton kernels, if all tensors fit them; return whether it was run."""
        from ordsmed.nn.kernels.proportional_step import Step, fits  # needs Triton

        firsts, seconds = updates.MOMENTS
        tensors = [(group.weights, group.grads, group.kept[firsts], group.kept[seconds]) for group in ready]
        sharded = any(part.groups for group in ready for part in group.parts)  # their norms need a reduction over ranks
        if sharded or not all(fits([*itertools.chain(*lists)]) for lists in tensors):
            return False
        for group, lists in zip(ready, tensors, strict=True):
            plain = [self.how.epsilon] * len(group.weights), [1.0] * len(group.weights)
            factors = updates.corrections(group, self.how.betas, self.how.epsilon) if self.how.correct else plain
            step = Step(*lists)
            tall, long = step.directions(self.how.betas, *factors, group.decay).sqrt()
            step.apply_update(
                self._ratios(tall, long) * group.rate if self._adapts(group) else torch.full_like(tall, group.rate)
            )
        return True

    def _ratios(self, tall: Tensor, long: Tensor) -> Tensor:
        """Return the factors `tall` / `long`, norms of weights over norms of directions; 1 if either is 0."""
        if self.how.clamp:
            tall = tall.clamp(*self.how.clamp)
        return torch.where((tall > 0) & (long > 0), tall / long, 1.0)

    def _adapts(self, group: WeightGroup) -> bool:
        if self.how.adapt == "decayed":
            return self.how.decay != 0 and group.group["decayed"]  # only a decay of 0 in the recipe turns this off
        return self.how.adapt == "all" or group.group["kind"] != "vector"

    def _adapt(self, updated: list[tuple[WeightGroup, list[Tensor]]]) -> None:
        """Scale the directions of all groups together, with one all-reduce per step."""
        weights = [weight for group, _ in updated for weight in group.weights]
        directions = [direction for _, some in updated for direction in some]
        parts = [part for group, _ in updated for part in group.parts]
        if weights:
            tall, long = updates.squares(weights + directions, parts * 2).sqrt().chunk(2)
            updates.scale(directions, self._ratios(tall, long))

"""LAMB: AdamW for large batches; the step of each tensor is proportional to its norm (You et al. 2019)."""

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
    """LAMB; NVIDIA's ELECTRA uses betas 0.878 and 0.974, its BERT 0.9 and 0.999."""

    betas: tuple[float, float] = (0.9, 0.999)
    """decay rates of the two moments' running means"""
    epsilon: float = 1e-6
    """added to the square root of the second moment"""
    decay: float = 0.01
    """weight decay of matrices and tables; elsewhere weight_decay"""
    correct: bool = True
    """whether the moments' bias is corrected; the later version of the paper does not"""
    adapt: Literal["all", "matrices", "decayed"] = "all"
    """weights whose step is proportional to their norm: all (NVIDIA's ELECTRA; NVLAMB); matrices: not biases and norms
    (its skip_adaptive); decayed: those with weight decay (apex without NVLAMB)"""
    clamp: tuple[float, float] | None = None
    """lower and upper limit to which a tensor's norm is clamped (the paper's phi)"""

    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        updates.check_betas(self.betas)
        updates.check_epsilon(self.epsilon)
        updates.check_not_negative("decay", self.decay)
        if self.clamp is not None and not 0 <= self.clamp[0] < self.clamp[1]:
            raise ValueError(f"clamp: found {as_toml(self.clamp)}; wanted a lower limit of 0 or more and a higher one")

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        return LambOptimizer(updates.with_decay(groups, self.decay), self)


class LambOptimizer(torch.optim.Optimizer):
    """The update w -= rate |w| / |u| u, with u = m̂ / (√v̂ + ε) + decay w."""

    def __init__(self, groups: list[dict[str, Any]], settings: Lamb) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.settings = settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        ready = list(updates.weight_groups(self, *updates.MOMENTS))
        if ready and switch.runs("proportional_step", ready[0].weights[0].device) and self._run_kernels(ready):
            return
        pairs = [(group, self._directions(group)) for group in ready]
        self._scale_directions([(group, directions) for group, directions in pairs if self._adapts(group)])
        for group, directions in pairs:
            torch._foreach_add_(group.weights, directions, alpha=-group.rate)

    def _directions(self, group: WeightGroup) -> list[Tensor]:
        betas, epsilon, correct = self.settings.betas, self.settings.epsilon, self.settings.correct
        directions = updates.directions(group, betas, epsilon, "yes" if correct else "no")
        if group.decay:
            torch._foreach_add_(directions, group.weights, alpha=group.decay)
        return directions

    def _run_kernels(self, ready: list[WeightGroup]) -> bool:
        """Run the step with Triton kernels if they can process all tensors; return whether it was run."""
        from ordsmed.nn.kernels.proportional_step import Step, fits  # needs Triton

        firsts, seconds = updates.MOMENTS
        tensors = [(group.weights, group.grads, group.state[firsts], group.state[seconds]) for group in ready]
        sharded = any(part.groups for group in ready for part in group.parts)  # their norms need a reduction over ranks
        if sharded or not all(fits([*itertools.chain(*lists)]) for lists in tensors):
            return False
        betas, epsilon = self.settings.betas, self.settings.epsilon
        for group, lists in zip(ready, tensors, strict=True):
            factors = [epsilon] * len(group.weights), [1.0] * len(group.weights)
            if self.settings.correct:
                factors = updates.corrections(group, betas, epsilon)
            step = Step(*lists)
            norms, direction_norms = step.directions(betas, *factors, group.decay).sqrt()
            step.apply_update(
                self._ratios(norms, direction_norms) * group.rate
                if self._adapts(group)
                else torch.full_like(norms, group.rate)
            )
        return True

    def _ratios(self, norms: Tensor, direction_norms: Tensor) -> Tensor:
        """Return the norms of weights divided by the norms of their directions; 1 if either is 0."""
        if self.settings.clamp:
            norms = norms.clamp(*self.settings.clamp)
        return torch.where((norms > 0) & (direction_norms > 0), norms / direction_norms, 1.0)

    def _adapts(self, group: WeightGroup) -> bool:
        if self.settings.adapt == "decayed":
            return self.settings.decay != 0 and group.group["decayed"]  # only a decay of 0 in the recipe turns this off
        return self.settings.adapt == "all" or group.group["kind"] != "vector"

    def _scale_directions(self, pairs: list[tuple[WeightGroup, list[Tensor]]]) -> None:
        """Scale the directions of all groups by the ratios of norms, with one all-reduce."""
        weights = [weight for group, _ in pairs for weight in group.weights]
        directions = [direction for _, of_group in pairs for direction in of_group]
        parts = [part for group, _ in pairs for part in group.parts]
        if weights:
            norms, direction_norms = updates.squared_norms(weights + directions, parts * 2).sqrt().chunk(2)
            updates.scale(directions, self._ratios(norms, direction_norms))

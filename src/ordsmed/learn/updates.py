"""Shared parts of the optimizers: weights with gradients, Adam's moments and directions, norms over all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ordsmed.base.settings import as_toml
from ordsmed.nn.shards import LocalParameter, sums

MOMENTS = ("exp_avg", "exp_avg_sq")  # the names of torch.optim.AdamW, so that checkpoints of both have the same keys
Groups = Sequence[dict[str, Any]]
Correct = Literal["no", "yes", "outside"]
Cautious = Literal["no", "decay", "updates"]
MIN_SHARE = 1e-3  # of a tensor that a cautious update changes, as the divisor of its scale


@dataclass(frozen=True)
class WeightGroup:
    """The weights of a parameter group that have a gradient, and the optimizer's state of each: parallel lists."""

    group: dict[str, Any]
    weights: list[Tensor]
    parts: list[LocalParameter]
    grads: list[Tensor]
    steps: list[float]  # 1 at a weight's first step
    state: dict[str, list[Tensor]]  # by name, such as exp_avg

    @property
    def rate(self) -> float:
        return float(self.group["lr"])

    @property
    def decay(self) -> float:
        return float(self.group["weight_decay"])

    def singles(self) -> Iterator[WeightGroup]:
        """Yield a group for each weight."""
        for n, (weight, part, grad, step) in enumerate(
            zip(self.weights, self.parts, self.grads, self.steps, strict=True)
        ):
            state = {name: tensors[n : n + 1] for name, tensors in self.state.items()}
            yield WeightGroup(self.group, [weight], [part], [grad], [step], state)


def with_decay(groups: Iterable[dict[str, Any]], decay: float) -> list[dict[str, Any]]:
    """Return copies of groups with the weight decay `decay`, or 0 for groups that are not decayed."""
    return [{**group, "weight_decay": decay if group["decayed"] else 0.0} for group in groups]


def weight_groups(optimizer: torch.optim.Optimizer, *names: str, groups: Groups | None = None) -> Iterator[WeightGroup]:
    """Count a step for all weights with a gradient and yield them by parameter group; missing state becomes zeros.

    `names` are the tensors of `optimizer.state[weight]` that a group has. The step is stored there as a tensor on the
    CPU, so reading it does not wait for the GPU.
    """
    for group in optimizer.param_groups if groups is None else groups:
        pairs = [(w, p) for w, p in zip(group["params"], group["parts"], strict=True) if w.grad is not None]
        if pairs:
            weights = [weight for weight, _ in pairs]
            states = [_with_moments(optimizer.state[weight], weight, names) for weight in weights]
            state = {name: [entry[name] for entry in states] for name in names}
            steps = [float(state["step"].add_(1)) for state in states]
            yield WeightGroup(group, weights, [part for _, part in pairs], [w.grad for w in weights], steps, state)


def move_moments(group: WeightGroup, betas: tuple[float | list[float], float | list[float]]) -> None:
    """Compute m = b1 m + (1 - b1) g and v = b2 v + (1 - b2) g²; a list of betas has one for each weight."""
    first, second = (group.state[name] for name in MOMENTS)
    share = [1 - b for b in betas[0]] if isinstance(betas[0], list) else 1 - betas[0]
    torch._foreach_lerp_(first, group.grads, share)
    torch._foreach_mul_(second, betas[1])
    share = [1 - b for b in betas[1]] if isinstance(betas[1], list) else 1 - betas[1]
    torch._foreach_addcmul_(second, group.grads, group.grads, share)


def quotients(group: WeightGroup, epsilon: float | list[float]) -> list[Tensor]:
    """Return m / (√v + ε) of the moments without bias correction."""
    roots = torch._foreach_sqrt(group.state["exp_avg_sq"])
    torch._foreach_add_(roots, epsilon)
    return list(torch._foreach_div(group.state["exp_avg"], roots))


def directions(
    group: WeightGroup, betas: tuple[float, float], epsilon: float, correct: Correct = "yes"
) -> list[Tensor]:
    """Update the moments and return Adam's direction for every weight.

    `correct`: correct the bias of the moments before epsilon is added ("yes", the paper's algorithm), afterwards
    ("outside", the paper's shorter form, in which epsilon has more effect in the first steps), or not at all ("no").
    """
    move_moments(group, betas)
    if correct == "no":
        return quotients(group, epsilon)
    epsilons, scales = corrections(group, betas, epsilon)
    steps = quotients(group, epsilons if correct == "yes" else epsilon)
    torch._foreach_mul_(steps, scales)
    return steps


def corrections(group: WeightGroup, betas: tuple[float, float], epsilon: float) -> tuple[list[float], list[float]]:
    """Return the bias correction as an epsilon and a factor for each weight, to apply to uncorrected moments."""
    roots = [math.sqrt(1 - betas[1] ** step) for step in group.steps]
    return [epsilon * r for r in roots], [
        r / (1 - betas[0] ** step) for r, step in zip(roots, group.steps, strict=True)
    ]


def apply_update(
    group: WeightGroup, directions: list[Tensor], rate: float, *, length: float = 1.0, cautious: bool = False
) -> None:
    """Update the weights in place: w -= rate * (length * direction + decay * w). `directions` has one per weight.

    With `cautious`, an entry of w decays only if the direction also moves it toward 0 (cautious weight decay, Chen et
    al. 2025).
    """
    if group.decay and cautious:
        shrinking = [
            weight * (weight * direction > 0) for weight, direction in zip(group.weights, directions, strict=True)
        ]
        torch._foreach_sub_(group.weights, shrinking, alpha=rate * group.decay)
    elif group.decay:
        torch._foreach_mul_(group.weights, 1 - rate * group.decay)
    torch._foreach_add_(group.weights, directions, alpha=-rate * length)


def make_cautious(group: WeightGroup, directions: list[Tensor]) -> None:
    """Zero the entries of each direction whose sign differs from the gradient's, and scale up the rest to compensate.

    These are cautious optimizers (Liang et al. 2024). All tensors together need one all-reduce.
    """
    masks = [direction * grad > 0 for direction, grad in zip(directions, group.grads, strict=True)]
    counts = sums(torch.stack([mask.sum(dtype=torch.float32) for mask in masks]), group.parts)
    sizes = torch.tensor([max(1, part.size) for part in group.parts], dtype=torch.float32)
    torch._foreach_mul_(directions, masks)
    scale(directions, 1 / (counts / sizes.to(counts.device, non_blocking=True)).clamp_min(MIN_SHARE))


def squared_norms(tensors: list[Tensor], parts: list[LocalParameter]) -> Tensor:
    """Return the squared norm of each complete tensor, [n], the same on every rank, with one all-reduce."""
    return sums(torch.stack(torch._foreach_norm(tensors)).square(), parts)


def scale(tensors: list[Tensor], factors: Tensor) -> None:
    """Multiply each of n tensors by its factor, in place; `factors` [n] may be on the GPU, and nothing waits for it."""
    torch._foreach_mul_(tensors, list(factors.unbind()))


def check_betas(betas: tuple[float, float], name: str = "betas") -> None:
    if not all(0 <= b < 1 for b in betas):
        raise ValueError(f"{name}: found {as_toml(betas)}; wanted two numbers from 0 to below 1")


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    if not 0 < epsilon < 1:
        raise ValueError(f"{name}: found {epsilon}; wanted a number above 0 and below 1")


def check_not_negative(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}: found {value}; wanted 0 or more")


def _with_moments(state: dict[str, Tensor], weight: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    if "step" not in state:
        state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
    for name in names:
        if name not in state:
            state[name] = torch.zeros_like(weight)
    return state

"""Muon: orthogonalized momentum for matrices (Jordan 2024; equal to torch.optim.Muon), AdamW for other weights."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many
from ordsmed.learn import updates
from ordsmed.nn import shards

INITIAL_MOMENTUM = 0.85  # at the start of its warm-up, as in modded-nanogpt
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients, with which small singular values grow in few steps


@dataclass(frozen=True)
class Muon(Choice):
    """Muon for matrices; AdamW updates embeddings, biases and norms."""

    momentum: float = 0.95
    """decay rate of the running mean of a matrix's gradients (Nesterov's form)"""
    momentum_warmup: int = 0
    """steps in which the momentum rises from 0.85; 0: no warm-up"""
    decay: float = 0.1
    """weight decay of matrices; elsewhere weight_decay"""
    steps: int = 5
    """iterations of Newton-Schulz"""
    adjust: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    """how a matrix's rate depends on its shape: original: as Jordan, for rates near 0.02 at any width; match_rms_adamw:
    for AdamW's rates, which fall with the width (Liu et al. 2025)"""
    neurons: float = 0.0
    """divide each row of an update by its RMS over past steps and keep the norm of the matrix: the decay rate of that
    running mean (NorMuon, Li et al. 2025: 0.95); 0: rows stay as they are"""
    qkv: dict[str, int] = field(default_factory=dict)
    """fused matrices whose queries, keys and values are orthogonalized separately (modded-nanogpt): a regular
    expression on their names and the size of a head, { "attention.gather" = 64 }; left out: each is one matrix"""
    cautious: updates.Cautious = "no"
    """decay: a weight decays only if its update also moves it toward 0; updates: a weight is updated only if the update
    agrees with the gradient's sign, and the other updates grow to compensate"""
    rest_rate: float = 1.0
    """learning rate of AdamW for the other weights, as a share of the phase's; with adjust = "original" about 0.02"""
    rest_betas: tuple[float, float] = (0.9, 0.95)
    """decay rates of the running means of AdamW's moments"""
    rest_epsilon: float = 1e-8
    """added to the square root of AdamW's second moment"""
    rest_decay: float = 0.1
    """weight decay of embeddings"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("momentum_warmup", "neurons", "qkv", "cautious")
    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for name in ("momentum", "neurons"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted a number from 0 to below 1")
        if self.momentum_warmup < 0:
            raise ValueError(f"momentum_warmup: found {self.momentum_warmup}; wanted 0 or more steps")
        if self.momentum_warmup and self.momentum < INITIAL_MOMENTUM:
            problem = f"found {many(self.momentum_warmup, 'step')} with a momentum of {self.momentum}"
            raise ValueError(f"momentum_warmup: {problem}; wanted a momentum above {INITIAL_MOMENTUM}")
        if not 1 <= self.steps < 100:
            raise ValueError(f"steps: found {self.steps}; wanted 1 to 99")
        if wrong := [size for size in self.qkv.values() if size < 1]:
            raise ValueError(f"qkv: found {wrong[0]}; wanted the size of a head, 1 or more")
        for name in ("decay", "rest_rate", "rest_decay"):
            updates.check_not_negative(name, getattr(self, name))
        updates.check_betas(self.rest_betas, "rest_betas")
        updates.check_epsilon(self.rest_epsilon, "rest_epsilon")

    def head_of(self, name: str) -> int:
        """Return the head size of a matrix that holds queries, keys and values; 0 for any other matrix."""
        return next((size for pattern, size in self.qkv.items() if re.search(pattern, name)), 0)

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        all_groups = list(groups)
        rows = {
            part.name: len(part.whole) for group in all_groups for part in group["parts"] if group["kind"] == "matrix"
        }
        for pattern, size in self.qkv.items():
            names = [name for name in rows if re.search(pattern, name)]
            if wrong := next((name for name in names if rows[name] % (3 * size)), "" if names else "no matrix"):
                problem = f"matches {wrong} of {many(rows[wrong], 'row')}" if names else "matches no matrix"
                raise RecipeError(f"optimizer.qkv: {pattern}", problem, f"matrices of 3 x heads x {size} rows")
        matrices = updates.with_decay([g for g in all_groups if g["kind"] == "matrix"], self.decay)
        rest = updates.with_decay([g for g in all_groups if g["kind"] != "matrix"], self.rest_decay)
        return MuonOptimizer(matrices + rest, self)


class MuonOptimizer(torch.optim.Optimizer):
    """The update w -= rate (adjusted orthogonal(g + momentum) + decay w) for matrices, AdamW for other weights."""

    def __init__(self, groups: list[dict[str, Any]], settings: Muon) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.settings = settings

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        options, cautious = self.settings, self.settings.cautious == "decay"
        matrices = [g for g in self.param_groups if g["kind"] == "matrix"]
        rest = [g for g in self.param_groups if g["kind"] != "matrix"]
        for group in updates.weight_groups(self, *self._state_names, groups=matrices):
            # one matrix at a time needs less memory; all at once need only one all-reduce of norms
            for subgroup in [group] if options.neurons or options.cautious == "updates" else group.singles():
                directions = [self._orthogonal_update(single) for single in subgroup.singles()]
                if options.neurons:
                    directions = self._with_even_rows(subgroup, directions)
                if options.cautious == "updates":
                    updates.make_cautious(subgroup, directions)
                for single, direction in zip(subgroup.singles(), directions, strict=True):
                    [part] = single.parts
                    length = adjustment(part.whole, options.adjust, parts=3 if options.head_of(part.name) else 1)
                    updates.apply_update(single, [direction], group.rate, length=length, cautious=cautious)
        for group in updates.weight_groups(self, *updates.MOMENTS, groups=rest):
            directions = updates.directions(group, options.rest_betas, options.rest_epsilon)
            if options.cautious == "updates":
                updates.make_cautious(group, directions)
            updates.apply_update(group, directions, group.rate * options.rest_rate, cautious=cautious)

    @property
    def _state_names(self) -> list[str]:
        return ["momentum_buffer", *(["row_squares"] if self.settings.neurons else [])]

    def _orthogonal_update(self, single: updates.WeightGroup) -> Tensor:
        """Return this rank's part of one matrix's orthogonal update."""
        options, [part], [grad] = self.settings, single.parts, single.grads
        [mean] = single.state["momentum_buffer"]
        momentum = options.momentum
        if single.steps[0] <= options.momentum_warmup:
            share = (single.steps[0] - 1) / options.momentum_warmup
            momentum = INITIAL_MOMENTUM + (options.momentum - INITIAL_MOMENTUM) * share
        mean.lerp_(grad, 1 - momentum)
        ahead = grad.lerp(mean, momentum).bfloat16()  # cast before gathering, for half the traffic and the same result
        whole = shards.gathered(part, ahead)
        update = self._orthogonal(whole.flatten(1), options.head_of(part.name))
        if options.neurons:  # expanded to the shape of the matrix, to be sharded and saved like it
            means = update.float().square().mean(1, keepdim=True).expand_as(update).reshape(whole.shape)
            single.state["row_squares"][0].lerp_(shards.cut(part, means), 1 - options.neurons)
        return shards.cut(part, update.reshape(whole.shape))

    def _orthogonal(self, matrix: Tensor, head: int) -> Tensor:
        """Return the orthogonal matrix; with a head size `head`, separately for queries, keys and values.

        Such a matrix has heads * 3 * head rows.
        """
        if not head:
            return orthogonal(matrix, self.settings.steps)
        thirds = matrix.unflatten(0, (-1, 3, head)).transpose(0, 1).flatten(1, 2)
        stacked = torch.stack([orthogonal(third, self.settings.steps) for third in thirds])
        whole: Tensor = stacked.unflatten(1, (-1, head)).transpose(0, 1).flatten(0, 2)
        return whole

    def _with_even_rows(self, group: updates.WeightGroup, directions: list[Tensor]) -> list[Tensor]:
        """Divide the rows of updates by their RMS over past steps, and keep the norm of each matrix."""
        directions = [direction.float() for direction in directions]
        roots = torch._foreach_sqrt(group.state["row_squares"])
        torch._foreach_add_(roots, 1e-8)
        even = list(torch._foreach_div(directions, roots))
        norms, even_norms = updates.squared_norms(directions + even, group.parts * 2).sqrt().chunk(2)
        updates.scale(even, norms / even_norms.clamp_min(1e-8))
        return even


def orthogonal(matrix: Tensor, steps: int) -> Tensor:
    """Return the matrix with singular values near 1 (0.7 to 1.2), by Newton-Schulz steps in bf16."""
    a, b, c = QUINTIC
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def adjustment(matrix: Tensor, how: str, *, parts: int = 1) -> float:
    """Return the factor of a matrix's learning rate for its shape, or for that of one of its `parts`."""
    rows, columns = len(matrix) // parts, math.prod(matrix.shape[1:])
    return math.sqrt(max(1, rows / columns)) if how == "original" else 0.2 * math.sqrt(max(rows, columns))

"""MuonOptimizer: momentum of matrices made orthogonal (Jordan 2024; equal to torch.optim.Muon), AdamW for all else."""

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

FIRST = 0.85  # the momentum at the start of its warm-up, as in modded-nanogpt
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: steepest at 0, so that small singular values grow in few steps


@dataclass(frozen=True)
class Muon(Choice):
    """Muon for matrices; tables, biases and norms learn by AdamW."""

    momentum: float = 0.95
    """how slowly the mean of a matrix's gradients forgets (Nesterov's form)"""
    momentum_warmup: int = 0
    """steps over which the momentum rises from 0.85; 0: none"""
    decay: float = 0.1
    """weight decay of matrices; elsewhere weight_decay"""
    steps: int = 5
    """Newton-Schulz steps"""
    adjust: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    """a matrix's rate by its shape: Jordan's, for rates near 0.02 whatever the width, or so that AdamW's rates do (Liu
    et al. 2025), which fall with the width"""
    neurons: float = 0.0
    """each row of an update is divided by the root of a running mean of its squares, the whole keeps its norm: how
    slowly that mean forgets (NorMuon, Li et al. 2025: 0.95); 0: rows stay as they are"""
    qkv: dict[str, int] = field(default_factory=dict)
    """matrices of queries, keys and values, head by head, of which each is made orthogonal by itself, and the size of a
    head, by regular expressions on their names: { "attention.gather" = 64 } (modded-nanogpt); left out: as one matrix
    each"""
    cautious: updates.Cautious = "no"
    """decay: weights decay only where their update leads towards 0 as well; updates: only what has the gradient's sign
    is updated, by so much more"""
    rest_rate: float = 1.0
    """rate of what is no matrix, as a share of the phase's; with Jordan's adjustment about 0.02"""
    rest_betas: tuple[float, float] = (0.9, 0.95)
    """how slowly the moments of what is no matrix forget"""
    rest_epsilon: float = 1e-8
    """added to the root of their second moment"""
    rest_decay: float = 0.1
    """weight decay of tables"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("momentum_warmup", "neurons", "qkv", "cautious")
    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for name in ("momentum", "neurons"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted a number from 0 to below 1")
        if self.momentum_warmup < 0:
            raise ValueError(f"momentum_warmup: found {self.momentum_warmup}; wanted 0 or more steps")
        if self.momentum_warmup and self.momentum < FIRST:
            problem = f"found {many(self.momentum_warmup, 'step')} with a momentum of {self.momentum}"
            raise ValueError(f"momentum_warmup: {problem}; wanted a momentum above {FIRST}, from which it rises")
        if not 1 <= self.steps < 100:
            raise ValueError(f"steps: found {self.steps}; wanted 1 to 99")
        if wrong := [size for size in self.qkv.values() if size < 1]:
            raise ValueError(f"qkv: found {wrong[0]}; wanted the size of a head, 1 or more")
        for name in ("decay", "rest_rate", "rest_decay"):
            updates.check_share(name, getattr(self, name))
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
                problem = f"fits {wrong} of {many(rows[wrong], 'row')}" if names else "fits no matrix"
                raise RecipeError(f"optimizer.qkv: {pattern}", problem, f"matrices of 3 x heads x {size} rows")
        matrices = updates.with_decay([g for g in all_groups if g["kind"] == "matrix"], self.decay)
        rest = updates.with_decay([g for g in all_groups if g["kind"] != "matrix"], self.rest_decay)
        return MuonOptimizer(matrices + rest, self)


class MuonOptimizer(torch.optim.Optimizer):
    """The update w -= rate (adjusted orthogonal(g + momentum) + decay w) for matrices, and AdamW for all others."""

    def __init__(self, groups: list[dict[str, Any]], how: Muon) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.how = how

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        options, cautious = self.how, self.how.cautious == "decay"
        matrices = [g for g in self.param_groups if g["kind"] == "matrix"]
        rest = [g for g in self.param_groups if g["kind"] != "matrix"]
        for group in updates.weight_groups(self, *self._kept, groups=matrices):
            # one matrix at a time needs less memory; steps that reduce norms over ranks take all together
            for lot in [group] if options.neurons or options.cautious == "updates" else group.singles():
                directions = [self._along(single) for single in lot.singles()]
                if options.neurons:
                    directions = self._evened(lot, directions)
                if options.cautious == "updates":
                    updates.keep_agreeing(lot, directions)
                for single, direction in zip(lot.singles(), directions, strict=True):
                    [part] = single.parts
                    length = adjustment(part.whole, options.adjust, parts=3 if options.head_of(part.name) else 1)
                    updates.apply_update(single, [direction], group.rate, length=length, cautious=cautious)
        for group in updates.weight_groups(self, *updates.MOMENTS, groups=rest):
            directions = updates.directions(group, options.rest_betas, options.rest_epsilon)
            if options.cautious == "updates":
                updates.keep_agreeing(group, directions)
            updates.apply_update(group, directions, group.rate * options.rest_rate, cautious=cautious)

    @property
    def _kept(self) -> list[str]:
        return ["momentum_buffer", *(["row_squares"] if self.how.neurons else [])]

    def _along(self, single: updates.WeightGroup) -> Tensor:
        """Return this rank's part of one matrix's orthogonal update."""
        options, [part], [grad] = self.how, single.parts, single.grads
        [mean] = single.kept["momentum_buffer"]
        momentum = options.momentum
        if single.steps[0] <= options.momentum_warmup:
            momentum = FIRST + (options.momentum - FIRST) * (single.steps[0] - 1) / options.momentum_warmup
        mean.lerp_(grad, 1 - momentum)
        ahead = grad.lerp(mean, momentum).bfloat16()  # cast before gathering: half the traffic, the same bits
        whole = shards.gathered(part, ahead)
        update = self._orthogonal(whole.flatten(1), options.head_of(part.name))
        if options.neurons:  # as large as the matrix, so that it is sharded and saved like the matrix
            means = update.float().square().mean(1, keepdim=True).expand_as(update).reshape(whole.shape)
            single.kept["row_squares"][0].lerp_(shards.cut(part, means), 1 - options.neurons)
        return shards.cut(part, update.reshape(whole.shape))

    def _orthogonal(self, matrix: Tensor, head: int) -> Tensor:
        """Return the orthogonal matrix; if `head` is set, separately for queries, keys and values.

        Such a matrix has [heads, 3, head] rows.
        """
        if not head:
            return orthogonal(matrix, self.how.steps)
        thirds = matrix.unflatten(0, (-1, 3, head)).transpose(0, 1).flatten(1, 2)
        turned = torch.stack([orthogonal(third, self.how.steps) for third in thirds])
        whole: Tensor = turned.unflatten(1, (-1, head)).transpose(0, 1).flatten(0, 2)
        return whole

    def _evened(self, lot: updates.WeightGroup, directions: list[Tensor]) -> list[Tensor]:
        """Divide rows of updates by the roots of their mean squares, and keep the norm of each matrix."""
        directions = [direction.float() for direction in directions]
        roots = torch._foreach_sqrt(lot.kept["row_squares"])
        torch._foreach_add_(roots, 1e-8)
        even = list(torch._foreach_div(directions, roots))
        before, after = updates.squares(directions + even, lot.parts * 2).sqrt().chunk(2)
        updates.scale(even, before / after.clamp_min(1e-8))
        return even


def orthogonal(matrix: Tensor, steps: int) -> Tensor:
    """Return the matrix with singular values near 1 (0.7 to 1.2), by Newton-Schulz steps in bf16."""
    a, b, c = QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def adjustment(matrix: Tensor, how: str, *, parts: int = 1) -> float:
    """Return the factor of a matrix's learning rate, for the shape of the matrix or of one of its parts."""
    rows, columns = len(matrix) // parts, math.prod(matrix.shape[1:])
    return math.sqrt(max(1, rows / columns)) if how == "original" else 0.2 * math.sqrt(max(rows, columns))

"""The joint head of questions: the end of an answer is scored given its start, and whether there is an answer at all.

    states [E, L, D] -> start [E, L] -> the best k starts -> their states -> end given each [E, L] -> the best k ends
    the start's state, beside the first token's -> is there no answer? [E]

While it learns it is told the right start. E examples of L tokens; a token that may not be chosen scores NEVER.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NEVER = -1e30  # finite: scores are summed over ranks
NARROW = 512  # width of Google's dense layers

Form = Literal["nvidia", "google"]


class Pair(nn.Module):
    """A score of each of many states beside one: dense over the two, activation, norm, dense to one number.

    The dense layer is the sum of its two halves, so that the two states are never laid side by side.
    """

    def __init__(
        self, width: int, inner: int, activation: nn.Module, *, norm: bool, bias: bool, many_first: bool
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(2 * width, inner)
        self.activation = activation
        self.norm = nn.LayerNorm(inner, 1e-12) if norm else nn.Identity()
        self.out = nn.Linear(inner, 1, bias=bias)
        self.many_first = many_first

    def of_many(self, many: Tensor) -> Tensor:
        """The dense layer's half for the many, [E, L, D] -> [E, L, H]."""
        return F.linear(many, self._halves()[0])

    def score(self, first_half: Tensor, single: Tensor) -> Tensor:
        """That and the one, [E, D] -> [E, L]."""
        both = first_half + F.linear(single, self._halves()[1], self.dense.bias)[:, None]
        scores: Tensor = self.out(self.norm(self.activation(both)))
        return scores.squeeze(-1).float()

    def _halves(self) -> tuple[Tensor, Tensor]:
        first, second = self.dense.weight.chunk(2, 1)
        return (first, second) if self.many_first else (second, first)


class JointHead(nn.Module):
    """Scores of starts, of ends given a start, and of having no answer where that may be."""

    def __init__(self, width: int, form: Form, *, refuse: bool) -> None:
        super().__init__()
        self.form = form
        nvidia = form == "nvidia"
        inner = width if nvidia else NARROW
        activation = nn.Tanh() if nvidia else nn.GELU()
        self.start = nn.Linear(width, 1)
        self.end = Pair(width, inner, activation, norm=nvidia, bias=True, many_first=nvidia)
        self.none = Pair(width, inner, activation, norm=False, bias=not nvidia, many_first=not nvidia)
        if not refuse:
            del self.none

    def starts(self, states: Tensor, allowed: Tensor) -> Tensor:
        """[E, L, D] -> [E, L]."""
        scores: Tensor = self.start(states).squeeze(-1)
        return scores.float().masked_fill(~allowed, NEVER)

    def ends(self, states: Tensor, allowed: Tensor, starts: Tensor) -> Tensor:
        """Scores of ends, each example's start given, [E] -> [E, L]."""
        return self._ends(self.end.of_many(states), states, allowed, starts)

    def unanswerable(self, states: Tensor, start_scores: Tensor, starts: Tensor | None = None) -> Tensor:
        """How sure it is of no answer, [E]; NVIDIA's form learns that from the right starts, if they are given."""
        if starts is not None and self.form == "nvidia":
            start = at(states, starts)
        else:
            start = (start_scores.softmax(-1).to(states.dtype)[:, None] @ states).squeeze(1)
        return self.none.score(self.none.of_many(states[:, :1]), start).squeeze(-1)

    def beams(self, states: Tensor, allowed: Tensor, start_scores: Tensor, beam: int) -> dict[str, Tensor]:
        """The best starts, [E, K], and for each of them the best ends, [E, K, K], with their log-probabilities."""
        start_log, starts = best(start_scores, beam)
        first_half = self.end.of_many(states)
        ends = [best(self._ends(first_half, states, allowed, start), beam) for start in starts.unbind(1)]
        end_log, end_index = (torch.stack(column, 1) for column in zip(*ends, strict=True))
        return {"start_log_probs": start_log, "start_index": starts, "end_log_probs": end_log, "end_index": end_index}

    def _ends(self, first_half: Tensor, states: Tensor, allowed: Tensor, starts: Tensor) -> Tensor:
        return self.end.score(first_half, at(states, starts)).masked_fill(~allowed, NEVER)


def at(states: Tensor, positions: Tensor) -> Tensor:
    """The state of one token of each example, [E, L, D] and [E] -> [E, D]."""
    return states[torch.arange(len(positions), device=positions.device), positions]


def best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest log-probabilities of each row, and where; as many in every row, the unused at 0 with NEVER."""
    values, positions = scores.log_softmax(-1).topk(min(count, scores.shape[1]), -1)
    spare = (0, count - values.shape[1])
    return F.pad(values.clamp(min=NEVER), spare, value=NEVER), F.pad(positions, spare)

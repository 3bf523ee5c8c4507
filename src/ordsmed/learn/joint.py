"""The joint head for question answering: an answer's end is scored given its start; "no answer" has its own score.

    states [E, L, D] -> start [E, L] -> the best k starts -> their states -> end given each [E, L] -> the best k ends
    the start's state and the first token's state -> no-answer logit [E]

In training, ends are scored given the right start. E examples of L tokens; a token that may not be chosen scores NEVER.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NEVER = -1e30  # finite: scores are summed over ranks
GOOGLE_WIDTH = 512  # of the dense layers in Google's form

Form = Literal["nvidia", "google"]


class Pair(nn.Module):
    """Scores of many states, each paired with one other state: dense over both, activation, norm, dense to one number.

    The first dense layer is computed as the sum of its two halves, so the two states are never concatenated.
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

    def many_half(self, many: Tensor) -> Tensor:
        """Apply the half of the dense layer that reads the many states, [E, L, D] -> [E, L, H]."""
        return F.linear(many, self._halves()[0])

    def score(self, first_half: Tensor, single: Tensor) -> Tensor:
        """Return the scores [E, L] of `first_half`, the result of `many_half`, paired with `single` [E, D]."""
        both = first_half + F.linear(single, self._halves()[1], self.dense.bias)[:, None]
        scores: Tensor = self.out(self.norm(self.activation(both)))
        return scores.squeeze(-1).float()

    def _halves(self) -> tuple[Tensor, Tensor]:
        first, second = self.dense.weight.chunk(2, 1)
        return (first, second) if self.many_first else (second, first)


class JointHead(nn.Module):
    """Scores of start tokens, of end tokens given a start, and, with `refuse`, of having no answer."""

    def __init__(self, width: int, form: Form, *, refuse: bool) -> None:
        super().__init__()
        self.form = form
        nvidia = form == "nvidia"
        inner = width if nvidia else GOOGLE_WIDTH
        activation = nn.Tanh() if nvidia else nn.GELU()
        self.start = nn.Linear(width, 1)
        self.end = Pair(width, inner, activation, norm=nvidia, bias=True, many_first=nvidia)
        self.none = Pair(width, inner, activation, norm=False, bias=not nvidia, many_first=not nvidia)
        if not refuse:
            del self.none

    def starts(self, states: Tensor, allowed: Tensor) -> Tensor:
        scores: Tensor = self.start(states).squeeze(-1)
        return scores.float().masked_fill(~allowed, NEVER)

    def ends(self, states: Tensor, allowed: Tensor, starts: Tensor) -> Tensor:
        """Return the end score of each token given each example's start, [E] -> [E, L]."""
        return self._ends(self.end.many_half(states), states, allowed, starts)

    def unanswerable(self, states: Tensor, start_scores: Tensor, starts: Tensor | None = None) -> Tensor:
        """Return the logit [E] that an example has no answer.

        In NVIDIA's form it is computed from the state of the right start, if `starts` are known. Otherwise it is
        computed from the mean of all states, weighted by the probabilities of the starts.
        """
        if starts is not None and self.form == "nvidia":
            start = at(states, starts)
        else:
            start = (start_scores.softmax(-1).to(states.dtype)[:, None] @ states).squeeze(1)
        return self.none.score(self.none.many_half(states[:, :1]), start).squeeze(-1)

    def beams(self, states: Tensor, allowed: Tensor, start_scores: Tensor, beam: int) -> dict[str, Tensor]:
        """Return the best starts [E, K], for each of them the best ends [E, K, K], and their log-probabilities."""
        start_log, starts = best(start_scores, beam)
        first_half = self.end.many_half(states)
        ends = [best(self._ends(first_half, states, allowed, start), beam) for start in starts.unbind(1)]
        end_log, end_index = (torch.stack(column, 1) for column in zip(*ends, strict=True))
        return {"start_log_probs": start_log, "start_index": starts, "end_log_probs": end_log, "end_index": end_index}

    def _ends(self, first_half: Tensor, states: Tensor, allowed: Tensor, starts: Tensor) -> Tensor:
        return self.end.score(first_half, at(states, starts)).masked_fill(~allowed, NEVER)


def at(states: Tensor, positions: Tensor) -> Tensor:
    """Return the state of one token of each example, [E, L, D] and [E] -> [E, D]."""
    return states[torch.arange(len(positions), device=positions.device), positions]


def best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest log-probabilities of each row and their positions; unused entries are NEVER at 0."""
    values, positions = scores.log_softmax(-1).topk(min(count, scores.shape[1]), -1)
    spare = (0, count - values.shape[1])
    return F.pad(values.clamp(min=NEVER), spare, value=NEVER), F.pad(positions, spare)

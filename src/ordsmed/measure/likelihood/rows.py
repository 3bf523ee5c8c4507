"""Batches for a Transformer that scores tokens: rows are grouped without padding, and only scored positions use the
head.

    rows of 9 9 9 9 12 12 31 tokens  ->  [9 9 9 9] [12 12] as they are, [31 ...] packed: several texts in a row
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Packing
from ordsmed.data.windows import run
from ordsmed.measure.likelihood.items import Ints

TOKENS = {"cpu": 2_048, "cuda": 65_536}  # per batch
SMALLEST_SHARE = 4  # rows of one length get their own batch if they fill at least 1/4 of it


@dataclass(frozen=True)
class ScoredRows:
    """Concatenated input rows and the positions to score, row by row."""

    starts: Ints  # [R + 1]
    ids: Ints
    position_starts: Ints  # [R + 1]  index of each row's first scored position
    positions: Ints  # [P]  positions within their row
    targets: Ints  # [P]  tokens to score
    read: Ints | None = None  # [P]  equal numbers for equal contexts; None: all contexts differ

    @staticmethod
    def joined(ids: list[Ints], positions: list[Ints], targets: list[Ints]) -> ScoredRows:
        starts, position_starts = (np.cumsum([0, *map(len, parts)]) for parts in (ids, positions))
        return ScoredRows(starts, _end_to_end(ids), position_starts, _end_to_end(positions), _end_to_end(targets))


def _end_to_end(parts: list[Ints]) -> Ints:
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.zeros(0, np.int64)


def score_rows(
    rows: ScoredRows,
    device: torch.device,
    pad: int,
    states: Callable[[Batch, Tensor], Tensor],
    answer: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Any, Any]:
    """Return the log-probability of every scored position, and whether its token is the likeliest: two arrays [P].

    `states` computes the hidden states at given positions of a batch. `answer` scores targets from states; its last
    argument is the number of the state for each target, because positions with the same context share one state.
    """
    features = Features(rows.starts, rows.ids.astype(np.int32))
    first, state_of_target = (
        np.unique(rows.read, return_index=True, return_inverse=True)[1:]
        if rows.read is not None
        else (np.arange(len(rows.positions)), np.arange(len(rows.positions)))
    )
    slots = np.full(len(rows.positions), -1)
    slots[first] = np.arange(len(first))
    collected: Tensor | None = None
    for chosen in group_rows(features.sizes, TOKENS.get(device.type, TOKENS["cpu"])):
        counts = rows.position_starts[chosen + 1] - rows.position_starts[chosen]
        entries = np.repeat(rows.position_starts[chosen], counts) + run(counts)
        first_reads = slots[entries] >= 0
        even = len(set(features.sizes[chosen].tolist())) == 1
        batch = Packing(pad, alone=even).batch(features, chosen, chosen)
        assert batch.spans is not None
        at = (np.repeat(batch.spans[:, 0].numpy(), counts) + rows.positions[entries])[first_reads]
        if not len(at):
            continue
        result = states(batch.to(device), torch.from_numpy(at).to(device))
        collected = result.new_empty(len(first), result.shape[1]) if collected is None else collected
        collected[torch.from_numpy(slots[entries][first_reads]).to(device)] = result
    if collected is None:
        return np.zeros(0), np.zeros(0, bool)
    logs, best = answer(
        collected, torch.from_numpy(rows.targets).to(device), torch.from_numpy(state_of_target).to(device)
    )
    return logs.double().cpu().numpy(), best.cpu().numpy()


def group_rows(sizes: Ints, tokens: int) -> list[Ints]:
    """Group rows into batches of at most `tokens` tokens: many rows of one length alone, the others mixed."""
    order = np.argsort(-sizes, kind="stable")
    ends = [*(np.flatnonzero(np.diff(sizes[order])) + 1).tolist(), len(order)] if len(order) else []
    result: list[Ints] = []
    group: list[int] = []
    begin = 0

    def finish_group() -> None:
        if group:
            result.append(np.asarray(group, np.int64))
            group.clear()

    for end in ends:
        size = max(int(sizes[order[begin]]), 1)
        count = max(1, tokens // size)
        if (end - begin) * size * SMALLEST_SHARE >= tokens:
            result += [order[at : min(at + count, end)] for at in range(begin, end, count)]
        else:
            for row in order[begin:end].tolist():
                if group and (len(group) + 1) * int(sizes[group[0]]) > tokens:
                    finish_group()
                group.append(row)
        begin = end
    finish_group()
    return result

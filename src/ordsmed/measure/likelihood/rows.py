"""AskedRows: what a Transformer is given and asked, laid into batches without padding, and its answers.

    rows of 9 9 9 9 12 12 31 tokens  ->  [9 9 9 9] [12 12] as they are, [31 ...] packed: several texts in a row

Only states that are asked about go through the head.
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

TOKENS = {"cpu": 2_048, "cuda": 65_536}  # of a batch
WORTH = 4  # rows of one length that fill such a part of a batch are one by themselves


@dataclass(frozen=True)
class AskedRows:
    """AskedRows laid end to end, and the places that are asked about, row by row."""

    starts: Ints  # [R + 1]
    ids: Ints
    asked_starts: Ints  # [R + 1]  where each row's places begin among all
    positions: Ints  # [P]  in their row
    targets: Ints  # [P]  what stands there
    read: Ints | None = None  # [P]  equal where their states have read the same; None: all are different

    @staticmethod
    def joined(ids: list[Ints], positions: list[Ints], targets: list[Ints]) -> AskedRows:
        """From one array a row of each."""
        starts, asked_starts = (np.cumsum([0, *map(len, parts)]) for parts in (ids, positions))
        return AskedRows(starts, _end_to_end(ids), asked_starts, _end_to_end(positions), _end_to_end(targets))


def _end_to_end(parts: list[Ints]) -> Ints:
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.zeros(0, np.int64)


def answered(
    rows: AskedRows,
    device: torch.device,
    pad: int,
    states: Callable[[Batch, Tensor], Tensor],
    answer: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Any, Any]:
    """Logs and best of every place, [P].

    `states` tells those at some places of a batch, laid end to end; `answer` what they say of targets, of which each
    asks the state with this number: those that have read the same are asked once.
    """
    features = Features(rows.starts, rows.ids.astype(np.int32))
    first, which = (
        np.unique(rows.read, return_index=True, return_inverse=True)[1:]
        if rows.read is not None
        else (np.arange(len(rows.positions)), np.arange(len(rows.positions)))
    )
    wanted = np.full(len(rows.positions), -1)
    wanted[first] = np.arange(len(first))
    kept: Tensor | None = None
    for chosen in alike(features.sizes, TOKENS.get(device.type, TOKENS["cpu"])):
        counts = rows.asked_starts[chosen + 1] - rows.asked_starts[chosen]
        entries = np.repeat(rows.asked_starts[chosen], counts) + run(counts)
        first_reads = wanted[entries] >= 0
        even = len(set(features.sizes[chosen].tolist())) == 1
        batch = Packing(pad, alone=even).batch(features, chosen, chosen)
        assert batch.spans is not None
        at = (np.repeat(batch.spans[:, 0].numpy(), counts) + rows.positions[entries])[first_reads]
        if not len(at):
            continue
        result = states(batch.to(device), torch.from_numpy(at).to(device))
        kept = result.new_empty(len(first), result.shape[1]) if kept is None else kept
        kept[torch.from_numpy(wanted[entries][first_reads]).to(device)] = result
    if kept is None:
        return np.zeros(0), np.zeros(0, bool)
    logs, best = answer(kept, torch.from_numpy(rows.targets).to(device), torch.from_numpy(which).to(device))
    return logs.double().cpu().numpy(), best.cpu().numpy()


def alike(sizes: Ints, tokens: int) -> list[Ints]:
    """All rows in batches of at most so many tokens: those of one length alone where they are many, others together."""
    order = np.argsort(-sizes, kind="stable")
    ends = [*(np.flatnonzero(np.diff(sizes[order])) + 1).tolist(), len(order)] if len(order) else []
    result: list[Ints] = []
    group: list[int] = []
    begin = 0

    def let_go() -> None:
        if group:
            result.append(np.asarray(group, np.int64))
            group.clear()

    for end in ends:
        size = max(int(sizes[order[begin]]), 1)
        count = max(1, tokens // size)
        if (end - begin) * size * WORTH >= tokens:
            result += [order[at : min(at + count, end)] for at in range(begin, end, count)]
        else:
            for row in order[begin:end].tolist():
                if group and (len(group) + 1) * int(sizes[group[0]]) > tokens:
                    let_go()
                group.append(row)
        begin = end
    let_go()
    return result

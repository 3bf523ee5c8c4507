"""A pass over all micro-batches before the training pass, for losses that compare the examples of a step.

    micro-batches -> views, without a gradient -> those of all processes -> compare -> train on each micro-batch

The result does not depend on how a step is split: memory holds the activations of one micro-batch, and the negatives of
all. Gao et al. (2021) call it a gradient cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base.ranks import Ranks
from ordsmed.data.batch import Batch
from ordsmed.learn.objective import Comparing
from ordsmed.train.job import Job
from ordsmed.train.mesh.precision import autocast

Views = dict[str, Tensor]


def compare_examples(job: Job, batches: Sequence[Batch], begin: Callable[[int], None]) -> None:
    """Let the objective compare all examples of the step; `begin` seeds the dropout of a micro-batch.

    A step of one micro-batch in one process already has all examples, and needs no second forward pass.
    """
    objective, ranks = job.objective, job.ranks
    if not isinstance(objective, Comparing) or (len(batches) == 1 and ranks.data_world == 1):
        return
    views: list[Views] = []
    with torch.no_grad():
        for micro, batch in enumerate(batches):
            begin(micro)
            with autocast(job.recipe.layout, ranks.device):
                views.append(objective.view(batch.to(ranks.device)))
    ends = np.cumsum([0, *(_rows(view) for view in views)]).tolist()
    whole, before = gather(_concatenate(views), ranks)
    objective.compare(whole, [slice(before + a, before + b) for a, b in pairwise(ends)])


def gather(view: Views, ranks: Ranks) -> tuple[Views, int]:
    """Return the views of all data ranks, concatenated, and the number of rows before those of this rank."""
    if ranks.data_world == 1:
        return view, 0
    sizes = torch.zeros(ranks.data_world, dtype=torch.int64, device=ranks.device)
    sizes[ranks.data_rank] = _rows(view)
    counts = ranks.total(sizes).tolist()
    wide = torch.tensor([tensor.shape[1] if tensor.ndim > 1 else 0 for tensor in view.values()], device=ranks.device)
    torch.distributed.all_reduce(wide, torch.distributed.ReduceOp.MAX, group=ranks.data_group)
    whole = {}
    for (name, tensor), width in zip(view.items(), wide.tolist(), strict=True):
        mine = _padded(tensor, max(counts), width)
        parts = [torch.empty_like(mine) for _ in counts]
        torch.distributed.all_gather(parts, mine, group=ranks.data_group)
        whole[name] = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return whole, sum(counts[: ranks.data_rank])


def _concatenate(views: Sequence[Views]) -> Views:
    whole = {}
    for name, first in views[0].items():
        tensors = [view[name] for view in views]
        width = max(tensor.shape[1] for tensor in tensors) if first.ndim > 1 else 0
        whole[name] = torch.cat([_padded(tensor, len(tensor), width) for tensor in tensors])
    return whole


def _padded(tensor: Tensor, rows: int, width: int) -> Tensor:
    pad = [0, 0] * (tensor.ndim - 2) + ([0, width - tensor.shape[1]] if tensor.ndim > 1 else [])
    return F.pad(tensor, [*pad, 0, rows - len(tensor)]).contiguous()


def _rows(view: Views) -> int:
    return len(next(iter(view.values())))

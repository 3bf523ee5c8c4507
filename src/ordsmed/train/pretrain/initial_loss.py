"""Comparison before the first step: validation loss with a transplanted vocabulary, and with random word tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ordsmed.base.say import say
from ordsmed.nn.model import own_tensors
from ordsmed.nn.shards import box_of, local
from ordsmed.train.job import Job
from ordsmed.train.mesh import parallel
from ordsmed.weights.transplant import Beginning


def compare_losses(job: Job, start: Beginning) -> dict[str, Any]:
    """Return both losses and the counts of piece kinds, for the run's status. The job is not changed."""
    assert start.descent is not None
    facts: dict[str, Any] = start.descent.counts()
    if not start.fresh or not (moved := _loss(job)):
        return facts
    tensors = own_tensors(job.objective)
    kept = {name: local(tensors[name]).detach().clone() for name in start.fresh}
    with torch.no_grad():
        _copy_tables(tensors, start.fresh)
        parallel.free_memory(job.objective)
        fresh = _loss(job)
        for name, tensor in kept.items():
            local(tensors[name]).copy_(tensor)
        parallel.free_memory(job.objective)
    say(f"validation loss {moved:.4f} with the transplanted vocabulary, {fresh:.4f} with random word tables")
    return {**facts, "validation": moved, "validation_of_random": fresh}


def _loss(job: Job) -> float:
    job.carry(0)  # the loop resets it again
    return job.data.validate(job, 0).get("validation", 0.0)


def _copy_tables(tensors: Mapping[str, Any], tables: Mapping[str, Tensor]) -> None:
    """Copy full tables into this rank's parts; padding rows at the end are not changed."""
    for name, table in tables.items():
        box = box_of(tensors[name])
        rows = max(min(box.start[0] + box.size[0], len(table)) - box.start[0], 0)
        part = table[box.start[0] : box.start[0] + rows]
        for dimension in range(1, part.ndim):
            part = part.narrow(dimension, box.start[dimension], box.size[dimension])
        local(tensors[name])[:rows].copy_(part)

"""Replicas: sum gradients over the ranks that hold copies, in fixed buckets, during the backward pass.

Buckets are the parameters in reverse order, split by size, and never change. torch's DDP reorders its buckets after the
first step. With three ranks or more, the first step after a restart would add in another order and give other bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from ordsmed.nn.shards import LocalParameter
from ordsmed.train.mesh.precision import DTYPES

BUCKET_BYTES = 25 << 20


class Bucket:
    def __init__(self, parts: Sequence[LocalParameter], group: ProcessGroup, dtype: torch.dtype) -> None:
        self.parts, self.group, self.dtype = parts, group, dtype
        self.ready = 0
        self.flat: Tensor | None = None
        self.work: torch.distributed.Work | None = None

    @property
    def complete(self) -> bool:
        """Whether all gradients are ready. Frozen weights have none; zeros are summed for them."""
        return self.ready >= sum(part.local.requires_grad for part in self.parts)

    def launch(self) -> None:
        grads = [_grad(part.local).flatten() for part in self.parts]
        self.flat = torch.cat(grads).to(self.dtype)
        self.work = torch.distributed.all_reduce(self.flat, group=self.group, async_op=True)

    def sum_gradients(self) -> None:
        assert self.flat is not None
        assert self.work is not None
        self.work.wait()
        sums = self.flat.split([part.local.numel() for part in self.parts])
        torch._foreach_copy_(
            [_grad(part.local) for part in self.parts],
            [s.view_as(part.local) for s, part in zip(sums, self.parts, strict=True)],
        )
        self.flat, self.work, self.ready = None, None, 0


class Replicas:
    """Sums gradients over a group of ranks that hold copies of the same weights."""

    def __init__(self, parts: Sequence[LocalParameter], group: ProcessGroup, *, overlap: bool, reduce: str) -> None:
        self.buckets: list[Bucket] = []
        self.in_last_micro_batch, self.launched = False, 0
        for some in _cut(list(reversed(parts))):
            self.buckets.append(Bucket(some, group, DTYPES[reduce]))
        if overlap:
            for bucket in self.buckets:
                for part in bucket.parts:
                    part.local.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._on_gradient(bucket))

    def before_micro_batch(self, last: bool) -> None:
        self.in_last_micro_batch = last

    def sum_gradients(self) -> None:
        """Launch the remaining buckets, and wait for all."""
        self.in_last_micro_batch = False
        for bucket in self.buckets[self.launched :]:
            bucket.launch()
        for bucket in self.buckets:
            bucket.sum_gradients()
        self.launched = 0

    def _on_gradient(self, bucket: Bucket) -> None:
        """Count a complete gradient, and launch complete buckets in a fixed order, equal on every rank."""
        if not self.in_last_micro_batch:
            return
        bucket.ready += 1
        while self.launched < len(self.buckets):
            following = self.buckets[self.launched]
            if not following.complete:
                return
            following.launch()
            self.launched += 1


def _grad(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _cut(parts: list[LocalParameter]) -> list[list[LocalParameter]]:
    """Split parameters into buckets of about equal size, each of one dtype."""
    buckets: list[list[LocalParameter]] = []
    size = 0
    for part in parts:
        if not buckets or size >= BUCKET_BYTES or part.local.dtype != buckets[-1][-1].local.dtype:
            buckets.append([])
            size = 0
        buckets[-1].append(part)
        size += part.local.numel() * part.local.element_size()
    return buckets

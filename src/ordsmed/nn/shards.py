"""Shards: the box of a full tensor that is on this rank, and sums over the ranks with the other boxes.

A parameter is a plain tensor (every rank has all of it) or torch's DTensor (a rank has a box of it, by its placements).
Optimizers, clipping, weight averages and checkpoints use `LocalParameter` for both.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Box:
    shape: tuple[int, ...]  # of the full tensor
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class LocalParameter:
    """A parameter of the network and the part of it on this rank."""

    name: str
    whole: Tensor  # plain, or a DTensor
    local: Tensor  # shares the network's memory
    rows: int | None = None  # rows without padding, if padding rows follow

    @staticmethod
    def of(name: str, parameter: Tensor, rows: int | None = None) -> LocalParameter:
        if not is_sharded(parameter):
            return LocalParameter(name, parameter, parameter, rows)
        return LocalParameter(name, parameter, local(parameter).detach().requires_grad_(parameter.requires_grad), rows)

    @property
    def size(self) -> int:
        count = self.whole.numel()
        return count if self.rows is None else count // len(self.whole) * self.rows

    @functools.cached_property
    def groups(self) -> tuple[Any, ...]:
        return groups_of(self.whole)

    @property
    def split(self) -> bool:
        return bool(self.groups)

    def hand_over_gradient(self) -> None:
        """Set the gradient of the local tensor from the network's, redistributed to the placements of the parameter.

        It is made contiguous, because an uneven share of columns is a strided view, and torch's fused CPU optimizers
        ignore strides.
        """
        if self.whole is not self.local:
            grad: Any = self.whole.grad
            placed = None if grad is None else grad.redistribute(placements=self.whole.placements)  # type: ignore[attr-defined]
            self.local.grad = None if placed is None else local(placed).contiguous()


def is_sharded(tensor: Tensor) -> bool:
    """Return whether `tensor` is a DTensor, without importing torch.distributed."""
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def groups_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return the process groups over which a tensor is split; () if every rank has all of it."""
    if not is_sharded(tensor):
        return ()
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    placements = tensor.placements  # type: ignore[attr-defined]
    return tuple(
        mesh.get_group(i) for i, position in enumerate(placements) if not position.is_replicate() and mesh.size(i) > 1
    )


def box_of(tensor: Tensor) -> Box:
    shape = tuple(tensor.shape)
    if not is_sharded(tensor):
        return Box(shape, (0,) * len(shape), shape)
    chunk = tensor.__create_chunk_list__()[0]  # type: ignore[attr-defined]
    return Box(shape, tuple(chunk.offsets), tuple(chunk.sizes))


def sums(values: Tensor, parts: Sequence[LocalParameter]) -> Tensor:
    """Return `values` [n], one per parameter, each summed over the ranks of its parts, by one all-reduce per group."""
    by_group: dict[Any, list[int]] = {}
    for index, part in enumerate(parts):
        for group in part.groups:
            by_group.setdefault(group, []).append(index)
    if by_group:
        values = values.clone()
    for group, indices in by_group.items():
        reduced = values[indices]
        torch.distributed.all_reduce(reduced, group=group)
        values[indices] = reduced
    return values


def total_norm(parts: Sequence[LocalParameter]) -> Tensor:
    """Return the norm of all gradients together; a replicated parameter counts once."""
    trained = [part for part in parts if part.local.grad is not None]
    if not trained:
        return torch.zeros(())
    norms = torch.stack(torch._foreach_norm([part.local.grad for part in trained if part.local.grad is not None]))
    if not any(part.split for part in trained):
        whole: Tensor = norms.norm()
        return whole
    return sums(norms.square(), trained).sum().sqrt()


def gathered(part: LocalParameter, tensor: Tensor) -> Tensor:
    """Return the full tensor of which `tensor` is this rank's part, distributed as the parameter is."""
    if not part.split:
        return tensor
    from torch.distributed.tensor import DTensor

    like: Any = part.whole
    sharded = DTensor.from_local(
        tensor, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return sharded.full_tensor()


def cut(part: LocalParameter, whole: Tensor) -> Tensor:
    """Return this rank's part of a full tensor, distributed as the parameter is."""
    if not part.split:
        return whole
    box = box_of(part.whole)
    for dimension, (start, size) in enumerate(zip(box.start, box.size, strict=True)):
        whole = whole.narrow(dimension, start, size)
    return whole

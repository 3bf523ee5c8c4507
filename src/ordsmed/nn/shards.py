"""Shards: which box of a whole tensor this rank holds, and sums over the ranks that hold the other boxes.

A tensor of the networks is plain (every rank holds it whole) or torch's DTensor (a box of it, by its placements).
Optimizers, clipping, averages and checkpoints work on `Part`s and need not know which.
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
    """Where a rank's part lies in the whole tensor."""

    shape: tuple[int, ...]  # of the whole
    start: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class LocalParameter:
    """A parameter as the network has it, and what of it lies on this rank."""

    name: str
    whole: Tensor  # plain, or a DTensor
    local: Tensor  # shares its memory: what is written here, the network sees
    rows: int | None = None  # those that count, where rows of padding stand at its end

    @staticmethod
    def of(name: str, parameter: Tensor, rows: int | None = None) -> LocalParameter:
        """The part of a parameter; a plain one is its own."""
        if not is_sharded(parameter):
            return LocalParameter(name, parameter, parameter, rows)
        return LocalParameter(name, parameter, local(parameter).detach().requires_grad_(parameter.requires_grad), rows)

    @property
    def size(self) -> int:
        """How many numbers the whole has, padding left out."""
        count = self.whole.numel()
        return count if self.rows is None else count // len(self.whole) * self.rows

    @functools.cached_property
    def groups(self) -> tuple[Any, ...]:
        """The process groups over which its boxes are spread."""
        return groups_of(self.whole)

    @property
    def split(self) -> bool:
        """Do other ranks hold other boxes of it?"""
        return bool(self.groups)

    def hand_over_gradient(self) -> None:
        """Let the local tensor have the network's gradient, placed as the parameter is.

        In one piece: an uneven share of columns comes as a view with gaps, and torch's fused kernels on a CPU read on
        from where it begins.
        """
        if self.whole is not self.local:
            grad: Any = self.whole.grad
            placed = None if grad is None else grad.redistribute(placements=self.whole.placements)  # type: ignore[attr-defined]
            self.local.grad = None if placed is None else local(placed).contiguous()


def is_sharded(tensor: Tensor) -> bool:
    """Is it a DTensor? Asked without importing torch.distributed where nobody has."""
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """What of a tensor lies on this rank."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def groups_of(tensor: Tensor) -> tuple[Any, ...]:
    """The process groups over which its boxes are spread; none where every rank holds the whole."""
    if not is_sharded(tensor):
        return ()
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    placements = tensor.placements  # type: ignore[attr-defined]
    return tuple(
        mesh.get_group(i) for i, place in enumerate(placements) if not place.is_replicate() and mesh.size(i) > 1
    )


def box_of(tensor: Tensor) -> Box:
    """Where this rank's part of a tensor lies."""
    shape = tuple(tensor.shape)
    if not is_sharded(tensor):
        return Box(shape, (0,) * len(shape), shape)
    chunk = tensor.__create_chunk_list__()[0]  # type: ignore[attr-defined]
    return Box(shape, tuple(chunk.offsets), tuple(chunk.sizes))


def sums(values: Tensor, parts: Sequence[LocalParameter]) -> Tensor:
    """Numbers of parts, [n], summed each over the ranks that hold the other boxes; one all-reduce a process group."""
    by_group: dict[Any, list[int]] = {}
    for index, part in enumerate(parts):
        for group in part.groups:
            by_group.setdefault(group, []).append(index)
    if by_group:
        values = values.clone()
    for group, indices in by_group.items():
        some = values[indices]
        torch.distributed.all_reduce(some, group=group)
        values[indices] = some
    return values


def total_norm(parts: Sequence[LocalParameter]) -> Tensor:
    """The common norm of the gradients of parts; what every rank holds counts once."""
    learned = [part for part in parts if part.local.grad is not None]
    if not learned:
        return torch.zeros(())
    norms = torch.stack(torch._foreach_norm([part.local.grad for part in learned if part.local.grad is not None]))
    if not any(part.split for part in learned):
        whole: Tensor = norms.norm()
        return whole
    return sums(norms.square(), learned).sum().sqrt()


def gathered(part: LocalParameter, tensor: Tensor) -> Tensor:
    """The whole of a tensor whose boxes lie as the part's do."""
    if not part.split:
        return tensor
    from torch.distributed.tensor import DTensor

    like: Any = part.whole
    sharded = DTensor.from_local(
        tensor, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return sharded.full_tensor()


def cut(part: LocalParameter, whole: Tensor) -> Tensor:
    """This rank's box of a whole tensor."""
    if not part.split:
        return whole
    box = box_of(part.whole)
    for dimension, (start, size) in enumerate(zip(box.start, box.size, strict=True)):
        whole = whole.narrow(dimension, start, size)
    return whole

"""Boxes on disk: tensors in one safetensors file or spread over several, each file with boxes of the whole tensors.

    model-00001-of-00002.safetensors   weight [0:4, :]     read back as any other box, on any number of ranks
    model-00002-of-00002.safetensors   weight [4:8, :]

Where a box lies stands in the file's header: {"boxes": {"weight": [[8, 16], [4, 0]]}} (shape of the whole, start).
A file without that holds whole tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordsmed.base import snapshots
from ordsmed.base.errors import DataError
from ordsmed.nn.shards import Box
from ordsmed.weights import weights

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """One box in one file."""

    file: Path
    box: Box


def write(path: Path, tensors: Mapping[str, Tensor], boxes: Mapping[str, Box]) -> None:
    """Write this rank's boxes."""
    header = {name: [list(boxes[name].shape), list(boxes[name].start)] for name in tensors}
    spread = any(boxes[name].shape != tuple(tensor.shape) for name, tensor in tensors.items())
    weights.write(path, tensors, **({"boxes": json.dumps(header)} if spread else {}))


class Boxes:
    """All tensors of one kind in a snapshot: what there is, read box by box."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.opened = {path: _opened(path) for path in sorted(folder.glob(f"{kind}*.safetensors"))}
        self.stored: dict[str, list[Stored]] = {}
        for path, file in self.opened.items():
            header = _header(path, file)
            for name in file.keys():  # noqa: SIM118 (safetensors' file is no mapping)
                size = tuple(file.get_slice(name).get_shape())
                shape, start = (tuple(x) for x in header.get(name, [size, (0,) * len(size)]))
                self.stored.setdefault(name, []).append(Stored(path, Box(shape, start, size)))
        if not self.opened:  # of moments there may be none yet
            raise DataError(folder, f"holds no {kind}", f"{kind}.safetensors, whole or in parts")

    def shape(self, name: str) -> tuple[int, ...]:
        return self.stored[name][0].box.shape

    def read(self, name: str, box: Box | None = None, *, over: Tensor | None = None) -> Tensor:
        """A tensor, or a box of it; what lies outside the whole (rows of padding) is 0, or what stands in `over`."""
        shape = self.shape(name)
        wanted = box or Box(shape, (0,) * len(shape), shape)
        first = self.opened[self.stored[name][0].file]
        if not shape:
            tensor: Tensor = first.get_tensor(name)
            return tensor
        dtype, filled = DTYPES[first.get_slice(name).get_dtype()], 0
        out = torch.zeros(wanted.size, dtype=dtype) if over is None else over.detach().to("cpu", dtype, copy=True)
        for stored in self.stored[name]:
            if overlap := _overlap(stored.box, wanted):
                source, target = overlap
                out[target] = self.opened[stored.file].get_slice(name)[source]
                filled += out[target].numel()
        if filled != _inside(wanted, shape):
            raise DataError(self.folder, f"{name} is not whole: {filled} numbers of {_inside(wanted, shape)}")
        return out

    def all(self) -> dict[str, Tensor]:
        return {name: self.read(name) for name in self.stored}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The networks' tensors of a snapshot, without the states that its run carries."""
    return {name: tensor for name, tensor in read_whole(folder).items() if not name.startswith("state/")}


def read_whole(folder: Path, kind: str = snapshots.KINDS[0]) -> dict[str, Tensor]:
    """Every tensor of a kind in a snapshot."""
    return Boxes(folder, kind).all()


def _header(path: Path, file: Any) -> dict[str, tuple[list[int], list[int]]]:
    """Where the boxes of a file lie, by its header."""
    try:
        header = json.loads((file.metadata() or {}).get("boxes", "{}"))
        return {name: ([int(n) for n in shape], [int(n) for n in start]) for name, (shape, start) in header.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(path, f"boxes: {error}", "of each tensor the whole's shape and where the box lies") from None


def _opened(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise DataError(path, f"cannot be read: {error}", "a whole safetensors file") from None


def _overlap(stored: Box, wanted: Box) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """What two boxes share, as seen from each; None: nothing."""
    source, target = [], []
    for a, n, b, m in zip(stored.start, stored.size, wanted.start, wanted.size, strict=True):
        low, high = max(a, b), min(a + n, b + m)
        if low >= high:
            return None
        source.append(slice(low - a, high - a))
        target.append(slice(low - b, high - b))
    return tuple(source), tuple(target)


def _inside(wanted: Box, shape: tuple[int, ...]) -> int:
    """How many numbers of a box lie in the whole."""
    count = 1
    for start, size, length in zip(wanted.start, wanted.size, shape, strict=True):
        count *= max(min(start + size, length) - start, 0)
    return count

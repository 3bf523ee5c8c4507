"""Tensors saved in parts: one safetensors file or several, each with complete tensors or slices of them.

Each rank writes a file with its slices ("boxes"). Any other slices can be read back, on any number of ranks:

    model-00001-of-00002.safetensors   weight [0:4, :]
    model-00002-of-00002.safetensors   weight [4:8, :]

The header of a file has the full shape and the start of each slice: {"boxes": {"weight": [[8, 16], [4, 0]]}}. A file
without this entry holds complete tensors. `index.json` repeats the headers of all files of a snapshot, so that a
process opens only the files it reads from. Snapshots of one process and of older versions have no index:

    {"model-00002-of-00002.safetensors": {"weight": ["F32", [8, 16], [4, 0], [4, 16]]}}    (type, shape, start, size)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ordsmed.base import files, snapshots
from ordsmed.base.errors import DataError
from ordsmed.nn.shards import Box
from ordsmed.weights import weights

if TYPE_CHECKING:
    from safetensors import safe_open

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

FileIndex = dict[str, tuple[str, list[int], list[int], list[int]]]  # type, full shape, start and size of each slice


@dataclass(frozen=True)
class Stored:
    file: Path
    box: Box
    dtype: str  # safetensors' name


def write(path: Path, tensors: Mapping[str, Tensor], boxes: Mapping[str, Box]) -> None:
    """Write the slices of this rank. If they are parts of tensors, the file's header says which parts."""
    header = {name: [list(boxes[name].shape), list(boxes[name].start)] for name in tensors}
    spread = any(boxes[name].shape != tuple(tensor.shape) for name, tensor in tensors.items())
    weights.write(path, tensors, **({"boxes": json.dumps(header)} if spread else {}))


def index_of(tensors: Mapping[str, Tensor], boxes: Mapping[str, Box]) -> FileIndex:
    """Return the entry of `index.json` for the file that `write` makes of these tensors."""
    types = {dtype: name for name, dtype in DTYPES.items()}
    return {
        name: (types[tensor.dtype], list(boxes[name].shape), list(boxes[name].start), list(tensor.shape))
        for name, tensor in tensors.items()
    }


class Boxes:
    """All tensors of one kind (weights or optimizer moments) in a snapshot, read slice by slice on demand."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.opened: dict[Path, safe_open] = {}
        self.stored: dict[str, list[Stored]] = {}
        for path, index in self._indices(kind):
            for name, (dtype, shape, start, size) in index.items():
                box = Box(tuple(shape), tuple(start), tuple(size))
                self.stored.setdefault(name, []).append(Stored(path, box, dtype))

    def _indices(self, kind: str) -> Iterator[tuple[Path, FileIndex]]:
        """Yield each file of the kind with its slices, from `index.json` or else from the headers of all files."""
        if (index := self.folder / snapshots.INDEX).is_file():
            names = sorted(files.read_table(index).items())
            indices = [(self.folder / name, entry) for name, entry in names if snapshots.kind_of(name) == kind]
        else:
            indices = [(path, self._head(path)) for path in sorted(self.folder.glob(f"{kind}*.safetensors"))]
        if not indices:  # for example, no moments were saved yet
            raise DataError(self.folder, f"has no {kind}", f"{kind}.safetensors, complete or in parts")
        yield from indices

    def _head(self, path: Path) -> FileIndex:
        file = self._file(path)
        header, index = _header(path, file), FileIndex()
        for name in file.keys():  # noqa: SIM118 (a safetensors file is not a mapping)
            part = file.get_slice(name)
            size = part.get_shape()
            index[name] = (part.get_dtype(), *header.get(name, (size, [0] * len(size))), size)
        return index

    def _file(self, path: Path) -> safe_open:
        if path not in self.opened:
            self.opened[path] = _open(path)
        return self.opened[path]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.stored[name][0].box.shape

    def dtype(self, name: str) -> torch.dtype:
        return DTYPES[self.stored[name][0].dtype]

    def read(self, name: str, box: Box | None = None, *, over: Tensor | None = None) -> Tensor:
        """Return a tensor, or the slice `box` of it.

        A slice may extend beyond the tensor (padding rows). Those numbers are 0, or are taken from `over`.
        """
        shape = self.shape(name)
        wanted = box or Box(shape, (0,) * len(shape), shape)
        if not shape:
            tensor: Tensor = self._file(self.stored[name][0].file).get_tensor(name)
            return tensor
        dtype, filled = self.dtype(name), 0
        out = torch.zeros(wanted.size, dtype=dtype) if over is None else over.detach().to("cpu", dtype, copy=True)
        for stored in self.stored[name]:
            if overlap := _overlap(stored.box, wanted):
                source, target = overlap
                out[target] = self._file(stored.file).get_slice(name)[source]
                filled += out[target].numel()
        if filled != _size_inside(wanted, shape):
            raise DataError(self.folder, f"{name} is incomplete: {filled} numbers of {_size_inside(wanted, shape)}")
        return out

    def all(self) -> dict[str, Tensor]:
        return {name: self.read(name) for name in self.stored}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the network tensors of a snapshot, without the saved state of the run (names in `state/`)."""
    return {name: tensor for name, tensor in read_whole(folder).items() if not name.startswith("state/")}


def read_whole(folder: Path, kind: str = snapshots.KINDS[0]) -> dict[str, Tensor]:
    return Boxes(folder, kind).all()


def _header(path: Path, file: Any) -> dict[str, tuple[list[int], list[int]]]:
    try:
        header = json.loads((file.metadata() or {}).get("boxes", "{}"))
        return {name: ([int(n) for n in shape], [int(n) for n in start]) for name, (shape, start) in header.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(path, f"boxes: {error}", "the full shape and the start of the slice for each tensor") from None


def _open(path: Path) -> safe_open:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise DataError(path, f"cannot be read: {error}", "a complete safetensors file") from None


def _overlap(stored: Box, wanted: Box) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Return the intersection of two boxes as slices into each of them; None if they do not overlap."""
    source, target = [], []
    for a, n, b, m in zip(stored.start, stored.size, wanted.start, wanted.size, strict=True):
        low, high = max(a, b), min(a + n, b + m)
        if low >= high:
            return None
        source.append(slice(low - a, high - a))
        target.append(slice(low - b, high - b))
    return tuple(source), tuple(target)


def _size_inside(wanted: Box, shape: tuple[int, ...]) -> int:
    count = 1
    for start, size, length in zip(wanted.start, wanted.size, shape, strict=True):
        count *= max(min(start + size, length) - start, 0)
    return count

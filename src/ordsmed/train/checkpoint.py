"""Checkpoints: complete or absent, verified by checksums when read; only the last few are kept.

checkpoints/step-000000500/
  model.safetensors       every tensor of the objective, once        (several ranks: model-00001-of-00004.safetensors)
  optimizer.safetensors   `<moment>/<parameter>`
  index.json              with several ranks: the tensors in each file, so that a rank opens only the files it reads
  state.json              step, phase, versions, checksums of the files: written last, then the folder is renamed

Each rank writes its part in a background thread. It reports that the part is complete by a small file next to it, so
background threads never communicate over the network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ordsmed.base import files, snapshots
from ordsmed.base.errors import DataError, OrdsmedError, RunError
from ordsmed.base.ranks import DIMENSIONS, Ranks
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.base.snapshots import KINDS, damage, file_of, latest, path_of, steps
from ordsmed.learn.objective import Objective
from ordsmed.nn.model import own_tensors
from ordsmed.nn.shards import Box, LocalParameter, box_of, is_sharded, local
from ordsmed.weights import boxes, weights

__all__ = [
    "KINDS",
    "CheckpointWriter",
    "best",
    "damage",
    "latest",
    "path_of",
    "restore",
    "restore_moments",
    "steps",
    "threads_kept",
]


WRITERS = 16  # ranks that share the writing of one copy, if the recipe does not say
MAX_PAUSE = 0.5  # longest pause in seconds between two checks for complete parts


@dataclass(frozen=True)
class TensorPiece:
    """The part of a tensor that this rank holds, and its position in the full tensor."""

    name: str
    tensor: Tensor
    box: Box
    split: frozenset[str] = frozenset()  # mesh dimensions over which it is split

    def share(self, number: int, writers: int, ranks: Ranks) -> tuple[frozenset[str], int, int]:
        """Return what decides which rank writes this tensor; `number` is its index in the checkpoint.

        These are the mesh dimensions that split the tensor, the number of its copies that write in turn, and the number
        of the copy that writes this one. Scalars are written by one copy, into one file, because every rank reads them.
        """
        sharing = min(_copies(self.split, ranks)[0], writers) if self.box.shape else 1
        return self.split, sharing, number % sharing


def _is_written(share: tuple[frozenset[str], int, int], ranks: Ranks) -> bool:
    """Return whether this rank writes a tensor with this `share`; writers are spread over copies, and so over nodes."""
    split, sharing, writer = share
    copies, copy = _copies(split, ranks)
    return copy == writer * (copies // sharing)


def threads_kept(folder: Path) -> int | None:
    """Return the CPU threads of the newest checkpoint, or else of the run's status; exact bits depend on them."""
    for step in reversed(steps(folder / "checkpoints")):
        with contextlib.suppress(DataError, KeyError, TypeError, ValueError):
            return int(files.read_json(path_of(folder / "checkpoints", step) / "state.json")["threads"])
    threads = Run(folder).status.get("threads")
    return threads if isinstance(threads, int) else None


class HostCopies:
    """Copies of tensors in CPU memory, pinned for GPU tensors and reused by the next checkpoint."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._pending: set[torch.device] = set()
        self._pins = True

    def copy(self, name: str, tensor: Tensor) -> Tensor:
        """Return a CPU copy of `tensor`. A copy from a GPU is complete only after `wait`."""
        source = tensor.detach()
        if source.device.type != "cuda" or (buffer := self._buffer(name, source)) is None:
            return source.to("cpu", copy=True).contiguous()
        self._pending.add(source.device)
        return buffer.copy_(source, non_blocking=True)

    def wait(self) -> None:
        for device in self._pending:
            torch.cuda.synchronize(device)
        self._pending.clear()

    def _buffer(self, name: str, like: Tensor) -> Tensor | None:
        kept = self._buffers.get(name)
        if kept is not None and (kept.shape, kept.dtype) == (like.shape, like.dtype):
            return kept
        try:
            if self._pins:
                self._buffers[name] = _pinned_buffer(like)
        except RuntimeError as error:  # more than the machine has or allows to lock
            say(f"checkpoints: cannot pin memory ({str(error).splitlines()[0][:100]}); the GPU waits for each tensor")
            self._pins = False
            self._buffers.clear()
        return self._buffers.get(name) if self._pins else None


def _pinned_buffer(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)


class CheckpointWriter:
    """Writes the checkpoints of a run, one at a time, from copies of the tensors that this rank writes."""

    def __init__(
        self,
        folder: Path,
        ranks: Ranks,
        keep: int,
        *,
        background: bool,
        token: str = "",
        revision: Callable[[int], bool] = lambda step: False,
        writers: int = 0,
    ) -> None:
        self.folder, self.ranks, self.keep, self.background = folder, ranks, keep, background
        self.writers = writers  # ranks that share the writing of one copy; 0: WRITERS
        self.revision = revision  # steps whose weights are kept for good
        self.token = token or str(os.getpid())  # equal on all ranks; differs from that of a run that was killed
        self.thread: threading.Thread | None = None
        self.error: OrdsmedError | None = None
        self.written, self.cancelled = threading.Event(), threading.Event()
        self.copies = HostCopies()
        self.writing: Sequence[int] = ()  # ranks that write a part

    @property
    def complaint(self) -> list[str] | None:
        """Why this rank could not write its part, as place, found, wanted, remedy; None if it could."""
        error = self.error
        return [error.place, error.found, error.wanted, error.remedy] if error else None

    def save(
        self,
        step: int,
        objective: Objective,
        optimizer: Optimizer,
        parts: list[LocalParameter],
        rows: dict[str, int],
        **facts: object,
    ) -> None:
        """Copy the tensors that this rank writes, then write them in the background or at once."""
        self.error = None
        self.cancelled.clear()
        self.written.clear()
        kinds, shares = {}, set[tuple[frozenset[str], int, int]]()
        pieces = _weights(objective, self.ranks, rows), _moments(optimizer, parts, self.ranks, rows)
        for kind, tensors_of_kind in zip(KINDS, pieces, strict=True):
            kinds[kind] = self._copy(tensors_of_kind, shares)
        self.writing = [rank for rank in range(self.ranks.world) if self._writes(rank, shares)]
        self.copies.wait()
        self.thread = threading.Thread(target=self._work, args=(step, kinds, facts), name="checkpoint", daemon=True)
        self.thread.start()
        if not self.background:
            self.wait_for_part()

    def wait_for_part(self) -> None:
        if self.thread is not None:
            self.written.wait()

    def outcome(self, *, give_up: bool) -> list[str] | None:
        """On the first rank, wait for all parts. Return None, or the failure as place, found, wanted, remedy."""
        if self.thread is None:
            return None
        if give_up:
            self.cancelled.set()
        self.thread.join()
        if self.error:  # no rank is writing any more
            snapshots.clean(self.folder)
        return self.complaint

    def reset(self) -> None:
        self.thread = self.error = None

    def _writes(self, rank: int, shares: Collection[tuple[frozenset[str], int, int]]) -> bool:
        ranks = dataclasses.replace(self.ranks, rank=rank)
        return not rank or any(_is_written(share, ranks) for share in shares)

    def _copy(
        self, pieces: Iterator[TensorPiece], shares: set[tuple[frozenset[str], int, int]]
    ) -> tuple[dict[str, Tensor], dict[str, Box]]:
        """Copy this rank's share of the tensors to the CPU, and add the share of each tensor to `shares`."""
        tensors, where = {}, {}
        for number, piece in enumerate(pieces):
            share = piece.share(number, self.writers or WRITERS, self.ranks)
            shares.add(share)
            if _is_written(share, self.ranks) and (piece.tensor.numel() or not piece.box.shape):
                tensors[piece.name] = self.copies.copy(piece.name, piece.tensor)
                where[piece.name] = piece.box
        return tensors, where

    def _work(
        self, step: int, kinds: dict[str, tuple[dict[str, Tensor], dict[str, Box]]], facts: dict[str, Any]
    ) -> None:
        path = path_of(self.folder, step)
        partial = self.folder / f".{path.name}.{self.token}.part"
        try:
            self._write(partial, kinds)
            kinds.clear()
            self.written.set()
            if self.ranks.first:
                self._complete(path, partial, step, facts)
        except Exception as caught:  # an error in a background thread must be reported
            error = caught if isinstance(caught, OrdsmedError) else RunError(path, f"cannot be written: {caught!r}")
            last = steps(self.folder)
            stands = f"the last complete one is of step {last[-1]}" if last else "no checkpoint is complete"
            self.error = RunError(error.place, f"{error.found} ({stands})", error.wanted, error.remedy)
            if self.ranks.world == 1:  # with several ranks, others may still be writing; the first rank cleans up later
                snapshots.clean(self.folder)
        finally:
            self.written.set()

    def _write(self, partial: Path, kinds: dict[str, tuple[dict[str, Tensor], dict[str, Box]]]) -> None:
        rank, world = self.ranks.rank, self.ranks.world
        sums, index = dict[str, str](), dict[str, boxes.FileIndex]()
        with files.survive_disk(partial):
            partial.mkdir(parents=True, exist_ok=True)
        for kind, (tensors, where) in kinds.items():
            if not tensors and not self.ranks.first:  # other ranks write the tensors that this rank holds
                continue
            name = file_of(kind, rank, world)
            boxes.write(partial / name, tensors, where)
            sums[name] = files.checksum(partial / name)
            index[name] = boxes.index_of(tensors, where)
        if rank in self.writing:
            files.write_json(partial / f"done-{rank}.json", [sums, index])

    def _complete(self, path: Path, partial: Path, step: int, facts: dict[str, Any]) -> None:
        sums, index = self._wait_for_parts(path, partial)
        if self.ranks.world > 1:
            files.write_json(partial / snapshots.INDEX, index)
            facts = {**facts, "index": files.checksum(partial / snapshots.INDEX)}
        files.write_json(partial / "state.json", {"step": step, **facts, "checksums": sums})
        with files.survive_disk(path):
            if path.exists():
                snapshots.remove(path)
            partial.rename(path)
            files.sync(self.folder)
            complete_steps = steps(self.folder)  # checkpoints of later steps were skipped as damaged, so delete them
            for old in [s for s in complete_steps if s > step] + [s for s in complete_steps if s <= step][: -self.keep]:
                if old < step and self.revision(old):
                    snapshots.strip(path_of(self.folder, old))
                else:
                    snapshots.remove(path_of(self.folder, old))

    def _wait_for_parts(self, path: Path, partial: Path) -> tuple[dict[str, str], dict[str, boxes.FileIndex]]:
        """Wait for the parts of all ranks; return the checksum and the index of each file."""
        sums, index = dict[str, str](), dict[str, boxes.FileIndex]()
        wanted, pause = {f"done-{rank}.json": rank for rank in self.writing}, 0.02
        while missing := wanted.keys() - os.listdir(partial):
            if self.cancelled.wait(pause):
                raise RunError(path, f"rank {min(wanted[name] for name in missing)} could not write its part")
            pause = min(2 * pause, MAX_PAUSE)
        for name in wanted:
            part_sums, part_index = files.read_json(partial / name)
            sums |= part_sums
            index |= part_index
            (partial / name).unlink()
        return sums, index


def best(
    folder: Path,
    validations: Sequence[Mapping[str, Any]],
    best_of: Callable[[Sequence[Mapping[str, Any]]], int],
    kinds: Sequence[str] = KINDS[:1],
) -> tuple[int, Path]:
    """Return the step and the path of the best checkpoint whose files of these `kinds` are undamaged.

    `best_of` returns the step of the best of some validations. If it returns 0, the last checkpoint is used.
    """
    while True:
        chosen = best_of(validations)
        step = chosen or steps(folder)[-1]
        path = path_of(folder, step)
        if not (wrong := damage(path, kinds)):
            return step, path
        if not chosen:
            raise DataError(path, wrong, "a whole checkpoint", "start again with --anew, or name another `out`")
        say(f"{path}: {wrong}; using the next best checkpoint")
        validations = [line for line in validations if line["step"] != step]


class SharedReading:
    """Reads a checkpoint on replicas: one of them reads each tensor and broadcasts it to the others."""

    def __init__(self, ranks: Ranks) -> None:
        shared = ranks.mesh is not None and ranks.shape[0] > 1
        self.group = ranks.mesh.get_group(DIMENSIONS[0]) if shared else None
        self.size, self.at, self.number = ranks.shape[0], ranks.coordinates[0], 0

    def fill(self, target: Tensor, read: Callable[[], Tensor]) -> None:
        """Fill `target` with the result of `read`. All replicas call this with the same tensors in the same order."""
        reader, self.number = self.number % self.size, self.number + 1
        if self.group is None:
            target.copy_(read())
        elif target.numel():
            whole = target.contiguous()
            if self.at == reader:
                whole.copy_(read())
            source = torch.distributed.get_global_rank(self.group, reader)
            torch.distributed.broadcast(whole, source, group=self.group)
            if whole is not target:
                target.copy_(whole)


def restore(
    path: Path,
    objective: Objective,
    optimizer: Optimizer,
    parts: list[LocalParameter],
    ranks: Ranks,
    rows: Mapping[str, int],
) -> None:
    """Load a checkpoint into the networks, the carried state and the optimizer, whatever mesh saved it."""
    stored = boxes.Boxes(path, KINDS[0])
    tensors = own_tensors(objective)
    shapes = {n: torch.empty(stored.shape(n), device="meta") for n in stored.stored if not n.startswith("state/")}
    weights.compare(shapes, tensors, path, padded=rows)
    shared = SharedReading(ranks)
    with torch.no_grad():
        for name, tensor in tensors.items():
            shared.fill(local(tensor), functools.partial(stored.read, name, box_of(tensor)))
        for name, tensor in objective.state.items():
            share = _share_of(tensor, ranks)
            streams = stored.shape(f"state/{name}")[0] if f"state/{name}" in stored.stored else 0
            if streams != share.shape[0]:  # the batch size of the run was changed
                say(f"{path}: has {name} of {streams} streams, the run has {share.shape[0]}: all streams start empty")
                continue
            tensor.copy_(stored.read(f"state/{name}", share))
    restore_moments(path, optimizer, parts, shared)


def restore_moments(
    path: Path, optimizer: Optimizer, parts: list[LocalParameter], shared: SharedReading | None = None
) -> None:
    """Load this rank's part of the optimizer's moments, by parameter name."""
    shared = shared or SharedReading(Ranks(torch.device("cpu")))
    stored = boxes.Boxes(path, KINDS[1])
    fused = {p: g.get("fused") or g.get("capturable") for g in optimizer.param_groups for p in g["params"]}
    keys: dict[str, list[str]] = {}
    for key in stored.stored:
        keys.setdefault(key.partition("/")[2], []).append(key)
    for part in parts:
        state, fresh = {}, optimizer.state.get(part.local, {})
        for key in keys.get(part.name, ()):
            moment = key.partition("/")[0]
            if not stored.shape(key):  # the count of steps stays on the CPU unless a fused kernel reads it
                value = stored.read(key)
                state[moment] = value.to(part.local.device) if fused[part.local] else value
                continue
            box = box_of(part.whole)
            state[moment] = torch.empty(box.size, dtype=stored.dtype(key), device=part.local.device)
            shared.fill(state[moment], functools.partial(stored.read, key, box, over=fresh.get(moment)))
        if state:
            optimizer.state[part.local] = state


def _weights(objective: Objective, ranks: Ranks, rows: dict[str, int]) -> Iterator[TensorPiece]:
    for name, tensor in own_tensors(objective).items():
        yield _piece(name, local(tensor), tensor, rows.get(name))
    for name, tensor in objective.state.items():
        yield TensorPiece(f"state/{name}", tensor, _share_of(tensor, ranks), frozenset(DIMENSIONS[:2]))


def _moments(
    optimizer: Optimizer, parts: list[LocalParameter], ranks: Ranks, rows: dict[str, int]
) -> Iterator[TensorPiece]:
    for part in parts:
        for key, value in sorted(optimizer.state.get(part.local, {}).items()):
            if not isinstance(value, Tensor):
                continue
            if value.ndim == 0 and part.whole.ndim:
                yield TensorPiece(f"{key}/{part.name}", value, Box((), (), ()))
            else:
                yield _piece(f"{key}/{part.name}", value, part.whole, rows.get(part.name))


def _piece(name: str, tensor: Tensor, like: Tensor, rows: int | None) -> TensorPiece:
    box = box_of(like)
    if rows is not None:
        kept = max(min(box.start[0] + box.size[0], rows) - box.start[0], 0)
        tensor = tensor[:kept]
        box = Box((rows, *box.shape[1:]), box.start, (kept, *box.size[1:]))
    return TensorPiece(name, tensor, box, _split_of(like))


def _split_of(tensor: Tensor) -> frozenset[str]:
    if not is_sharded(tensor):
        return frozenset()
    names = tensor.device_mesh.mesh_dim_names or ()  # type: ignore[attr-defined]
    places = zip(names, tensor.placements, strict=True)  # type: ignore[attr-defined]
    return frozenset(name for name, location in places if not location.is_replicate())


def _copies(split: Collection[str], ranks: Ranks) -> tuple[int, int]:
    """Return how many ranks hold the same part of a tensor split over `split`, and this rank's index among them."""
    copies, copy = 1, 0
    for name, size, at in zip(DIMENSIONS, ranks.shape, ranks.coordinates, strict=True):
        if name not in split:
            copies, copy = copies * size, copy * size + at
    return copies, copy


def _share_of(tensor: Tensor, ranks: Ranks) -> Box:
    """Return the box of this rank's carried state within that of all ranks."""
    size = tuple(tensor.shape)
    return Box((size[0] * ranks.data_world, *size[1:]), (size[0] * ranks.data_rank, *(0 for _ in size[1:])), size)

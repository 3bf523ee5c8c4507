"""The first step of a corpus, `read`: read, clean and split every document into sentences.

    source -> pieces (files) -> raw documents, in order -> chunks of some megabytes -> refined, cleaned, sentences found
                                                           -> 00002-00017.jsonl   one document per line
                                                              00002-00017.npy     hash, draw and sizes of each (INDEX)
                                                              00002-00017.near.npy   MinHash signatures, if requested
                                                              00002-00017.json    the counts; written last
                                                              .00002-00017/0-412  while the chunk is incomplete: the
                                                                                  result of some raw documents (_save)
                                                           -> 00002.whole         number of chunks of the piece

The content of a chunk depends on the source only, not on the process that makes it, the time, or the number of
processes. A chunk whose .json exists is not made again; a piece whose chunks all exist is not read again. Work on a
chunk is saved every few seconds (KEPT), so that slow cleaning resumes within it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, RunError
from ordsmed.base.keys import value_key
from ordsmed.base.say import Progress
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus import cleaning
from ordsmed.corpus.cleaning import INDEX, CleanedBatch, Facts, Work, refined
from ordsmed.corpus.signatures import VERSION as SIGNED
from ordsmed.corpus.sources import Bundle, CorpusSource
from ordsmed.text.document import Document
from ordsmed.text.read import Tally, tallied

CHUNK = 8_000_000  # characters of raw documents
VERSION = 3  # version of the chunk format; chunks of other versions are made again
OVERHEAD = 500  # characters added to the length of each document
REMEDY = "remove the folder `steps`, and run the command again"


@dataclass(frozen=True)
class Chunk:
    stem: str  # path of its files without suffixes
    source: int
    facts: Facts

    @property
    def index(self) -> np.ndarray:
        """Return an entry per document. It is read each time: mapping every chunk would keep a file open for each."""
        entries = np.array(read_index(self.stem)) if self.facts.documents else np.zeros(0, INDEX)
        if len(entries) != self.facts.documents:
            raise DataError(f"{self.stem}.npy", f"{len(entries):,} entries", f"{self.facts.documents:,}", REMEDY)
        return entries


def read_index(stem: str) -> np.ndarray:
    path = Path(f"{stem}.npy")
    entries: np.ndarray = files.mapped(path, "the entries of a chunk", REMEDY)
    if entries.dtype != INDEX:
        raise DataError(path, f"entries of {entries.dtype}", f"{INDEX}: little-endian", REMEDY)
    return entries


class Reading:
    """The folder of the step, and the work left to do in it."""

    def __init__(self, steps: Path, sources: Sequence[CorpusSource], work: Work) -> None:
        portions = [[s.portion, s.longest] if s.portion < 1 or s.longest else [] for s in sources]
        from_ = [
            [settings.plain(s.settings, essence=True), s.purpose, s.settings.stamp(), *portion]
            for s, portion in zip(sources, portions, strict=True)
        ]
        near = work.near
        signed = [SIGNED, near.shingle, near.permutations, near.seed] if near else None
        held_out = Path(work.held_out).name if work.held_out else None
        stamped = [step.stamp() for step in work.clean if hasattr(step, "stamp")]
        key = [VERSION, settings.plain(replace(work, near=None, held_out=held_out)), signed, from_]
        key += [stamped] if stamped else []
        name = value_key(key, 12, any_order=True)
        self.folder, self.sources, self.work = steps / f"read-{name}", sources, work
        self.bundles = [(number, bundle) for number, source in enumerate(sources) for bundle in source.bundles()]

    def run(self, map_in_order: MapInOrder, workers: int, part: tuple[int, int] = (0, 1)) -> None:
        with files.survive_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        total = sum(source.settings.size() for source in self.sources)
        with Progress("read", total / 1e6, "MB") as shown:
            for bytes in map_in_order(_work, ((task,) for task in self._tasks(total, workers, part, shown))):
                shown.add(bytes / 1e6, notes=[f"(kept every {cleaning.KEPT:.0f} s)"])

    def chunks(self) -> list[Chunk]:
        chunks = []
        for piece, (source, _) in enumerate(self.bundles):
            for number in range(_length(self.folder, piece) or 0):
                if _exists(self.folder, piece, number):
                    stem = _stem(self.folder, piece, number)
                    chunks.append(Chunk(stem, source, _facts(files.read_json(Path(f"{stem}.json")))))
        return chunks

    def _tasks(self, total: int, workers: int, part: tuple[int, int], shown: Progress) -> Iterator[ChunkTask]:
        """Yield tasks. Large bundles are read here and their chunks processed elsewhere; a small bundle is one task.

        A part of a job array gets whole bundles, and every n-th chunk of large ones, for n parts.
        """
        part_number, parts = part
        large = total / (4 * workers * parts)
        for piece, (number, bundle) in enumerate(self.bundles):
            source = self.sources[number]
            if _whole(self.folder, piece):
                shown.add(source.size(bundle) / 1e6)
            elif not bundle or source.size(bundle) > large:
                yield from self._large(piece, source, bundle, part, shown)
            elif piece % parts == part_number:
                yield ChunkTask(self.folder, self.work, source, piece, bundle)

    def _large(
        self, piece: int, source: CorpusSource, bundle: Bundle, part: tuple[int, int], shown: Progress
    ) -> Iterator[ChunkTask]:
        part_number, parts = part
        done, number = 0, 0
        with tallied() as tally:
            for number, batch in enumerate(_batches(source.read(bundle), tally), 1):
                new, done = tally.bytes - done, tally.bytes
                if (piece + number) % parts == part_number and not _exists(self.folder, piece, number - 1):
                    yield ChunkTask(self.folder, self.work, source, piece, bundle, number - 1, batch, new)
                else:
                    shown.add(new / 1e6)
        _write(self.folder / f"{piece:05d}.whole", number)


@dataclass(frozen=True)
class RawBatch:
    """Raw documents, and counts of their reading."""

    documents: list[Document]
    replaced: int
    cut: int
    left_out: Counter[str]
    encodings: Counter[str]


@dataclass(frozen=True)
class ChunkTask:
    """A chunk to make from these documents, or a whole bundle to read and make chunks from."""

    folder: Path
    work: Work
    source: CorpusSource
    piece: int
    bundle: Bundle
    number: int = 0
    batch: RawBatch | None = None
    bytes: int = 0
    "bytes that were read for this batch"


def _work(task: ChunkTask) -> int:
    if task.batch:
        _make(task.folder, task.work, task.source, task.piece, task.number, task.batch)
        return task.bytes
    number = 0
    with tallied() as tally:
        for number, batch in enumerate(_batches(task.source.read(task.bundle), tally), 1):
            if not _exists(task.folder, task.piece, number - 1):
                _make(task.folder, task.work, task.source, task.piece, number - 1, batch)
        _write(task.folder / f"{task.piece:05d}.whole", number)
        return tally.bytes


def _batches(documents: Iterator[Document], tally: Tally) -> Iterator[RawBatch]:
    """Yield raw documents in batches, at least one, so that no counts are lost."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text) + OVERHEAD + sum(len(v) for v in document.meta.values() if isinstance(v, str))
        if size >= CHUNK:
            yield _batch(batch, tally)
            batch, size = [], 0
    yield _batch(batch, tally)


def _batch(documents: list[Document], tally: Tally) -> RawBatch:
    batch = RawBatch(documents, tally.replaced, tally.cut, Counter(tally.left_out), Counter(tally.encodings))
    tally.replaced = tally.cut = 0
    tally.left_out.clear()
    tally.encodings.clear()
    return batch


def _make(folder: Path, work: Work, source: CorpusSource, piece: int, number: int, batch: RawBatch) -> None:
    """Refine, clean and split the documents of a chunk, and write it; the counts last."""
    stem = _stem(folder, piece, number)
    whole, fresh = _kept(stem, work), CleanedBatch(work.nothing())
    for some in refined(batch.documents[whole.raw :], work, source):
        whole.add(some)
        fresh.add(some)
        if time.monotonic() - fresh.since > cleaning.KEPT and whole.raw < len(batch.documents):
            _keep(stem, fresh, whole.raw - fresh.raw)
            fresh = CleanedBatch(work.nothing())
    facts = whole.facts
    facts.read, facts.documents = len(batch.documents), sum(map(len, whole.index))
    facts.replaced, facts.cut = facts.replaced + batch.replaced, facts.cut + batch.cut
    facts.left_out += batch.left_out
    facts.encodings += batch.encodings
    if facts.documents:
        with files.writing(Path(f"{stem}.jsonl")) as file:
            file.writelines(whole.lines)
        _save(Path(f"{stem}.npy"), whole.entries())
        if work.near:
            _save(Path(f"{stem}.near.npy"), np.concatenate(whole.signed))
    _write(Path(f"{stem}.json"), facts.__dict__)
    shutil.rmtree(_beside(stem), ignore_errors=True)


def _beside(stem: str) -> Path:
    path = Path(stem)
    return path.with_name(f".{path.name}")


def _keep(stem: str, some: CleanedBatch, at: int) -> None:
    """Save the results since the last save. The file's name contains the range of raw documents."""
    head, lines = json.dumps(some.facts.__dict__).encode(), b"".join(some.lines)
    arrays = {"facts": np.frombuffer(head, np.uint8), "lines": np.frombuffer(lines, np.uint8)}
    arrays |= {"index": some.entries()} if some.index else {}
    arrays |= {"signed": np.concatenate(some.signed)} if some.signed else {}
    # on a full disk writing the chunk itself fails; or another process has finished the chunk
    with contextlib.suppress(RunError):
        _beside(stem).mkdir(exist_ok=True)
        with files.writing(_beside(stem) / f"{at}-{at + some.raw}") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def _kept(stem: str, work: Work) -> CleanedBatch:
    whole, ends = CleanedBatch(work.nothing()), dict[int, int]()
    # finished by another process, or damaged
    ended = (FileNotFoundError, ValueError, EOFError, KeyError, zipfile.BadZipFile)
    with contextlib.suppress(*ended):
        for path in _beside(stem).iterdir():
            if not path.name.startswith("."):
                first, last = map(int, path.name.split("-"))
                ends[first] = max(last, ends.get(first, 0))
        while last := ends.get(whole.raw, 0):
            with (_beside(stem) / f"{whole.raw}-{last}").open("rb") as file, np.load(file) as arrays:
                some = CleanedBatch(_facts(json.loads(arrays["facts"].tobytes())), last - whole.raw)
                if "index" in arrays:
                    some.lines, some.index = [arrays["lines"].tobytes()], [arrays["index"]]
                    some.signed = [arrays["signed"]] if work.near else []
            whole.add(some)
    return whole


def _facts(record: dict[str, Any]) -> Facts:
    return Facts(**{**record, **{key: Counter(record.get(key, {})) for key in ("left_out", "encodings")}})


def _stem(folder: Path, piece: int, number: int) -> str:
    return str(folder / f"{piece:05d}-{number:05d}")


def _exists(folder: Path, piece: int, number: int) -> bool:
    return os.path.exists(f"{_stem(folder, piece, number)}.json")


def _length(folder: Path, piece: int) -> int | None:
    path = folder / f"{piece:05d}.whole"
    return int(files.read_json(path)) if path.exists() else None


def _whole(folder: Path, piece: int) -> bool:
    length = _length(folder, piece)
    return length is not None and all(_exists(folder, piece, number) for number in range(length))


def _save(path: Path, array: np.ndarray) -> None:
    with files.writing(path) as file:
        np.save(file, array)


def _write(path: Path, value: object) -> None:
    files.write_text(path, json.dumps(value))

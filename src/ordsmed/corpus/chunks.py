"""The first step of a corpus, `read`: every document read, cleaned and cut into sentences by itself.

    source -> pieces (files) -> raw documents, in order -> chunks of some megabytes -> refined, cleaned, sentences found
                                                           -> 00002-00017.jsonl   one document a line
                                                              00002-00017.npy     its hash, its draw, its sizes (INDEX)
                                                              00002-00017.near.npy   MinHash signatures, if wanted
                                                              00002-00017.json    what happened; written last
                                                              .00002-00017/0-412  while it is made: what some of its
                                                                                  raw documents became (_save)
                                                           -> 00002.whole         how many chunks the piece has

What a chunk holds follows from the source alone, so it does not matter who makes it, when, or beside how many others. A
chunk whose .json stands is never made again; a piece of which all stand is not even read again. What is done of a chunk
is kept every few seconds (KEPT), so that slow cleaning goes on within it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files, menu, settings
from ordsmed.base.errors import DataError, OrdsmedError, RunError
from ordsmed.base.keys import value_key
from ordsmed.base.say import Progress
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus.held_out import HeldOut
from ordsmed.corpus.signatures import VERSION as SIGNED
from ordsmed.corpus.signatures import Near, signatures
from ordsmed.text import counting, sentences
from ordsmed.text.clean import Form, tidy
from ordsmed.text.document import Document
from ordsmed.text.read import Tally, tallied
from ordsmed.text.source import Piece

CHUNK = 8_000_000  # characters of raw documents
KEPT = 2.0  # seconds of work on a chunk after which it is kept: more is not lost when it is killed
VERSION = 3  # of what a chunk holds: those of another are made anew
OVERHEAD = 500  # characters that a document counts beside its own
BUNDLE = 8_000_000  # bytes of small files that are read together
INDEX = np.dtype([
    ("key", "<u8"), ("draw", "<u8"), ("at", "<u8"), ("sentences", "<i4"), ("words", "<i4"), ("characters", "<i4"),
    ("bytes", "<i4"),
])  # fmt: skip


Bundle = tuple[Piece, ...]


@dataclass(frozen=True)
class CorpusSource:
    """Where documents come from, and what they are for."""

    settings: Any
    purpose: str = ""
    "'': to be split; validation, test: given for that; against: documents like these are dropped elsewhere"

    def bundles(self) -> list[Bundle]:
        """What can be read by itself: pieces, small ones several together; [()] where the source is all of a piece."""
        if not hasattr(self.settings, "pieces"):
            return [()]
        found, room = list[list[Piece]](), 0
        for piece in self.settings.pieces():
            if not found or _size(piece) > room:
                found.append([])
                room = BUNDLE
            found[-1].append(piece)
            room -= _size(piece)
        return [tuple(bundle) for bundle in found]

    def size(self, bundle: Bundle) -> int:
        """Bytes to read."""
        return sum(map(_size, bundle)) if bundle else int(self.settings.size())

    def read(self, bundle: Bundle) -> Iterator[Document]:
        """Raw documents, in order."""
        with self._placed("documents"):
            found = (self.settings.read(piece) for piece in bundle) if bundle else [self.settings.documents()]
            for document in chain.from_iterable(found):
                yield _checked(document)

    def refine(self, document: Document) -> Document | None:
        """The slow half for one of them."""
        if not hasattr(self.settings, "refine"):
            return document
        with self._placed(document.id):
            found = self.settings.refine(document)
            return found if found is None else _checked(found)

    def _placed(self, place: str) -> contextlib.AbstractContextManager[None]:
        return _placed(f"{menu.kind_of(self.settings)}: {place}")


@dataclass(frozen=True)
class Work:
    """What is done to every document by itself."""

    clean: tuple[Any, ...] = ()
    normalise: Form = "NFC"
    shortest: int = 1
    sentences: str = "rules"
    seed: int = 0
    near: Near | None = None
    held_out: str | None = None
    "file of n-grams of texts that are held out; what contains one is dropped"

    def names(self) -> list[str]:
        """The cleaning steps, as they are told in the report: the second of a kind is `length 2`."""
        kinds = [*(menu.kind_of(step) for step in self.clean), "tidy"]
        nth = [kinds[: at + 1].count(kind) for at, kind in enumerate(kinds)]
        return [f"{kind} {n}" if n > 1 else kind for kind, n in zip(kinds, nth, strict=True)]


@dataclass
class Facts:
    """What happened to the documents of a chunk, or of several."""

    read: int = 0
    documents: int = 0
    replaced: int = 0
    cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    steps: list[list[int]] = field(default_factory=list)
    "of each cleaning step: documents in, changed, dropped, characters before, characters after"
    encodings: Counter[str] = field(default_factory=Counter)
    "of files that are not in UTF-8"
    held_out: list[str] = field(default_factory=list)
    "some documents that contain held-out text, and where"

    def add(self, other: Facts) -> None:
        """What happened to others as well."""
        self.read += other.read
        self.documents += other.documents
        self.replaced += other.replaced
        self.cut += other.cut
        self.left_out.update(other.left_out)
        self.encodings.update(other.encodings)
        if other.steps:  # a source without a chunk tells none
            before = self.steps or [[0] * 5 for _ in other.steps]
            self.steps = [list(map(sum, zip(*both, strict=True))) for both in zip(before, other.steps, strict=True)]
        self.held_out = (self.held_out + other.held_out)[:EXAMPLES]


SEARCHED = 100_000  # characters searched for held-out text at once
EXAMPLES = 20  # of documents that are told in a report


@dataclass(frozen=True)
class Chunk:
    """One finished chunk."""

    stem: str  # its files' path without their endings
    source: int
    facts: Facts

    @property
    def index(self) -> np.ndarray:
        """An entry a document, read anew each time: a map of every chunk would hold a file open for each."""
        found = np.array(read_index(self.stem)) if self.facts.documents else np.zeros(0, INDEX)
        if len(found) != self.facts.documents:
            raise DataError(
                f"{self.stem}.npy",
                f"{len(found):,} entries",
                f"{self.facts.documents:,}",
                "remove the folder `steps`, go on",
            )
        return found


def read_index(stem: str) -> np.ndarray:
    """The entries of a chunk's documents."""
    path, remedy = Path(f"{stem}.npy"), "remove the folder `steps`, go on"
    found: np.ndarray = files.mapped(path, "the entries of a chunk", remedy)
    if found.dtype != INDEX:
        raise DataError(path, f"entries of {found.dtype}", f"{INDEX}: little-endian", remedy)
    return found


class Reading:
    """The step's folder, and what is still to do in it."""

    def __init__(self, steps: Path, sources: Sequence[CorpusSource], work: Work) -> None:
        from_ = [[settings.plain(s.settings, essence=True), s.purpose, s.settings.stamp()] for s in sources]
        near = work.near
        signed = [SIGNED, near.shingle, near.permutations, near.seed] if near else None
        held_out = Path(work.held_out).name if work.held_out else None
        key = [VERSION, settings.plain(replace(work, near=None, held_out=held_out)), signed, from_]
        name = value_key(key, 12, any_order=True)
        self.folder, self.sources, self.work = steps / f"read-{name}", sources, work
        self.bundles = [(number, bundle) for number, source in enumerate(sources) for bundle in source.bundles()]

    def run(self, map_in_order: MapInOrder, workers: int, part: tuple[int, int] = (0, 1)) -> None:
        """Make the chunks that are missing: all, or those of this part of so many."""
        with files.survive_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        total = sum(source.settings.size() for source in self.sources)
        with Progress("read", total / 1e6, "MB") as shown:
            for bytes in map_in_order(_work, ((task,) for task in self._tasks(total, workers, part, shown))):
                shown.add(bytes / 1e6, f"(kept every {KEPT:.0f} s)")

    def chunks(self) -> list[Chunk]:
        """Those that stand, in the order of the sources."""
        found = []
        for piece, (source, _) in enumerate(self.bundles):
            for number in range(_length(self.folder, piece) or 0):
                if _stands(self.folder, piece, number):
                    stem = _stem(self.folder, piece, number)
                    found.append(Chunk(stem, source, _facts(files.read_json(Path(f"{stem}.json")))))
        return found

    def _tasks(self, total: int, workers: int, part: tuple[int, int], shown: Progress) -> Iterator[ChunkTask]:
        """Large bundles are read here and their chunks worked on elsewhere; a small bundle is one task.

        A part of an array takes whole bundles, and of large ones every n-th chunk, n being how many parts there are.
        """
        mine, parts = part
        large = total / (4 * workers * parts)
        for piece, (number, what) in enumerate(self.bundles):
            source = self.sources[number]
            if _whole(self.folder, piece):
                shown.add(source.size(what) / 1e6)
            elif not what or source.size(what) > large:
                yield from self._large(piece, source, what, part, shown)
            elif piece % parts == mine:
                yield ChunkTask(self.folder, self.work, source, piece, what)

    def _large(
        self, piece: int, source: CorpusSource, what: Bundle, part: tuple[int, int], shown: Progress
    ) -> Iterator[ChunkTask]:
        mine, parts = part
        done, number = 0, 0
        with tallied() as tally:
            for number, batch in enumerate(_batches(source.read(what), tally), 1):
                new, done = tally.bytes - done, tally.bytes
                if (piece + number) % parts == mine and not _stands(self.folder, piece, number - 1):
                    yield ChunkTask(self.folder, self.work, source, piece, what, number - 1, batch, new)
                else:
                    shown.add(new / 1e6)
        _write(self.folder / f"{piece:05d}.whole", number)


@dataclass(frozen=True)
class RawBatch:
    """Raw documents, and what was counted while they were read."""

    documents: list[Document]
    replaced: int
    cut: int
    left_out: Counter[str]
    encodings: Counter[str]


@dataclass(frozen=True)
class ChunkTask:
    """A chunk to make of these documents; or a whole bundle to read and make chunks of."""

    folder: Path
    work: Work
    source: CorpusSource
    piece: int
    what: Bundle
    number: int = 0
    batch: RawBatch | None = None
    bytes: int = 0
    "that were read for this batch"


def _work(task: ChunkTask) -> int:
    """Returns the bytes that were read for it."""
    if task.batch:
        _make(task.folder, task.work, task.source, task.piece, task.number, task.batch)
        return task.bytes
    number = 0
    with tallied() as tally:
        for number, batch in enumerate(_batches(task.source.read(task.what), tally), 1):
            if not _stands(task.folder, task.piece, number - 1):
                _make(task.folder, task.work, task.source, task.piece, number - 1, batch)
        _write(task.folder / f"{task.piece:05d}.whole", number)
        return tally.bytes


def _batches(documents: Iterator[Document], tally: Tally) -> Iterator[RawBatch]:
    """Raw documents in batches; at least one, so that what was counted has a place."""
    held: list[Document] = []
    size = 0
    for document in documents:
        held.append(document)
        size += len(document.text) + OVERHEAD + sum(len(v) for v in document.meta.values() if isinstance(v, str))
        if size >= CHUNK:
            yield _batch(held, tally)
            held, size = [], 0
    yield _batch(held, tally)


def _batch(held: list[Document], tally: Tally) -> RawBatch:
    batch = RawBatch(held, tally.replaced, tally.cut, Counter(tally.left_out), Counter(tally.encodings))
    tally.replaced = tally.cut = 0
    tally.left_out.clear()
    tally.encodings.clear()
    return batch


def _make(folder: Path, work: Work, source: CorpusSource, piece: int, number: int, batch: RawBatch) -> None:
    """Refine, clean, cut into sentences, and write; the facts last."""
    stem = _stem(folder, piece, number)
    whole, fresh = _kept(stem, work), CleanedBatch(_nothing(work))
    for some in _refined(batch.documents[whole.raw :], work, source):
        whole.add(some)
        fresh.add(some)
        if time.monotonic() - fresh.since > KEPT and whole.raw < len(batch.documents):
            _keep(stem, fresh, whole.raw - fresh.raw)
            fresh = CleanedBatch(_nothing(work))
    facts = whole.facts
    facts.read, facts.documents = len(batch.documents), sum(map(len, whole.index))
    facts.replaced, facts.cut = facts.replaced + batch.replaced, facts.cut + batch.cut
    facts.left_out += batch.left_out
    facts.encodings += batch.encodings
    if facts.documents:
        with files.writing(Path(f"{stem}.jsonl")) as file:
            file.writelines(whole.lines)
        _save(Path(f"{stem}.npy"), _joined(whole))
        if work.near:
            _save(Path(f"{stem}.near.npy"), np.concatenate(whole.signed))
    _write(Path(f"{stem}.json"), facts.__dict__)
    shutil.rmtree(_beside(stem), ignore_errors=True)


@dataclass
class CleanedBatch:
    """What some raw documents of a chunk became."""

    facts: Facts
    raw: int = 0
    lines: list[bytes] = field(default_factory=list)
    "many in one, and beside them their entries and signatures"
    index: list[np.ndarray] = field(default_factory=list)
    signed: list[np.ndarray] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)
    "when the last of it was kept"

    def add(self, other: CleanedBatch) -> None:
        """What the next ones became."""
        self.facts.add(other.facts)
        self.raw += other.raw
        self.lines += other.lines
        self.index += other.index
        self.signed += other.signed


def _joined(whole: CleanedBatch) -> np.ndarray:
    """All entries, their places counted from the start of the chunk."""
    index = np.concatenate(whole.index)
    ends = np.cumsum([len(lines) for lines in whole.lines])
    index["at"] += np.repeat(np.append(np.uint64(0), ends[:-1].astype("<u8")), [len(some) for some in whole.index])
    return index


def _refined(documents: list[Document], work: Work, source: CorpusSource) -> Iterator[CleanedBatch]:
    """Some raw documents after others refined, cleaned, compared with what is held out, and cut into sentences."""
    names, split = work.names(), _split_with(work.sentences)
    batch, kept, size, since = CleanedBatch(_nothing(work)), list[Document](), 0, time.monotonic()
    for number, raw in enumerate(documents, 1):
        batch.raw += 1
        with tallied() as tally:
            document = source.refine(raw)
            if document is not None and _clean(document, work, names, batch.facts):
                kept.append(document)
                size += len(document.text)
        batch.facts.replaced, batch.facts.cut = batch.facts.replaced + tally.replaced, batch.facts.cut + tally.cut
        batch.facts.left_out += tally.left_out
        batch.facts.encodings += tally.encodings
        if size < SEARCHED and number < len(documents) and time.monotonic() - since < KEPT:
            continue
        if work.held_out:
            kept = _without(_grams(work.held_out), kept, batch.facts)
        for document in kept:
            split(document)
        if kept:
            lines = list(map(_line, kept))
            batch.lines, batch.index = [b"".join(lines)], [_indexed(kept, lines, work.seed)]
            batch.signed = [signatures([document.text for document in kept], work.near)] if work.near else []
        yield batch
        batch, kept, size, since = CleanedBatch(_nothing(work)), [], 0, time.monotonic()


def _nothing(work: Work) -> Facts:
    return Facts(steps=[[0] * 5 for _ in work.names()])


def _beside(stem: str) -> Path:
    """Where a chunk is kept while it is made."""
    path = Path(stem)
    return path.with_name(f".{path.name}")


def _keep(stem: str, some: CleanedBatch, at: int) -> None:
    """Write down what came since the last time; its name tells which raw documents it was."""
    head, lines = json.dumps(some.facts.__dict__).encode(), b"".join(some.lines)
    arrays = {"facts": np.frombuffer(head, np.uint8), "lines": np.frombuffer(lines, np.uint8)}
    arrays |= {"index": _joined(some)} if some.index else {}
    arrays |= {"signed": np.concatenate(some.signed)} if some.signed else {}
    with contextlib.suppress(RunError):  # a full disk stops the chunk itself; another process may have ended it
        _beside(stem).mkdir(exist_ok=True)
        with files.writing(_beside(stem) / f"{at}-{at + some.raw}") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def _kept(stem: str, work: Work) -> CleanedBatch:
    """What was kept of a chunk by whoever worked on it."""
    whole, ends = CleanedBatch(_nothing(work)), dict[int, int]()
    ended = (FileNotFoundError, ValueError, EOFError, KeyError, zipfile.BadZipFile)  # by another process; or damaged
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


def _facts(told: dict[str, Any]) -> Facts:
    return Facts(**{**told, **{key: Counter(told.get(key, {})) for key in ("left_out", "encodings")}})


def _clean(document: Document, work: Work, names: Sequence[str], facts: Facts) -> bool:
    """Make a text as it should be, and count what each step does; or drop it."""
    if work.sentences == "given":
        _unfold(document)
    for name, step, counts in zip(names, [*work.clean, None], facts.steps, strict=True):
        before = document.text
        with _placed(f"{name}: {document.id}"), tallied() as tally:
            after = tidy(before, work.normalise) if step is None else _cleaned(step.clean(before, document.meta))
        for why, count in tally.left_out.items():
            facts.left_out[f"{name}: {why.partition(': ')[2] or why}"] += count
        counts[0] += 1
        counts[1] += after is not None and after != before
        counts[2] += after is None
        counts[3] += len(before)
        counts[4] += len(after or "")
        if after is None:
            return False
        document.text = after
    if len(document.text) < max(work.shortest, 1):
        facts.left_out["short documents"] += 1
        return False
    return True


def _line(document: Document) -> bytes:
    """A document as it stands in a file; a file's name that is no UTF-8 may stand in its id."""
    import msgspec

    document.id = document.id.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    with _placed(document.id):
        return msgspec.json.encode(document) + b"\n"


def _without(held_out: HeldOut, documents: list[Document], facts: Facts) -> list[Document]:
    """The documents that quote nothing of what is held out."""
    kept, ends = [], np.cumsum([len(document.text) for document in documents]) // SEARCHED
    borders = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(documents)]
    some = (held_out.search([d.text for d in documents[a:b]]) for a, b in pairwise(borders))
    for document, hit in zip(documents, chain.from_iterable(some), strict=True):
        if hit is None:
            kept.append(document)
            continue
        facts.left_out["held-out text"] += 1
        if len(facts.held_out) < EXAMPLES:
            facts.held_out.append(f"{document.id}: {hit.words!r}")
    return kept


def _indexed(documents: Sequence[Document], lines: Sequence[bytes], seed: int) -> np.ndarray:
    index, at = np.zeros(len(documents), INDEX), 0
    for number, (document, line) in enumerate(zip(documents, lines, strict=True)):
        key, draw, words = digest(document.text, seed)
        text = document.text
        size = len(text) if text.isascii() else len(text.encode())
        index[number] = (key, draw, at, len(document.ends), words, len(text), size)
        at += len(line)
    return index


def digest(text: str, seed: int) -> tuple[int, int, int]:
    """Of a text's words: a hash that tells equal ones, a number that decides on their split, and how many they are."""
    words = text.split()
    key = seed.to_bytes(16, "little", signed=True)
    found = hashlib.blake2b(" ".join(words).encode(), digest_size=16, key=key).digest()
    return int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little"), len(counting.words(text))


@functools.cache
def _split_with(name: str) -> Callable[[Document], None]:
    if name in ("presplit", "given"):
        return _restore
    split = sentences.splitter(name)

    def find(document: Document) -> None:
        document.ends = split(document.text)

    return find


def _unfold(document: Document) -> None:
    """The sentences that a source gives become lines, which cleaning leaves apart."""
    if not document.ends:
        wanted = "a source that does, such as conllu"
        raise DataError(document.id, "its source gives no sentences", wanted, 'sentences = "rules"')
    record = sentences.record(document)
    document.text, _ = record.pop("text"), record.pop("id")
    record.get(sentences.BETWEEN, {}).pop(sentences.WITHIN, None)  # places that cleaning may move
    document.meta = record


def _restore(document: Document) -> None:
    document.text, document.ends = sentences.presplit(document.text, document.meta)


@functools.cache
def _grams(path: str) -> HeldOut:
    return HeldOut.load(Path(path))


@contextlib.contextmanager
def _placed(place: str) -> Iterator[None]:
    """What code of others raises, as one line that names the place; the house's own errors tell theirs."""
    try:
        yield
    except (OrdsmedError, OSError, MemoryError):
        raise
    except Exception as error:
        raise DataError(place, f"{type(error).__name__}: {error}", "", "mend the source or step") from error


def _checked(found: Any) -> Document:
    """What code of others gives as a document."""
    if not isinstance(found, Document):
        raise TypeError(f"gives {found!r:.60}, a {type(found).__name__}; wanted an ordsmed.text.document.Document")
    for name, kind in (("text", str), ("id", str), ("meta", dict)):
        if not isinstance(value := getattr(found, name), kind):
            raise TypeError(f"gives a Document whose {name} is {value!r:.60}; wanted a {kind.__name__}")
    return found


def _cleaned(found: Any) -> str | None:
    if not isinstance(found, str | None):
        raise TypeError(f"gives {found!r:.60}, a {type(found).__name__}; wanted the text as it should be, or None")
    return found


def _size(piece: Piece) -> int:
    if piece.bytes is not None:
        return piece.bytes
    return (piece.stop if piece.stop is not None else piece.path.stat().st_size) - piece.start


def _stem(folder: Path, piece: int, number: int) -> str:
    return str(folder / f"{piece:05d}-{number:05d}")


def _stands(folder: Path, piece: int, number: int) -> bool:
    return os.path.exists(f"{_stem(folder, piece, number)}.json")


def _length(folder: Path, piece: int) -> int | None:
    """How many chunks a piece has, if it was read to its end."""
    path = folder / f"{piece:05d}.whole"
    return int(files.read_json(path)) if path.exists() else None


def _whole(folder: Path, piece: int) -> bool:
    length = _length(folder, piece)
    return length is not None and all(_stands(folder, piece, number) for number in range(length))


def _save(path: Path, array: np.ndarray) -> None:
    with files.writing(path) as file:
        np.save(file, array)


def _write(path: Path, value: object) -> None:
    files.write_text(path, json.dumps(value))

"""Process documents one by one: refine, clean, search for held-out text, split into sentences, count.

raw documents -> source.refine -> cleaning steps, tidy -> held-out text? -> sentences -> CleanedBatch
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import menu
from ordsmed.base.errors import DataError
from ordsmed.base.say import with_article
from ordsmed.corpus.decontamination import HeldOut
from ordsmed.corpus.signatures import Near, signatures
from ordsmed.corpus.sources import CorpusSource, naming
from ordsmed.text import counting, sentences
from ordsmed.text.clean import Form, tidy
from ordsmed.text.document import Document
from ordsmed.text.read import tallied

KEPT = 2.0  # seconds of work on a chunk after which it is saved; a kill loses no more
SEARCHED = 100_000  # characters searched for held-out text at once
EXAMPLES = 20  # documents shown in a report
INDEX = np.dtype(
    [("key", "<u8"), ("draw", "<u8"), ("at", "<u8")]
    + [(name, "<i4") for name in ("sentences", "words", "characters", "bytes")]
)


@dataclass(frozen=True)
class Work:
    """Settings for processing each document."""

    clean: tuple[Any, ...] = ()
    normalise: Form = "NFC"
    shortest: int = 1
    sentences: str = "rules"
    seed: int = 0
    near: Near | None = None
    held_out: str | None = None
    "file of n-grams of held-out texts; documents that contain one are dropped"

    def names(self) -> list[str]:
        kinds = [*(menu.kind_of(step) for step in self.clean), "tidy"]
        nth = [kinds[: at + 1].count(kind) for at, kind in enumerate(kinds)]
        return [f"{kind} {n}" if n > 1 else kind for kind, n in zip(kinds, nth, strict=True)]

    def nothing(self) -> Facts:
        return Facts(steps=[[0] * 5 for _ in self.names()])


@dataclass
class Facts:
    """Counts of what happened to the documents of one or more chunks."""

    read: int = 0
    documents: int = 0
    replaced: int = 0
    cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    steps: list[list[int]] = field(default_factory=list)
    "of each cleaning step: documents in, changed, dropped, characters before, characters after"
    encodings: Counter[str] = field(default_factory=Counter)
    "number of files by encoding, except UTF-8"
    held_out: list[str] = field(default_factory=list)
    "some documents that contain held-out text, with the words"

    def add(self, facts: Facts) -> None:
        self.read += facts.read
        self.documents += facts.documents
        self.replaced += facts.replaced
        self.cut += facts.cut
        self.left_out.update(facts.left_out)
        self.encodings.update(facts.encodings)
        if facts.steps:  # a source without chunks has no steps
            steps = self.steps or [[0] * 5 for _ in facts.steps]
            self.steps = [list(map(sum, zip(*both, strict=True))) for both in zip(steps, facts.steps, strict=True)]
        self.held_out = (self.held_out + facts.held_out)[:EXAMPLES]


@dataclass
class CleanedBatch:
    """The result for some raw documents of a chunk."""

    facts: Facts
    raw: int = 0
    lines: list[bytes] = field(default_factory=list)
    "blocks of many lines, with an array of index entries and one of signatures for each"
    index: list[np.ndarray] = field(default_factory=list)
    signed: list[np.ndarray] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)
    "time at which it was created"

    def entries(self) -> np.ndarray:
        """Return all index entries with byte offsets from the first line."""
        index = np.concatenate(self.index)
        ends = np.cumsum([len(lines) for lines in self.lines])
        index["at"] += np.repeat(np.append(np.uint64(0), ends[:-1].astype("<u8")), [len(part) for part in self.index])
        return index

    def add(self, batch: CleanedBatch) -> None:
        self.facts.add(batch.facts)
        self.raw += batch.raw
        self.lines += batch.lines
        self.index += batch.index
        self.signed += batch.signed


def refined(documents: list[Document], work: Work, source: CorpusSource) -> Iterator[CleanedBatch]:
    """Refine, clean and filter raw documents, and split them into sentences. Yield results every few documents."""
    names, split = work.names(), _split_with(work.sentences)
    batch, documents_kept, size, since = CleanedBatch(work.nothing()), list[Document](), 0, time.monotonic()
    for number, raw in enumerate(documents, 1):
        batch.raw += 1
        with tallied() as tally:
            document = source.refine(raw)
            if document is not None and _clean(document, work, names, batch.facts):
                documents_kept.append(document)
                size += len(document.text)
        batch.facts.replaced, batch.facts.cut = batch.facts.replaced + tally.replaced, batch.facts.cut + tally.cut
        batch.facts.left_out += tally.left_out
        batch.facts.encodings += tally.encodings
        if size < SEARCHED and number < len(documents) and time.monotonic() - since < KEPT:
            continue
        if work.held_out:
            documents_kept = _without(_grams(work.held_out), documents_kept, batch.facts)
        for document in documents_kept:
            split(document)
        if documents_kept:
            lines = list(map(_line, documents_kept))
            batch.lines, batch.index = [b"".join(lines)], [_indexed(documents_kept, lines, work.seed)]
            batch.signed = [signatures([document.text for document in documents_kept], work.near)] if work.near else []
        yield batch
        batch, documents_kept, size, since = CleanedBatch(work.nothing()), [], 0, time.monotonic()


def _clean(document: Document, work: Work, names: Sequence[str], facts: Facts) -> bool:
    """Clean a document and count what each step does. Return False if a step drops it."""
    if work.sentences == "given":
        _unfold(document)
    for name, step, counts in zip(names, [*work.clean, None], facts.steps, strict=True):
        old_text = document.text
        with naming(f"{name}: {document.id}"), tallied() as tally:
            new_text = tidy(old_text, work.normalise) if step is None else step.clean(old_text, document.meta)
            if not isinstance(new_text, str | None):
                wanted = "the cleaned text, or None"
                raise TypeError(f"gives {new_text!r:.60}, {with_article(type(new_text).__name__)}; wanted {wanted}")
        for reason, count in tally.left_out.items():
            facts.left_out[f"{name}: {reason.partition(': ')[2] or reason}"] += count
        counts[0] += 1
        counts[1] += new_text is not None and new_text != old_text
        counts[2] += new_text is None
        counts[3] += len(old_text)
        counts[4] += len(new_text or "")
        if new_text is None:
            return False
        document.text = new_text
    if len(document.text) < max(work.shortest, 1):
        facts.left_out["short documents"] += 1
        return False
    return True


def _without(held_out: HeldOut, documents: list[Document], facts: Facts) -> list[Document]:
    clean_documents, ends = [], np.cumsum([len(document.text) for document in documents]) // SEARCHED
    borders = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(documents)]
    some = (held_out.search([d.text for d in documents[a:b]]) for a, b in pairwise(borders))
    for document, hit in zip(documents, chain.from_iterable(some), strict=True):
        if hit is None:
            clean_documents.append(document)
            continue
        facts.left_out["held-out text"] += 1
        if len(facts.held_out) < EXAMPLES:
            facts.held_out.append(f"{document.id}: {hit.words!r}")
    return clean_documents


@functools.cache
def _grams(path: str) -> HeldOut:
    return HeldOut.load(Path(path))


def _line(document: Document) -> bytes:
    """Encode a document as a line. A file name in its id may be invalid UTF-8."""
    import msgspec

    document.id = document.id.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    with naming(document.id):
        return msgspec.json.encode(document) + b"\n"


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
    """Return a hash of a text's words to find duplicates, a number that decides its split, and the word count."""
    words = text.split()
    key = seed.to_bytes(16, "little", signed=True)
    hashed = hashlib.blake2b(" ".join(words).encode(), digest_size=16, key=key).digest()
    return int.from_bytes(hashed[:8], "little"), int.from_bytes(hashed[8:], "little"), len(counting.words(text))


@functools.cache
def _split_with(name: str) -> Callable[[Document], None]:
    split = None if name in ("presplit", "given") else sentences.splitter(name)

    def find(document: Document) -> None:
        if split:
            document.ends = split(document.text)
        else:
            document.text, document.ends = sentences.presplit(document.text, document.meta)

    return find


def _unfold(document: Document) -> None:
    """Turn the sentences that a source gives into lines, which cleaning does not join."""
    if not document.ends:
        wanted = "a source that does, such as conllu"
        raise DataError(document.id, "its source gives no sentences", wanted, 'sentences = "rules"')
    record = sentences.record(document)
    document.text, _ = record.pop("text"), record.pop("id")
    record.get(sentences.BETWEEN, {}).pop(sentences.WITHIN, None)  # offsets that cleaning may change
    document.meta = record

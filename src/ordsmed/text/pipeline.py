"""The deed `corpus`: documents -> tidy -> each once -> sentences told apart -> two splits in JSON lines.

    source.documents() -> tidy -> short? seen before? -> sentence ends -> train/00000.jsonl, train/00001.jsonl, ...
                                                                          validation/00000.jsonl, ...

One document a line, as `text/document.py` shows it. A part is written beside its place and renamed when whole. On which
side a document falls is decided by a hash of its words and the seed alone, so equal texts fall on one side.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Literal

from ordsmed.base.errors import DataError
from ordsmed.base.files import survive_disk, sync
from ordsmed.base.menu import Menu, kind_of
from ordsmed.base.run import Run
from ordsmed.base.say import Progress, say
from ordsmed.text.clean import Form, tidy
from ordsmed.text.document import Document
from ordsmed.text.read import Tally, tallied
from ordsmed.text.seen import Seen
from ordsmed.text.sentences import splitter

SPLITS = ("train", "validation")


@dataclass(frozen=True)
class Corpus:
    """From a source of documents to a folder of clean ones with sentences and a validation split."""

    verb: ClassVar[str] = "corpus"

    source: Annotated[Any, Menu("corpora")]
    "where the documents come from"
    sentences: str = "rules"
    "how sentences are told apart: rules, lines (every line is one), none, blingfire, or package.module:function"
    validation: float = 0.01
    "share of the documents held out; at least one where there are two"
    duplicates: Literal["drop", "keep"] = "drop"
    "documents with the same words: keep the first, or all"
    shortest: int = 1
    "characters; shorter documents are dropped"
    normalise: Form = "NFC"
    "Unicode normal form of the text"
    seed: int = 0
    "decides which documents are held out"
    language: str | None = None
    "for the model card, such as en or nb"
    licence: str | None = None
    "for the model card"
    title: str | None = None
    "for the model card"
    shard: int = 64_000_000
    "bytes of a part file"
    out: str | None = None
    "folder of the result; work/corpus/ and the recipe's name if not said"

    def __post_init__(self) -> None:
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation: found {self.validation}; wanted a share from 0 up to below 1")
        for name, least in (("shortest", 0), ("shard", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted at least {least}")

    def stamp(self) -> Any:
        """What the result depends on beside the recipe."""
        return self.source.stamp()

    def perform(self, run: Run) -> dict[str, Any]:
        """Read, clean, split and write it all; returns the counts."""
        split = splitter(self.sentences)
        for name in SPLITS:
            shutil.rmtree(run.path / name, ignore_errors=True)  # what a killed run left
        sieve, train, validation = Sieve(self), *(Writer(run.path / name, self.shard) for name in SPLITS)
        writers = {"train": train, "validation": validation}
        with train, validation, tallied() as tally, Progress("corpus", self.source.size() / 1e6, "MB") as shown:
            for name, document, words in sieve.sort(_shown(self.source.documents(), tally, shown)):
                document.ends = split(document.text)
                writers[name].write(document, words)
        if not sieve.read:
            raise DataError(_name(self.source), "no documents at all", "at least one text", "look at `source`")
        if not writers["train"].count.documents:
            found = f"none of {sieve.read:,} documents is left"
            raise DataError(_name(self.source), found, f"texts of `shortest` = {self.shortest} characters or more")
        return self._facts(writers, sieve, tally)

    def _facts(self, writers: dict[str, Writer], sieve: Sieve, tally: Tally) -> dict[str, Any]:
        facts = {name: {**asdict(writer.count), "parts": writer.parts} for name, writer in writers.items()}
        dropped = {"duplicates": sieve.duplicates, "short": sieve.short}
        for name, writer in writers.items():
            count = writer.count
            say(f"{name}: {count.documents:,} documents, {count.sentences:,} sentences, {count.words:,} words")
        if sieve.duplicates or sieve.short:
            say(f"dropped: {sieve.duplicates:,} duplicates, {sieve.short:,} too short")
        if tally.replaced:
            say(f"invalid UTF-8: {tally.replaced:,} places replaced by U+FFFD")
        if tally.cut:
            say(f"cut: {tally.cut:,} times a line or document was too long for one")
        if self.validation and not writers["validation"].count.documents:
            say("validation: empty, for there is only one document")
        known = {"language": self.language, "licence": self.licence, "title": self.title}
        return {**facts, "dropped": dropped, "replaced": tally.replaced, "cut": tally.cut, **known}


@dataclass
class Count:
    """What was written to one split."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    characters: int = 0
    bytes: int = 0


class Sieve:
    """Decides what happens to each document: dropped as short or seen, held out, or kept for training."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.seen = Seen() if corpus.duplicates == "drop" else None
        self.key = corpus.seed.to_bytes(16, "little", signed=True)
        self.limit = int(corpus.validation * 2**64)
        self.read = self.short = self.duplicates = 0

    def sort(self, documents: Iterator[Document]) -> Iterator[tuple[str, Document, int]]:
        """What is kept as (split, document, words).

        Until one falls to validation, the one that came nearest to it is held back, so that a small corpus has one too.
        """
        nearest, held, others = 1 << 64, list[tuple[Document, int]](), False
        waiting = self.limit > 0
        for document, draw, words in self._kept(documents):
            if draw < self.limit:
                yield "validation", document, words
                yield from (("train", *pair) for pair in held)
                waiting, held = False, []
            elif waiting and draw <= nearest:
                if draw < nearest:
                    others = others or bool(held)
                    yield from (("train", *pair) for pair in held)
                    nearest, held = draw, []
                held.append((document, words))
            else:
                others = True
                yield "train", document, words
        yield from (("validation" if waiting and others else "train", *pair) for pair in held)

    def _kept(self, documents: Iterator[Document]) -> Iterator[tuple[Document, int, int]]:
        for document in documents:
            self.read += 1
            document.text = tidy(document.text, self.corpus.normalise)
            if len(document.text) < max(self.corpus.shortest, 1):
                self.short += 1
                continue
            words = document.text.split()
            digest = hashlib.blake2b(" ".join(words).encode(), digest_size=16, key=self.key).digest()
            if self.seen and not self.seen.add(int.from_bytes(digest[:8], "little")):
                self.duplicates += 1
                continue
            yield document, int.from_bytes(digest[8:], "little"), len(words)


class Writer:
    """One split's part files: each is written beside its place and renamed when it is whole."""

    def __init__(self, folder: Path, shard: int) -> None:
        self.folder, self.shard = folder, shard
        self.count, self.parts = Count(), dict[str, int]()
        self.file: IO[bytes] | None = None
        self.documents = self.bytes = 0  # of the part that is being written

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if kind is None:
            self.close()
        elif self.file:  # what is half written stays a .part; the next run removes it
            with contextlib.suppress(OSError):
                self.file.close()

    def write(self, document: Document, words: int) -> None:
        """One document, one line."""
        import msgspec

        line = msgspec.json.encode(document) + b"\n"
        if self.file and self.bytes + len(line) > self.shard:
            self.close()
        with survive_disk(self.folder):
            if not self.file:
                self.folder.mkdir(parents=True, exist_ok=True)
                self.file = self._beside.open("wb", buffering=1 << 20)
            self.file.write(line)
        self.documents, self.bytes = self.documents + 1, self.bytes + len(line)
        self._add(document, words, len(line))

    def close(self) -> None:
        """Make the part that is being written whole."""
        if not self.file:
            return
        with survive_disk(self.folder):
            self.file.close()
            sync(self._beside)
            self._beside.rename(self.folder / self._name)
        self.parts[self._name] = self.documents
        self.file, self.documents, self.bytes = None, 0, 0

    @property
    def _name(self) -> str:
        return f"{len(self.parts):05d}.jsonl"

    @property
    def _beside(self) -> Path:
        return self.folder / f"{self._name}.part"

    def _add(self, document: Document, words: int, length: int) -> None:
        count = self.count
        count.documents += 1
        count.sentences += len(document.ends)
        count.words += words
        count.characters += len(document.text)
        count.bytes += length


def parts(folder: Path, split: str) -> list[Path]:
    """The part files of one split of a corpus folder, in order."""
    return sorted((folder / split).glob("[0-9]*.jsonl"))


def documents(path: Path) -> Iterator[Document]:
    """The documents of a part file."""
    import msgspec

    decode = msgspec.json.Decoder(Document).decode
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    found = str(error) if line.endswith(b"\n") else "the last line is cut off"
                    raise DataError(f"{path}:{number}", found, "one document a line", "make the corpus again") from None
    except FileNotFoundError:
        raise DataError(path, "no such file", "a part of a corpus", "make the corpus again") from None


def origin(folder: Path, split: str, number: int) -> str:
    """Where the document of this number in a split stands: `train/00000.jsonl:12, id books/a.txt:3`."""
    for path in parts(folder, split):
        with path.open("rb") as file:
            for line, _ in enumerate(file, 1):
                if number == 0:
                    found = next(d for n, d in enumerate(documents(path), 1) if n == line)
                    return f"{path}:{line}" + (f", id {found.id}" if found.id else "")
                number -= 1
    raise DataError(folder, f"has no {split} document of that number")


def _shown(found: Iterator[Document], tally: Tally, shown: Progress) -> Iterator[Document]:
    """Pass documents on and move the bar by the bytes that were read for them."""
    done = 0
    for document in found:
        yield document
        if tally.bytes != done:
            shown.add((tally.bytes - done) / 1e6)
            done = tally.bytes


def _name(source: object) -> str:
    return f"{kind_of(source)} {getattr(source, 'path', '')}".strip()

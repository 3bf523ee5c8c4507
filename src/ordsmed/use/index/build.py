"""The verb `index`: build a search index from a corpus and a model that embeds.

    texts.bin, passages.npy, documents.jsonl, documents.npy    the texts, and the positions of passages and documents
    vectors.npy                                                a vector per passage, of length 1, in 16 bits
    tokens.npy                                                 for late interaction: the end of each passage's vectors
    vectors.faiss                                              with `nearest = "faiss"`: the index of faiss
    words/                                                     inverted lists for BM25 (text/bm25.py)

Each step resumes after a kill. The folder can only be opened after the last step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files, run
from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run
from ordsmed.base.say import Progress, many, say
from ordsmed.text.bm25 import Bm25
from ordsmed.text.document import Document
from ordsmed.use.index.approximate import NearVectors, faiss_here
from ordsmed.use.index.checksums import checksums
from ordsmed.use.index.encoder import longest_of, measure_of
from ordsmed.use.index.growing_files import GrowingFile, GrowingRows, Noted
from ordsmed.use.index.passages import Measure, PassageCutting, in_words
from ordsmed.use.index.source import IndexedTexts, record_of
from ordsmed.use.index.store import StoredPassages
from ordsmed.use.text_encoder import TextEncoder
from ordsmed.use.token_encoder import TokenEncoder

Kind = Literal["both", "dense", "words"]
BLOCK = 1 << 20  # characters of documents that are cut at once
EVERY = 5.0  # seconds between two notes of the progress
CUTTING, READING = "cut.kept", "vectors.kept"


@dataclass(frozen=True, kw_only=True)
class Indexing:
    verb: ClassVar[str] = "index"
    HOW: ClassVar[tuple[str, ...]] = ("batch",)
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("nearest",)
    encoder: ClassVar[TextEncoder | TokenEncoder | None] = None  # set by `make`

    corpus: str
    "folder or recipe of a corpus, or files of text or JSON lines"
    model: str = ""
    "model that makes the vectors; empty: the index is searched by words only"
    kind: Kind = "both"
    "search by vectors (dense), by words (BM25), or by both"
    length: int = 200
    "longest passage with its title, in tokens; in words if there is no model"
    overlap: int = 0
    "tokens that a passage may share with the one before it"
    title: bool = True
    "put a document's title before each of its passages"
    pool: str = ""
    "pooling of a passage: words (mean of words), or first, last, tokens (mean) of all tokens; empty: learned, or mean"
    nearest: Literal["exact", "faiss"] = "exact"
    "compare every vector, or search millions of vectors approximately with faiss, which may miss some"
    batch: int = 64
    "passages per batch of the network"
    out: str | None = None
    "folder of the index"

    def __post_init__(self) -> None:
        at_least(self, length=8, overlap=0, batch=1)
        if 2 * self.overlap > self.length:
            raise ValueError(f"overlap: found {self.overlap}; wanted at most half of the length, {self.length // 2}")
        if (self.kind == "words") == bool(self.model):
            wanted = "none with --kind words" if self.model else "a model, or --kind words"
            raise ValueError(f"model: found {self.model or 'none'} with --kind {self.kind}; wanted {wanted}")
        if self.nearest == "faiss" and not self.model:
            raise ValueError("nearest: found faiss with --kind words; wanted vectors to search")

    def make(self, encoder: TextEncoder | TokenEncoder | None, *, anew: bool = False) -> Path:
        """Build the index, or resume building it, and return its folder."""
        object.__setattr__(self, "encoder", encoder)
        if encoder and self.length > (longest := longest_of(encoder)):
            problem, wanted = f"found {self.length}", f"at most {longest}, the most that {self.model} reads at once"
            raise RecipeError("--length", problem, wanted)
        if self.nearest == "faiss":
            if isinstance(encoder, TokenEncoder):
                raise RecipeError("--nearest", "found faiss for vectors of tokens", "exact, as MaxSim requires")
            faiss_here("--nearest")
        self._check_standing(anew=anew)
        return run.make(self, anew=anew)

    def _check_standing(self, *, anew: bool) -> None:
        folder = run.output_folder(self, "")
        if anew or not run.finished(folder, self.verb) or run.fits(Run(folder), self):
            return
        before, now = run.essence(run.read_recipe(Indexing, folder)), run.essence(self)
        changed = [f"{key} {before.get(key)}, found {now[key]}" for key in now if before.get(key) != now[key]]
        problem = "was made with " + changed[0] if changed else "was made from another corpus, or by another model"
        raise RecipeError(folder, problem, "", "name another folder, or add --anew, which moves this one aside")

    def stamp(self) -> object:
        """Return the stamps of the documents and of the model's weights."""
        return [IndexedTexts.of(self.corpus).stamp(), self.encoder.key() if self.encoder else ""]

    def perform(self, run: Run) -> dict[str, Any]:
        texts, mark = IndexedTexts.of(self.corpus), run.status["fingerprint"]
        measure = measure_of(self.encoder) if self.encoder else in_words
        facts = self._cut(run.path, texts, measure, mark)
        stored = StoredPassages(run.path)
        if self.encoder:
            if isinstance(self.encoder, TokenEncoder):
                width = self._read_tokens(run.path, stored, self.encoder, mark)
            else:
                width = self._read(run.path, stored, self.encoder, mark)
            facts |= {"width": width, "model_key": self.encoder.key()}
            if self.nearest == "faiss":
                vectors = files.mapped(run.path / "vectors.npy", "vectors of passages", "make the index again", "c")
                facts["faiss"] = NearVectors.made(run.path, vectors)
        if self.kind != "dense":
            say(f"{many(len(stored), 'passage')}: counting their words")
            Bm25.of(stored.read_as(self.title)).save(run.path / "words")
        return {**facts, "checksums": checksums(run.path)}

    def tidy(self, run: Run) -> None:
        for name in (CUTTING, READING):
            (run.path / name).unlink(missing_ok=True)

    def _cut(self, folder: Path, texts: IndexedTexts, measure: Measure, mark: str) -> dict[str, Any]:
        noted, cutting = Noted(folder / CUTTING, mark), PassageCutting(self.length, self.overlap, self.title)
        if not noted["whole"]:
            bar = Progress("cut", texts.count or 0, "documents", done=noted["documents"])
            with PassageWriter(folder, noted) as writer, bar:
                last_note = time.monotonic()
                for block in blocks(texts.documents(noted["documents"])):
                    for document, spans in zip(block, cutting.passages(block, measure), strict=True):
                        writer.add(document, spans)
                    bar.add(len(block), many(writer.passages.count, "passage"))
                    if time.monotonic() - last_note > EVERY:
                        writer.keep()
                        last_note = time.monotonic()
                if not writer.passages.count:
                    raise DataError(texts.name, "has no text to index", "documents with words")
                writer.finish()
        return {"documents": noted["documents"], "passages": noted["count"]}

    def _read_tokens(self, folder: Path, stored: StoredPassages, encoder: TokenEncoder, mark: str) -> int:
        noted, width = Noted(folder / READING, mark), encoder.width
        growing = GrowingRows(folder / "vectors.npy", (width,), "float16", noted["vectors"])
        growing_ends = GrowingRows(folder / "tokens.npy", (), "int64", noted["ends"])
        with growing as rows, growing_ends as ends, Progress("index", len(stored), "passages", done=ends.count) as bar:
            last_note = time.monotonic()
            for read in encoder.token_rows(stored.read_as(self.title, ends.count)):
                ends.put(rows.count + read.starts[1:])
                rows.put(read.vectors)
                bar.add(len(read))
                if time.monotonic() - last_note > EVERY:
                    noted.keep({"vectors": rows, "ends": ends})
                    last_note = time.monotonic()
            rows.finish()
            ends.finish()
        noted.keep({}, vectors=rows.size, ends=ends.size)
        return width

    def _read(self, folder: Path, stored: StoredPassages, encoder: TextEncoder, mark: str) -> int:
        noted = Noted(folder / READING, mark)
        width = noted["width"] or encoder.width
        growing = GrowingRows(folder / "vectors.npy", (width,), "float16", noted["vectors"])
        with growing as rows, Progress("index", len(stored), "passages", done=growing.count) as bar:
            last_note = time.monotonic()
            for vectors in encoder.vectors(stored.read_as(self.title, rows.count)):
                rows.put(vectors)
                bar.add(len(vectors))
                if time.monotonic() - last_note > EVERY:
                    noted.keep({"vectors": rows}, width=width)
                    last_note = time.monotonic()
            rows.finish()
        noted.keep({}, width=width, vectors=rows.size)
        return int(width)


class PassageWriter:
    """Writer of texts and records, and of the positions of passages and documents in them."""

    def __init__(self, folder: Path, noted: Noted) -> None:
        self.noted, self.number = noted, noted["documents"]
        self.texts = GrowingFile(folder / "texts.bin", noted["texts"])
        self.records = GrowingFile(folder / "documents.jsonl", noted["records"])
        self.documents = GrowingRows(folder / "documents.npy", (), "int64", noted["starts"])
        self.passages = GrowingRows(folder / "passages.npy", (5,), "int64", noted["passages"])
        self.growing = {
            "texts": self.texts,
            "records": self.records,
            "starts": self.documents,
            "passages": self.passages,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self.growing.values():
            file.__exit__(*error)

    def add(self, document: Document, spans: list[tuple[int, int]]) -> None:
        """Append a document and its passages, which are given in characters."""
        begins = self.texts.size
        self.documents.put(np.array([self.records.size]))
        self.records.add(json.dumps(record_of(document), ensure_ascii=False).encode() + b"\n")
        self.texts.add(document.text.encode())
        self.passages.put(_placed(document.text, spans, begins, self.number))
        self.number += 1

    def copy(self, old: StoredPassages, document: int, rows: NDArray[np.int64]) -> None:
        """Append a document of another index with the given rows of its passages."""
        begins, ends = (int(rows[0, 1]), int(rows[:, 2].max())) if len(rows) else (0, 0)
        shift = self.texts.size - begins
        self.passages.put(np.column_stack([np.full(len(rows), self.number), rows[:, 1:3] + shift, rows[:, 3:]]))
        self.documents.put(np.array([self.records.size]))
        self.records.add(old.record_bytes(document))
        self.texts.add(old.texts[begins:ends].tobytes())
        self.number += 1

    def keep(self, **facts: int) -> None:
        self.noted.keep(self.growing, documents=self.number, **facts)

    def finish(self) -> None:
        for file in self.growing.values():
            file.finish()
        self.keep(count=self.passages.count, whole=1)


def _placed(text: str, spans: list[tuple[int, int]], begins: int, number: int) -> np.ndarray:
    """Return the rows of passages: document number, begin and end in bytes, begin and end in characters.

    Bytes are counted from the passage before, so that no text is encoded twice.
    """
    rows, last_begin, byte_begin = [], 0, begins
    for begin, end in spans:
        byte_begin += (
            len(text[last_begin:begin].encode()) if begin >= last_begin else -len(text[begin:last_begin].encode())
        )
        rows.append((number, byte_begin, byte_begin + len(text[begin:end].encode()), begin, end))
        last_begin = begin
    return np.array(rows, np.int64).reshape(-1, 5)


def blocks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Yield documents in lists of about BLOCK characters."""
    block, size = list[Document](), 0
    for document in documents:
        block.append(document)
        size += len(document.text)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block

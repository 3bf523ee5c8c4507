"""Documents added to an index, replaced and deleted, without reading again those that stay.

    old files, without the documents that go  +  passages and vectors of new documents  ->  update-1/, update-2/ ...

The new files stand in a folder of their own until `status.json` names it, in one write; then the old files go. A kill
leaves the old index or the new one, and a process that has the old one open keeps it. All words are counted again, and
faiss's graph is made again; the disk holds both states for a while.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files, run
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.text.bm25 import Bm25
from ordsmed.use.index.appended import GrowingRows, Noted
from ordsmed.use.index.approximate import NearVectors
from ordsmed.use.index.build import CUTTING, PassageWriter, blocks
from ordsmed.use.index.checksums import DATA, checksums
from ordsmed.use.index.encoder import measure_of
from ordsmed.use.index.opened import OpenIndex
from ordsmed.use.index.passages import PassageCutting, in_words
from ordsmed.use.index.source import IndexedTexts, name_of
from ordsmed.use.index.stored import StoredPassages
from ordsmed.use.token_encoder import TokenEncoder

ROWS = 1 << 14  # vectors that are copied at once
PREFIX = "update-"


def update(index: OpenIndex, add: Sequence[str] = (), delete: Sequence[str] = ()) -> OpenIndex:
    """Return the index with documents added, in the place of those with the same ids, and others deleted."""
    folder = index.folder
    sources = [IndexedTexts.of(name) for name in add]
    with run.locked(folder):
        index = OpenIndex.of(folder, index.model, index.opening)  # as it is now that nobody else changes it
        _clean(folder, index.facts.get("data", ""))
        number = index.facts.get("updates", 0) + 1
        data = folder / f"{PREFIX}{number}"
        try:
            with files.survive_disk(data):
                data.mkdir()
            facts, gone = _write(index, data, sources, delete)
        except BaseException:
            shutil.rmtree(data, ignore_errors=True)
            raise
        facts["checksums"] = checksums(folder, data.name)
        files.sync(data)
        Run(folder).set(data=data.name, updates=number, **facts)
        _clean(folder, data.name)
    added = facts["documents"] + gone - index.facts["documents"]
    say(f"{folder}: {many(added, 'document')} added, {gone:,} deleted or replaced")
    return OpenIndex.of(folder, index.model, index.opening)


def _write(
    index: OpenIndex, data: Path, sources: Sequence[IndexedTexts], delete: Sequence[str]
) -> tuple[dict[str, Any], int]:
    """Write the files of the new state; its facts, and how many old documents are gone."""
    old, recipe = index.passages, index.recipe
    stays = _staying(old, {name_of(document) for texts in sources for document in texts.documents()}, delete)
    passages = np.flatnonzero(stays[old.rows[:, 0]])
    documents = _write_texts(index, data, stays, sources)
    stored = StoredPassages(data)
    if not len(stored):
        raise DataError(index.folder, "would hold no passage any more", "an index of some text", "delete its folder")
    facts: dict[str, Any] = {"documents": documents, "passages": len(stored)}
    if recipe.model:
        _write_vectors(index, data, stored, passages)
        if "faiss" in index.facts:
            vectors = files.mapped(data / "vectors.npy", "vectors of passages", "give the command again", "c")
            facts["faiss"] = NearVectors.made(data, vectors)
    if recipe.kind != "dense":
        Bm25.of(stored.read_as(recipe.title)).save(data / "words")
    return facts, len(stays) - int(stays.sum())


def _staying(old: StoredPassages, replaced: set[str], delete: Sequence[str]) -> NDArray[np.bool_]:
    """Of each old document whether it stays; an id that is to be deleted and is not there is refused."""
    names = [str(old.record(number).get("id", "")) for number in range(len(old.starts))]
    known = set(names)
    if absent := next((name for name in delete if name not in known), None):
        remedy = meant(absent, known) or "`search --json` shows the ids of what is found"
        raise RecipeError("--delete", f"found {absent}, but no document has this id", "ids of documents", remedy)
    gone = replaced | {*delete}
    return np.array([name not in gone for name in names], bool)


def _write_texts(index: OpenIndex, data: Path, stays: NDArray[np.bool_], sources: Sequence[IndexedTexts]) -> int:
    """Records, texts and passages of what stays, then of what is new; how many documents these are."""
    old, recipe = index.passages, index.recipe
    bounds = np.searchsorted(old.rows[:, 0], np.arange(len(stays) + 1))
    cutting = PassageCutting(recipe.length, recipe.overlap, recipe.title)
    measure = measure_of(index.encoder) if recipe.model and sources else in_words
    with PassageWriter(data, Noted(data / CUTTING, "")) as store:
        for number in np.flatnonzero(stays).tolist():
            store.copy(old, number, old.rows[bounds[number] : bounds[number + 1]])
        for block in blocks(document for texts in sources for document in texts.documents()):
            for document, spans in zip(block, cutting.passages(block, measure), strict=True):
                store.add(document, spans)
        store.finish()
    (data / CUTTING).unlink()
    return int(store.number)


def _write_vectors(index: OpenIndex, data: Path, stored: StoredPassages, kept: NDArray[np.int64]) -> None:
    """Vectors of passages that stay, copied, then those of new passages, by the model."""
    new = stored.read_as(index.recipe.title, len(kept)) if len(kept) < len(stored) else iter(())
    with GrowingRows(data / "vectors.npy", index.vectors.shape[1:], "float16") as rows:
        if index.tokens is None:
            for begin in range(0, len(kept), ROWS):
                rows.put(index.vectors[kept[begin : begin + ROWS]])
            if len(kept) < len(stored):
                for vectors in index.encoder.vectors(new):
                    rows.put(vectors)
        else:
            _write_tokens(index, data, rows, kept, new)
        rows.finish()


def _write_tokens(index: OpenIndex, data: Path, rows: GrowingRows, kept: NDArray[np.int64], new: Iterator[str]) -> None:
    """The same of an index with a vector a token."""
    assert index.tokens is not None
    starts = index.tokens.starts
    with GrowingRows(data / "tokens.npy", (), "int64") as ends:
        for number in kept.tolist():
            rows.put(index.vectors[starts[number] : starts[number + 1]])
            ends.put(np.array([rows.count]))
        if isinstance(encoder := index.encoder, TokenEncoder):
            for read in encoder.token_rows(new):
                ends.put(rows.count + read.starts[1:])
                rows.put(read.vectors)
        ends.finish()


def _clean(folder: Path, data: str) -> None:
    """Remove the files of every state but the one that is named: of a former one, or of an update that was killed."""
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != data:
            shutil.rmtree(path, ignore_errors=True)
    if data:
        for name in DATA:
            (folder / name).unlink(missing_ok=True)
        if (folder / "words").is_dir() and not os.listdir(folder / "words"):
            (folder / "words").rmdir()

"""Add, replace and delete documents of an index. Remaining passages are not embedded again.

    old files without deleted documents  +  passages and vectors of new documents  ->  update-1/, update-2/ ...

The new files are written to a folder of their own. A single write of `status.json` activates it, then the old files are
deleted. A kill leaves the old or the new index, and a process that has the old index open can still use it. All words
are counted again and the faiss index is built again. For a while the disk holds both states.
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
from ordsmed.use.index.approximate import NearVectors
from ordsmed.use.index.build import CUTTING, PassageWriter, blocks
from ordsmed.use.index.checksums import DATA, checksums
from ordsmed.use.index.encoder import measure_of
from ordsmed.use.index.growing_files import GrowingRows, Noted
from ordsmed.use.index.open_index import OpenIndex
from ordsmed.use.index.passages import PassageCutting, in_words
from ordsmed.use.index.source import IndexedTexts, name_of
from ordsmed.use.index.store import StoredPassages
from ordsmed.use.token_encoder import TokenEncoder

ROWS = 1 << 14  # vectors copied at once
PREFIX = "update-"


def update(index: OpenIndex, add: Sequence[str] = (), delete: Sequence[str] = ()) -> OpenIndex:
    """Delete documents, add others, and return the new index. New documents replace those with the same id."""
    folder = index.folder
    sources = [IndexedTexts.of(name) for name in add]
    with run.locked(folder):
        index = OpenIndex.of(folder, index.model, index.opening)  # its state under the lock
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
    """Write the files of the new state. Return its facts and the number of old documents that are gone."""
    old, recipe = index.passages, index.recipe
    stays = _staying(old, {name_of(document) for texts in sources for document in texts.documents()}, delete)
    passages = np.flatnonzero(stays[old.rows[:, 0]])
    documents = _write_texts(index, data, stays, sources)
    stored = StoredPassages(data)
    if not len(stored):
        raise DataError(index.folder, "would have no passages left", "a document to keep", "or delete the folder")
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
    """Return which old documents stay, or raise an error if an id to delete does not exist."""
    names = [str(old.record(number).get("id", "")) for number in range(len(old.starts))]
    known = set(names)
    if absent := next((name for name in delete if name not in known), None):
        remedy = meant(absent, known) or "`search --json` prints the ids of documents"
        raise RecipeError("--delete", f"found {absent}, but no document has this id", "ids of documents", remedy)
    gone = replaced | {*delete}
    return np.array([name not in gone for name in names], bool)


def _write_texts(index: OpenIndex, data: Path, stays: NDArray[np.bool_], sources: Sequence[IndexedTexts]) -> int:
    """Write records, texts and passages of old, then of new documents. Return the number of documents."""
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
    """Copy the vectors of passages that stay, then compute those of new passages."""
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
    """Copy the token vectors of passages that stay, then compute those of new passages."""
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
    """Remove the files of every state except `data`: those of an earlier state or of a killed update."""
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != data:
            shutil.rmtree(path, ignore_errors=True)
    if data:
        for name in DATA:
            (folder / name).unlink(missing_ok=True)
        if (folder / "words").is_dir() and not os.listdir(folder / "words"):
            (folder / "words").rmdir()

"""The second and third step of a corpus: which documents are duplicates of which, and the rest written to its splits.

chunks -> hashes, signatures -> near.find -> Matched: who is dropped, for whom    (given texts and other corpora come
chunks without these -> the side of each draw -> train/, validation/, test/        first in the numbering and stay)
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files, settings
from ordsmed.base.errors import DataError
from ordsmed.base.keys import bytes_key, value_key
from ordsmed.base.run import STEPS
from ordsmed.base.say import Progress
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus import near
from ordsmed.corpus.chunks import Chunk, CorpusSource, read_index
from ordsmed.corpus.folder import SPLITS, PartWriter
from ordsmed.corpus.splits import Shares
from ordsmed.text.document import Document

FIXED = ("validation", "test", "against")  # purposes of documents that no duplicate displaces
GROUPS = 20  # of duplicates that a report shows
EXCERPT = 160  # characters


@dataclass(frozen=True)
class Matched:
    """The duplicates of a corpus."""

    dropped: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    "running numbers of the documents that go, sorted"
    exact: int = 0
    near: int = 0
    groups: list[dict[str, Any]] = field(default_factory=list)
    "the largest: who is kept, how many are like it, some of them, an excerpt"


class Library:
    """Documents of chunks by their running number; light enough to travel to other processes."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.stems = [chunk.stem for chunk in chunks]
        self.starts = np.concatenate([[0], np.cumsum([chunk.facts.documents for chunk in chunks])])

    def __call__(self, number: int) -> str:
        """A document's text."""
        return self.document(number).text

    def document(self, number: int) -> Document:
        """A document."""
        import msgspec

        which = int(np.searchsorted(self.starts, number, "right")) - 1
        with Path(f"{self.stems[which]}.jsonl").open("rb") as file:
            file.seek(int(read_index(self.stems[which])["at"][number - self.starts[which]]))
            return msgspec.json.decode(file.readline(), type=Document)


def match(
    folder: Path,
    chunks: Sequence[Chunk],
    sources: Sequence[CorpusSource],
    how: near.Near | None,
    map_in_order: MapInOrder,
) -> Matched:
    """Find duplicates of what was read to this folder: of words, and near ones where that is wanted; once."""
    chunks = [chunk for chunk in chunks if chunk.facts.documents]
    key = value_key([folder.name, settings.plain(how)], 12)
    scratch = folder.with_name(f"match-{key}")
    if (scratch / "matched.json").exists():
        return Matched(np.load(scratch / "dropped.npy"), **files.read_json(scratch / "matched.json"))
    with files.survive_disk(scratch):
        scratch.mkdir(parents=True, exist_ok=True)  # with what a search left that was killed
    keys = np.concatenate([np.zeros(0, "<u8"), *(chunk.index["key"] for chunk in chunks)])
    fixed = sum(chunk.facts.documents for chunk in chunks if sources[chunk.source].purpose in FIXED)
    library = Library(chunks)
    preference = None
    if how and how.keep == "longest":
        preference = np.concatenate([np.zeros(0, "<i4"), *(chunk.index["characters"] for chunk in chunks)]).astype(
            "<i8"
        )
    signed = [Path(f"{chunk.stem}.near.npy") for chunk in chunks] if how else []
    counts = [chunk.facts.documents for chunk in chunks]
    text, how = (library, how) if how else (None, near.Near())
    found = near.find(signed, counts, preference, text, how, scratch, map_in_order, keys=keys, against=fixed)
    exact = int((keys[found.numbers] == keys[found.kept]).sum())
    groups = [_facts_of(group, library) for group in near.groups(found, GROUPS)]
    told: dict[str, Any] = {"exact": exact, "near": len(found.numbers) - exact, "groups": groups}
    files.sync(scratch / "dropped.npy")
    files.write_json(scratch / "matched.json", told)  # last: it vouches for the other
    return Matched(np.array(found.numbers, np.int64), **told)


def _facts_of(group: near.Group, library: Library) -> dict[str, Any]:
    kept = library.document(group.kept)
    members = [[library.document(number).id, round(share, 3)] for number, share in group.members]
    return {"kept": kept.id, "size": group.size, "members": members, "excerpt": " ".join(kept.text[:EXCERPT].split())}


def write(
    out: Path, chunks: Sequence[Chunk], sources: Sequence[CorpusSource], dropped: np.ndarray, shares: Shares, shard: int
) -> dict[str, PartWriter]:
    """Every document that is not dropped to its split, in the order of the sources.

    Parts that stand whole from a writing of the very same that was killed stay.
    """
    kept = _kept(chunks, dropped)
    draws = [
        chunk.index["draw"][keep]
        for chunk, keep in zip(chunks, kept, strict=True)
        if sources[chunk.source].purpose not in FIXED
    ]
    borders = np.array(shares.borders(np.concatenate([np.zeros(0, "<u8"), *draws])), "<u8")
    again = _begun(out, [_named(chunks), borders.tolist(), shard], dropped)
    writers = {name: PartWriter(out / name, shard, again=again) for name in SPLITS}
    total = sum(Path(f"{chunk.stem}.jsonl").stat().st_size for chunk in chunks if chunk.facts.documents)
    with contextlib.ExitStack() as stack, Progress("write", total / 1e6, "MB") as shown:
        for writer in writers.values():
            stack.enter_context(writer)
        for chunk, keep in zip(chunks, kept, strict=True):
            purpose = sources[chunk.source].purpose
            if purpose != "against" and chunk.facts.documents:
                shown.add(_write(writers, chunk, keep, borders, purpose) / 1e6)
    return writers


def _named(chunks: Sequence[Chunk]) -> list[tuple[str, str, int]]:
    """What they were read from (it is in their folder's name), and which they are."""
    return [(*Path(chunk.stem).parts[-2:], chunk.facts.documents) for chunk in chunks]  # type: ignore[misc]


def _kept(chunks: Sequence[Chunk], dropped: np.ndarray) -> list[np.ndarray]:
    """Which documents of each chunk are not dropped."""
    starts = np.concatenate([[0], np.cumsum([chunk.facts.documents for chunk in chunks])])
    at = np.searchsorted(dropped, starts)
    kept = [np.ones(chunk.facts.documents, bool) for chunk in chunks]
    for number, keep in enumerate(kept):
        keep[dropped[at[number] : at[number + 1]] - starts[number]] = False
    return kept


def _begun(out: Path, what: list[Any], dropped: np.ndarray) -> bool:
    """Was the same being written here before? If not, what stands is no part of it."""
    mark = out / STEPS / "write.json"
    key = bytes_key(json.dumps(what).encode() + np.ascontiguousarray(dropped, "<i8").tobytes())
    if mark.exists() and files.read_json(mark) == key:
        return True
    for name in SPLITS:
        shutil.rmtree(out / name, ignore_errors=True)
    with files.survive_disk(mark):
        mark.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(mark, key)
    return False


def _write(writers: dict[str, PartWriter], chunk: Chunk, keep: np.ndarray, borders: np.ndarray, purpose: str) -> int:
    """One chunk's documents; returns its bytes."""
    index = chunk.index
    sides = np.searchsorted(borders, index["draw"], "right").tolist()
    path = Path(f"{chunk.stem}.jsonl")
    ends = [*index["at"].tolist()[1:], path.stat().st_size]
    with path.open("rb") as file:
        for entry, end, kept, side in zip(index.tolist(), ends, keep.tolist(), sides, strict=True):
            _, _, at, *counts = entry
            writer = writers[purpose or SIDES[side]]
            if kept and not writer.wants(end - at):
                writer.add(end - at, *counts)
            elif kept:
                file.seek(at)
                line = file.readline()
                if at + len(line) != end or not line.endswith(b"\n"):
                    remedy = "remove the folder `steps`, go on"
                    raise DataError(path, f"no document at byte {at:,}", "a whole chunk", remedy)
                writer.write(line, *counts)
    return ends[-1]


SIDES = ("validation", "test", "train")

"""The second step of a corpus: find duplicates.

chunks -> hashes, signatures -> near.find -> Matched: which documents are dropped    (given texts and other corpora have
                                                                                      the lowest numbers and are kept)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files, settings
from ordsmed.base.keys import value_key
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus import near
from ordsmed.corpus.chunks import Chunk, read_index
from ordsmed.corpus.signatures import Near
from ordsmed.corpus.sources import CorpusSource
from ordsmed.text.document import Document

FIXED = ("validation", "test", "against")  # purposes of sources whose documents are never dropped
GROUPS = 20  # groups of duplicates in the report
EXCERPT = 160  # characters


@dataclass(frozen=True)
class Matched:
    dropped: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    "sorted numbers of the dropped documents, counted over all chunks"
    exact: int = 0
    near: int = 0
    few: int = 0
    "documents that too few sources contain"
    sources: dict[str, int] = field(default_factory=dict)
    "number of kept documents, by how many sources contain them or a near duplicate"
    agreeing: np.ndarray | None = None
    "this number of sources for each document; 0: a duplicate or a given text; None: not requested"
    groups: list[dict[str, Any]] = field(default_factory=list)
    "the largest groups: the kept document, the number of duplicates, some of them, an excerpt"


class Library:
    """Reads documents of chunks by their number. It is small enough to send to other processes."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.stems = [chunk.stem for chunk in chunks]
        self.starts = np.concatenate([[0], np.cumsum([chunk.facts.documents for chunk in chunks])])

    def __call__(self, number: int) -> str:
        return self.document(number).text

    def document(self, number: int) -> Document:
        import msgspec

        chunk_number = int(np.searchsorted(self.starts, number, "right")) - 1
        with Path(f"{self.stems[chunk_number]}.jsonl").open("rb") as file:
            file.seek(int(read_index(self.stems[chunk_number])["at"][number - self.starts[chunk_number]]))
            return msgspec.json.decode(file.readline(), type=Document)


def match(
    folder: Path,
    chunks: Sequence[Chunk],
    sources: Sequence[CorpusSource],
    options: Near | None,
    map_in_order: MapInOrder,
) -> Matched:
    """Find the duplicates of the documents in this folder, exact ones and, if `options` is set, near ones.

    The result is stored next to the folder, and read from there when it exists.
    """
    chunks = [chunk for chunk in chunks if chunk.facts.documents]
    key = value_key([folder.name, settings.plain(options, essence=True)], 12)
    scratch = folder.with_name(f"match-{key}")
    if (scratch / "matched.json").exists():
        agreeing = np.load(scratch / "agreeing.npy") if options and options.into else None
        return Matched(np.load(scratch / "dropped.npy"), agreeing=agreeing, **files.read_json(scratch / "matched.json"))
    with files.survive_disk(scratch):
        scratch.mkdir(parents=True, exist_ok=True)  # it may hold the files of a search that was killed
    keys = np.concatenate([np.zeros(0, "<u8"), *(chunk.index["key"] for chunk in chunks)])
    fixed = sum(chunk.facts.documents for chunk in chunks if sources[chunk.source].purpose in FIXED)
    library = Library(chunks)
    preference = None
    if options and options.keep == "longest":
        preference = np.concatenate([np.zeros(0, "<i4"), *(chunk.index["characters"] for chunk in chunks)]).astype(
            "<i8"
        )
    signed = [Path(f"{chunk.stem}.near.npy") for chunk in chunks] if options else []
    counts = [chunk.facts.documents for chunk in chunks]
    least, kept_as = (options.sources, options.into) if options else (1, "")
    text, options = (library, options) if options else (None, Near())
    duplicates = near.find(signed, counts, preference, text, options, scratch, map_in_order, keys=keys, against=fixed)
    dropped = np.array(duplicates.numbers, np.int64)
    agreeing = _agreement(duplicates, np.repeat(np.array([chunk.source for chunk in chunks], np.int64), counts))[fixed:]
    in_few_sources = fixed + np.flatnonzero((agreeing > 0) & (agreeing < least))
    exact = int((keys[duplicates.numbers] == keys[duplicates.kept]).sum())
    groups = [_facts_of(group, library) for group in near.groups(duplicates, GROUPS)]
    facts: dict[str, Any] = {"exact": exact, "near": len(dropped) - exact, "few": len(in_few_sources), "groups": groups}
    facts["sources"] = {str(n): count for n, count in enumerate(np.bincount(agreeing).tolist()) if n and count}
    files.sync(scratch / "dropped.npy")
    if len(in_few_sources):
        dropped = np.union1d(dropped, in_few_sources)
        with files.writing(scratch / "dropped.npy") as file:
            np.save(file, dropped)
    counted = np.concatenate([np.zeros(fixed, np.int64), agreeing]) if kept_as else None
    if counted is not None:
        with files.writing(scratch / "agreeing.npy") as file:
            np.save(file, counted)
    files.write_json(scratch / "matched.json", facts)  # last, because it marks the other files as complete
    return Matched(dropped, agreeing=counted, **facts)


def _agreement(duplicates: near.Duplicates, sources: np.ndarray) -> np.ndarray:
    """Return for each kept document the number of sources that contain it or a duplicate; 0 for dropped documents."""
    width, kept = int(sources.max(initial=0)) + 1, duplicates.kept.astype(np.int64)
    of_dropped = sources[duplicates.numbers]
    pairs = np.unique((kept * width + of_dropped)[of_dropped != sources[kept]])
    counts = 1 + np.bincount(pairs // width, minlength=len(sources))
    counts[duplicates.numbers] = 0
    return counts


def _facts_of(group: near.Group, library: Library) -> dict[str, Any]:
    kept = library.document(group.kept)
    members = [[library.document(number).id, round(share, 3)] for number, share in group.members]
    return {"kept": kept.id, "size": group.size, "members": members, "excerpt": " ".join(kept.text[:EXCERPT].split())}

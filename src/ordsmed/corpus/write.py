"""The third step of a corpus: write the documents that are not duplicates to their splits.

chunks without dropped documents -> split of each draw -> part files, in parallel -> train/, validation/, test/
"""

import contextlib
import itertools
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.keys import bytes_key
from ordsmed.base.run import STEPS
from ordsmed.base.say import Progress
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus.chunks import REMEDY, Chunk, read_index
from ordsmed.corpus.dedup import FIXED
from ordsmed.corpus.folder import SPLITS, PartWriter
from ordsmed.corpus.sample import DrawnSample
from ordsmed.corpus.sources import CorpusSource
from ordsmed.corpus.splits import Shares
from ordsmed.text.document import Document

SIDES = ("validation", "test", "train")
Noted = tuple[str, np.ndarray]  # a name, and a number for each document
COUNTS = ("sentences", "words", "characters", "bytes")
# a document to write: its chunk, offset and size there, size as written, and the number stored in its metadata
ROW = np.dtype([(name, "<i8") for name in ("chunk", "at", "size", "written", "number", *COUNTS)])


def write(
    out: Path,
    chunks: Sequence[Chunk],
    sources: Sequence[CorpusSource],
    dropped: np.ndarray,
    shares: Shares,
    shard: int,
    map_in_order: MapInOrder,
    max_words: int = 0,
    noted: Noted | None = None,
) -> tuple[dict[str, PartWriter], DrawnSample | None]:
    """Write every kept document to its split, in the order of the sources, or a sample in the order of its draws.

    Part files are planned here and written in parallel. Complete parts of a killed run with the same inputs are kept.
    `noted`: a metadata key and a number for each document that is stored under it; 0: not stored.
    """
    kept = _kept(chunks, dropped)
    split = [pair for pair in zip(chunks, kept, strict=True) if sources[pair[0].source].purpose not in FIXED]
    draws = [chunk.index["draw"][keep] for chunk, keep in split]
    borders = np.array(shares.borders(np.concatenate([np.zeros(0, "<u8"), *draws])), "<u8")
    more = [*([max_words] if max_words else []), *([noted[0], bytes_key(noted[1].tobytes())] if noted else [])]
    again = _resumes(out, [_named(chunks), borders.tolist(), shard, *more], dropped)
    word_limits = [int(shares.validation * max_words), int(shares.test * max_words), max_words]
    sample = DrawnSample.of([c for c, _ in split], [k for _, k in split], borders, word_limits) if max_words else None
    purposes = [sources[chunk.source].purpose for chunk in chunks]
    rows = _rows(chunks, kept, _sized(chunks, kept, noted, map_in_order), borders, purposes)
    if sample is not None:
        numbers = np.array([n for n, purpose in enumerate(purposes) if purpose not in FIXED], np.int64)
        rows = _sampled(rows, sample, numbers, purposes)
    writers = {name: PartWriter(out / name, shard) for name in SPLITS}
    tasks = _tasks(rows, writers, [chunk.stem for chunk in chunks], again, noted[0] if noted else "")
    total = sum(Path(f"{chunk.stem}.jsonl").stat().st_size for chunk in chunks if chunk.facts.documents)
    with Progress("write", total / 1e6, "MB") as shown:
        for name, part, size in map_in_order(_write_part, tasks):
            writers[name].take(part)
            shown.add(size / 1e6)
    return writers, sample


def _sized(
    chunks: Sequence[Chunk], kept: Sequence[np.ndarray], noted: Noted | None, map_in_order: MapInOrder
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each chunk the sizes of its documents, their sizes as written, and the numbers to store."""
    starts = np.cumsum([0, *map(len, kept)])
    name, numbers = noted or ("", np.zeros(starts[-1], np.int64))
    parts = [numbers[first:last] for first, last in itertools.pairwise(starts.tolist())]
    tasks = (
        (chunk.stem, np.flatnonzero(part), part[part != 0], name) for chunk, part in zip(chunks, parts, strict=True)
    )
    changed = map_in_order(_changed_sizes, (task for task in tasks if len(task[1])))
    for chunk, part in zip(chunks, parts, strict=True):
        ends = [Path(f"{chunk.stem}.jsonl").stat().st_size] if chunk.facts.documents else []
        sizes = np.diff(np.append(chunk.index["at"].astype(np.int64), ends))
        written = sizes.copy()
        if len(rows := np.flatnonzero(part)):
            written[rows] = next(changed)
        yield sizes, written, part


def _changed_sizes(stem: str, rows: np.ndarray, numbers: np.ndarray, name: str) -> list[int]:
    at = read_index(stem)["at"][rows].tolist()
    with Path(f"{stem}.jsonl").open("rb") as file:
        sizes = []
        for location, number in zip(at, numbers.tolist(), strict=True):
            file.seek(location)
            sizes.append(len(_with(file.readline(), name, number)))
        return sizes


def _rows(
    chunks: Sequence[Chunk],
    kept: Sequence[np.ndarray],
    sized: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
    borders: np.ndarray,
    purposes: Sequence[str],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number, (chunk, keep, (sizes, written, noted)) in enumerate(zip(chunks, kept, sized, strict=True)):
        index, rows = chunk.index, np.zeros(len(keep), ROW)
        rows["chunk"], rows["size"], rows["written"], rows["number"] = number, sizes, written, noted
        for name in ("at", *COUNTS):
            rows[name] = index[name]
        purpose = purposes[number]
        side = np.searchsorted(borders, index["draw"], "right")
        if purpose in SIDES:
            side[:] = SIDES.index(purpose)
        if purpose != "against":
            yield rows[keep], side[keep]


def _sampled(
    rows: Iterable[tuple[np.ndarray, np.ndarray]], sample: DrawnSample, numbers: np.ndarray, purposes: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield given texts, then the sampled documents in the order of the sample.

    `numbers` are the indices of the chunks from which it was drawn.
    """
    drawn, sides = [np.zeros(0, ROW)], [np.zeros(0, np.int64)]
    for chunk_rows, side in rows:
        if len(chunk_rows) and purposes[chunk_rows["chunk"][0]]:
            yield chunk_rows, side
        else:
            drawn.append(chunk_rows)
            sides.append(side)
    all_rows, side = np.concatenate(drawn), np.concatenate(sides)
    order = np.lexsort((all_rows["at"], all_rows["chunk"]))
    location = _keys(all_rows["chunk"][order], all_rows["at"][order])
    wanted = _keys(numbers[sample.chunk], sample.at)
    at = order[np.searchsorted(location, wanted)]
    yield all_rows[at], sample.side


def _keys(chunk: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return a sortable number for each document from its chunk and its offset there, which is below 2^40."""
    return (np.asarray(chunk, np.uint64) << np.uint64(40)) | np.asarray(at, np.uint64)


def _tasks(
    rows: Iterable[tuple[np.ndarray, np.ndarray]],
    writers: Mapping[str, PartWriter],
    stems: Sequence[str],
    again: bool,
    name: str,
) -> Iterator[tuple[Any, ...]]:
    """Yield a task for each part file as soon as its documents are known."""
    waiting = {side: np.zeros(0, ROW) for side in SIDES}
    count = Counter[str]()

    def cut(side: str, last: bool) -> Iterator[tuple[Any, ...]]:
        whole, first, shard = waiting[side], 0, writers[side].shard
        ends = np.cumsum(whole["written"])
        while first < len(whole):
            previous_end = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(ends, previous_end + shard, "right")))
            if end == len(whole) and not last:
                break
            part = whole[first:end]
            used = {number: stems[number] for number in np.unique(part["chunk"]).tolist()}
            yield side, writers[side].folder, count[side], again, part, used, name
            count[side], first = count[side] + 1, end
        waiting[side] = whole[first:]

    for some, side in rows:
        for number in np.unique(side).tolist():
            waiting[SIDES[number]] = np.concatenate([waiting[SIDES[number]], some[side == number]])
            yield from cut(SIDES[number], last=False)
    for split in SIDES:
        yield from cut(split, last=True)


def _write_part(
    split: str, folder: Path, number: int, again: bool, rows: np.ndarray, stems: Mapping[int, str], name: str
) -> tuple[str, PartWriter, int]:
    with PartWriter(folder, sys.maxsize, again=again, first=number) as writer, contextlib.ExitStack() as stack:
        opened, file = -1, None
        for chunk, at, size, written, noted, *counts in rows.tolist():
            if not writer.wants(written):
                writer.add(written, *counts)
                continue
            path = Path(f"{stems[chunk]}.jsonl")
            if chunk != opened:
                stack.close()
                opened, file = chunk, stack.enter_context(path.open("rb"))
            assert file
            file.seek(at)
            line = file.read(size)
            if len(line) != size or line.find(b"\n") != size - 1:
                raise DataError(path, f"no document at byte {at:,}", "a whole chunk", REMEDY)
            writer.write(_with(line, name, noted) if noted else line, *counts)
    return split, writer, int(rows["size"].sum())


def _named(chunks: Sequence[Chunk]) -> list[tuple[str, str, int]]:
    return [(*Path(chunk.stem).parts[-2:], chunk.facts.documents) for chunk in chunks]  # type: ignore[misc]


def _kept(chunks: Sequence[Chunk], dropped: np.ndarray) -> list[np.ndarray]:
    starts = np.concatenate([[0], np.cumsum([chunk.facts.documents for chunk in chunks])])
    at = np.searchsorted(dropped, starts)
    kept = [np.ones(chunk.facts.documents, bool) for chunk in chunks]
    for number, keep in enumerate(kept):
        keep[dropped[at[number] : at[number + 1]] - starts[number]] = False
    return kept


def _resumes(out: Path, inputs: list[Any], dropped: np.ndarray) -> bool:
    """Return whether a killed run wrote the same here. Otherwise delete the files of the splits."""
    mark = out / STEPS / "write.json"
    key = bytes_key(json.dumps(inputs).encode() + np.ascontiguousarray(dropped, "<i8").tobytes())
    if mark.exists() and files.read_json(mark) == key:
        return True
    for name in SPLITS:
        shutil.rmtree(out / name, ignore_errors=True)
    with files.survive_disk(mark):
        mark.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(mark, key)
    return False


def _with(line: bytes, name: str, number: int) -> bytes:
    import msgspec

    document = msgspec.json.decode(line, type=Document)
    document.meta[name] = number
    return msgspec.json.encode(document) + b"\n"

"""The third step of a corpus: what is no duplicate written to its splits.

chunks without the dropped -> the side of each draw -> train/, validation/, test/
"""

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.keys import bytes_key
from ordsmed.base.run import STEPS
from ordsmed.base.say import Progress
from ordsmed.corpus.chunks import REMEDY, Chunk
from ordsmed.corpus.dedup import FIXED
from ordsmed.corpus.folder import SPLITS, PartWriter
from ordsmed.corpus.sample import DrawnSample
from ordsmed.corpus.sample import line as line_of
from ordsmed.corpus.sources import CorpusSource
from ordsmed.corpus.splits import Shares
from ordsmed.text.document import Document

SIDES = ("validation", "test", "train")
Noted = tuple[str, np.ndarray]  # a name, and a number for each document


def write(
    out: Path,
    chunks: Sequence[Chunk],
    sources: Sequence[CorpusSource],
    dropped: np.ndarray,
    shares: Shares,
    shard: int,
    most_words: int = 0,
    noted: Noted | None = None,
) -> tuple[dict[str, PartWriter], DrawnSample | None]:
    """Every document that is not dropped to its split, in the order of the sources; or a sample, in that of its draws.

    Parts that stand whole from a writing of the very same that was killed stay. `noted`: the name of a number that
    goes into the meta of each document, and the numbers; 0: into none.
    """
    kept = _kept(chunks, dropped)
    split = [pair for pair in zip(chunks, kept, strict=True) if sources[pair[0].source].purpose not in FIXED]
    draws = [chunk.index["draw"][keep] for chunk, keep in split]
    borders = np.array(shares.borders(np.concatenate([np.zeros(0, "<u8"), *draws])), "<u8")
    more = [*([most_words] if most_words else []), *([noted[0], bytes_key(noted[1].tobytes())] if noted else [])]
    again = _resumes(out, [_named(chunks), borders.tolist(), shard, *more], dropped)
    most = [int(shares.validation * most_words), int(shares.test * most_words), most_words]
    sample = DrawnSample.of([c for c, _ in split], [k for _, k in split], borders, most) if most_words else None
    starts = np.cumsum([0, *map(len, kept)])[:-1].tolist()
    firsts = {chunk.stem: first for chunk, first in zip(chunks, starts, strict=True)}
    writers = {name: PartWriter(out / name, shard, again=again) for name in SPLITS}
    total = sum(Path(f"{chunk.stem}.jsonl").stat().st_size for chunk in chunks if chunk.facts.documents)
    with contextlib.ExitStack() as stack, Progress("write", total / 1e6, "MB") as shown:
        for writer in writers.values():
            stack.enter_context(writer)
        for chunk, keep in zip(chunks, kept, strict=True):
            purpose = sources[chunk.source].purpose
            of_chunk = (noted[0], noted[1][firsts[chunk.stem] :][: len(keep)]) if noted else None
            if purpose != "against" and chunk.facts.documents and (purpose or sample is None):
                shown.add(_write(writers, chunk, keep, borders, purpose, of_chunk) / 1e6)
        if sample is not None:
            _write_sample(writers, [chunk for chunk, _ in split], sample, noted, firsts)
    return writers, sample


def _write_sample(
    writers: dict[str, PartWriter],
    chunks: Sequence[Chunk],
    sample: DrawnSample,
    noted: Noted | None,
    firsts: dict[str, int],
) -> None:
    """Its documents, in its order."""
    rows = (sample.chunk.tolist(), sample.at.tolist(), sample.side.tolist(), sample.counts.tolist())
    for number, at, side, counts in zip(*rows, strict=True):
        chunk = chunks[number]
        line = line_of(chunk, at)
        if not line.endswith(b"\n"):
            raise DataError(f"{chunk.stem}.jsonl", f"no document at byte {at:,}", "a whole chunk", REMEDY)
        if noted:
            document = firsts[chunk.stem] + int(np.searchsorted(chunk.index["at"], at))
            line = _with(line, noted[0], int(noted[1][document]))
        writers[SIDES[side]].write(line, *counts)


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


def _resumes(out: Path, inputs: list[Any], dropped: np.ndarray) -> bool:
    """Was the same being written here before? If not, what stands is no part of it."""
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


def _write(
    writers: dict[str, PartWriter],
    chunk: Chunk,
    keep: np.ndarray,
    borders: np.ndarray,
    purpose: str,
    noted: Noted | None,
) -> int:
    """One chunk's documents; returns its bytes."""
    index = chunk.index
    name, numbers = (noted[0], noted[1].tolist()) if noted else ("", [0] * len(index))
    sides = np.searchsorted(borders, index["draw"], "right").tolist()
    path = Path(f"{chunk.stem}.jsonl")
    ends = [*index["at"].tolist()[1:], path.stat().st_size]
    with path.open("rb") as file:
        for entry, end, kept, side, number in zip(index.tolist(), ends, keep.tolist(), sides, numbers, strict=True):
            _, _, at, *counts = entry
            writer = writers[purpose or SIDES[side]]
            if kept and not number and not writer.wants(end - at):
                writer.add(end - at, *counts)
            elif kept:
                file.seek(at)
                line = file.readline()
                if at + len(line) != end or not line.endswith(b"\n"):
                    raise DataError(path, f"no document at byte {at:,}", "a whole chunk", REMEDY)
                writer.write(_with(line, name, number) if number else line, *counts)
    return ends[-1]


def _with(line: bytes, name: str, number: int) -> bytes:
    """A document's line with a number in its meta."""
    import msgspec

    document = msgspec.json.decode(line, type=Document)
    document.meta[name] = number
    return msgspec.json.encode(document) + b"\n"

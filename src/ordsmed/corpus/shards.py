"""Write the documents of corpora to many text files of equal length, for training and tests.

    corpus folders -> sentences of every document -> each document to the emptiest shard, the longest ones first
                   -> read again, interleaved     -> train-00000-of-00256.txt ... test-00000-of-00256.txt, manifest.json

Files have one sentence per line and an empty line between documents. A line break inside a sentence becomes a space.
Every corpus is spread over all shards, as far as it has enough documents. Validation and test splits of the corpora are
left out, and reported, unless requested. Source `text` with `sentences = "lines"` reads OUT/train-*.txt. Memory is
about 14 bytes per document and HELD bytes of text.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.corpus.corpus_reader import corpus_folder, making, read_documents
from ordsmed.corpus.folder import SPLITS, documents, parts

HELD = 64 << 20  # bytes of buffered text; files are opened one at a time, because there may be very many
OURS = r"(train|test)-\d+-of-\d+\.txt|manifest\.json"
MOST = 1 << 16  # shards
_LONGEST = (1 << 28) - 1  # larger numbers of sentences count as equal when documents are sorted


@dataclass
class Shard:
    """A file and its counts."""

    name: str
    documents: int = 0
    sentences: int = 0
    bytes: int = 0


Sizes = NDArray[np.uint32]  # number of sentences of every document of a corpus
Assignment = NDArray[np.uint16]  # the shard of every document


def shards(
    folders: Sequence[str],
    out: str,
    *,
    train: int,
    test: int,
    fraction: float = 0.1,
    splits: str = "train",
    anew: bool = False,
) -> list[str]:
    """Write OUT completely or not at all. Return lines to print. The same corpora give the same files."""
    _check(train, test, fraction)
    named = [word.strip() for word in (",".join(SPLITS) if splits == "all" else splits).split(",")]
    if not set(named) <= set(SPLITS):
        raise RecipeError("--splits", f"found {splits}", f"some of {','.join(SPLITS)}, or all")
    chosen = [split for split in SPLITS if split in named]
    sources, target = [corpus_folder(folder) for folder in folders], Path(out)
    with making(target, sources, OURS, anew=anew) as temporary:
        sizes = [np.fromiter(map(len, _texts(source, chosen, "count")), np.uint32) for source in sources]
        assignment = _assign(sizes, [(train, 1 - fraction if test else 1.0), (test, fraction)], target)
        files_to_write = [
            Shard(f"{kind}-{i:05d}-of-{n:05d}.txt") for kind, n in (("train", train), ("test", test)) for i in range(n)
        ]
        _write(temporary, sources, chosen, assignment, files_to_write)
        _compare(temporary, sizes, files_to_write)
        files.write_json(temporary / "manifest.json", {"splits": chosen, **_manifest(sources, sizes, files_to_write)})
    by_kind = {kind: [shard for shard in files_to_write if shard.name.startswith(kind)] for kind in ("train", "test")}
    lines = [_describe(target, kind, kept) for kind, kept in by_kind.items() if kept]
    return [*lines, _describe_splits(sources, chosen)]


def _check(train: int, test: int, fraction: float) -> None:
    if train < 1 or test < 0 or train + test > MOST:
        raise RecipeError("corpus shards", f"--train {train} --test {test}", f"1 to {MOST:,} files, one for training")
    if test and not 0 < fraction < 1:
        raise RecipeError("--fraction", f"{fraction}", "a share of the sentences between 0 and 1")


def _describe_splits(sources: list[Path], chosen: list[str]) -> str:
    counts = {split: sum(_documents(source, split) for source in sources) for split in SPLITS if split not in chosen}
    out = ", ".join(f"{split} ({many(count, 'document')})" for split, count in counts.items() if count)
    return f"of the corpora's splits: {', '.join(chosen)}" + (
        f"; left out: {out}; --splits all takes them" if out else ""
    )


def _documents(source: Path, split: str) -> int:
    count = (Run(source).status.get(split) or {}).get("documents")
    return int(count) if count is not None else sum(1 for part in parts(source, split) for _ in documents(part))


def _texts(source: Path, splits: Sequence[str], doing: str) -> Iterator[list[str]]:
    paths = [part for split in splits for part in parts(source, split)]
    for document in read_documents(f"{doing} {source.name}", paths):
        if sentences := [stripped for sentence in document.sentences() if (stripped := sentence.strip())]:
            yield sentences


def _lines(sentences: list[str]) -> str:
    text = "\n".join(sentences)
    if len(text.splitlines()) != len(sentences):
        text = "\n".join(" ".join(sentence.splitlines()) for sentence in sentences)
    return text + "\n"


def _assign(sizes: list[Sizes], sides: Sequence[tuple[int, float]], target: Path) -> list[Assignment]:
    """Return the shard of every document: the emptiest one, relative to its capacity.

    The corpus with the longest document goes first, so that short documents of the others fill the gaps.
    """
    unassigned, empty = sum(map(len, sizes)), sum(number for number, _ in sides)
    if unassigned < empty:
        remedy = "request fewer shards, or build the corpus again with shorter documents"
        raise DataError(
            target,
            f"{many(unassigned, 'document')} for {many(empty, 'shard')}",
            "at least one document per shard",
            remedy,
        )
    heaps, first = list[tuple[list[tuple[int, int]], float]](), 0  # (sentences, shard), the emptiest first
    for number, share in sides:
        if number:
            heaps.append(([(0, first + n) for n in range(number)], share / number))
        first += number
    assignment = [np.zeros(len(of_one), np.uint16) for of_one in sizes]
    for corpus in sorted(range(len(sizes)), key=lambda n: -int(sizes[n].max(initial=0))):
        for number, size in _longest_first(sizes[corpus]):
            fit = [heap for heap in heaps if not heap[0][0][0]] if unassigned == empty else heaps
            heap, _ = min(fit, key=lambda h: (h[0][0][0] + size) / h[1])
            load, shard = heap[0]
            heapq.heapreplace(heap, (load + size, shard))
            assignment[corpus][number] = shard
            unassigned, empty = unassigned - 1, empty - (not load)
    return assignment


def _longest_first(sizes: Sizes) -> Iterator[tuple[int, int]]:
    order = (_LONGEST - np.minimum(sizes, _LONGEST)).astype(np.uint64) << np.uint64(36)
    order |= np.arange(len(sizes), dtype=np.uint64)
    order.sort()
    for at in range(0, len(order), 1 << 16):
        numbers = (order[at : at + (1 << 16)] & np.uint64((1 << 36) - 1)).astype(np.int64)
        yield from zip(numbers.tolist(), sizes[numbers].tolist(), strict=True)


def _write(
    folder: Path, sources: list[Path], splits: list[str], assignment: list[Assignment], shards: list[Shard]
) -> None:
    waiting, size = [bytearray() for _ in shards], 0
    for corpus, number, sentences in _side_by_side(sources, splits, assignment):
        location = int(assignment[corpus][number])
        shard, text = shards[location], _lines(sentences).encode()
        waiting[location] += b"\n" + text if shard.documents else text
        shard.documents += 1
        shard.sentences += len(sentences)
        size += len(text)
        if size > HELD:
            _empty(folder, waiting, shards)
            size = 0
    _empty(folder, waiting, shards)
    with files.survive_disk(folder):
        for shard in shards:
            files.sync(folder / shard.name)


def _side_by_side(
    sources: list[Path], splits: list[str], assignment: list[Assignment]
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield corpus, number and sentences of every document, interleaved so that all corpora end together."""

    def walked(corpus: int) -> Iterator[tuple[float, int, int, list[str]]]:
        count = len(assignment[corpus])
        for number, sentences in enumerate(_texts(sources[corpus], splits, "write")):
            if number == count:
                raise _changed(sources[corpus])
            yield (number + 0.5) / count, corpus, number, sentences

    yield from (entry for _, *entry in heapq.merge(*map(walked, range(len(sources)))))  # type: ignore[misc]


def _empty(folder: Path, waiting: list[bytearray], shards: list[Shard]) -> None:
    for shard, text in zip(shards, waiting, strict=True):
        if text:
            with files.survive_disk(folder), (folder / shard.name).open("ab") as file:
                file.write(text)
            shard.bytes += len(text)
            text.clear()


def _compare(folder: Path, sizes: list[Sizes], shards: list[Shard]) -> None:
    counted = (sum(map(len, sizes)), sum(int(of_one.sum()) for of_one in sizes))
    if counted != (sum(s.documents for s in shards), sum(s.sentences for s in shards)):
        raise _changed(folder)
    if short := [s.name for s in shards if (folder / s.name).stat().st_size != s.bytes]:
        raise RunError(folder / short[0], "is shorter than the data written to it", "", "check the disk; start again")


def _changed(path: Path) -> RunError:
    return RunError(path, "its documents changed while they were read", "a finished corpus", "start again")


def _manifest(sources: list[Path], sizes: list[Sizes], shards: list[Shard]) -> dict[str, Any]:
    read = []
    for source, of_source in zip(sources, sizes, strict=True):
        counts = {"documents": len(of_source), "sentences": int(of_source.sum())}
        read.append({"folder": str(source), "fingerprint": Run(source).status["fingerprint"], **counts})
    return {"sources": read, "shards": {s.name: {k: v for k, v in asdict(s).items() if k != "name"} for s in shards}}


def _describe(target: Path, kind: str, shards: list[Shard]) -> str:
    documents, sentences = sum(s.documents for s in shards), [s.sentences for s in shards]
    lengths = f"{min(sentences):,} to {many(max(sentences), 'sentence')} each"
    contents = f"{many(documents, 'document')}, {many(sum(sentences), 'sentence')}"
    return f"{target}/{kind}-*.txt: {many(len(shards), 'file')}, {contents}, {lengths}"

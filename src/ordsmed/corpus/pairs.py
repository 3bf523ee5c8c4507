"""Make unlabeled pairs of texts from a corpus or from two parallel files, as JSON lines for training embeddings.

    corpus -> passages -> a pair each, of a random kind (pair_kinds.py)   |  two files, line by line
      -> no pairs that contain test data, no repeated anchors -> signatures of positives -> near duplicates -> OUT

    {"anchor": "When did it rain?", "positive": "It rained all May.", "document": "books/a:3", "source": "questions"}

Pairs that may still be dropped are kept in a folder next to OUT until all are known. Memory is about 40 bytes per pair.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ordsmed.base import chance, files
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.keys import text_number
from ordsmed.base.say import Progress, many
from ordsmed.corpus import near
from ordsmed.corpus.corpus_reader import corpus_folder, read_documents
from ordsmed.corpus.decontamination import Decontaminate, HeldOut
from ordsmed.corpus.folder import SPLITS, parts
from ordsmed.corpus.pair_kinds import KINDS, DrawnPair, pairs_of
from ordsmed.corpus.signatures import Near, signatures
from ordsmed.text import read
from ordsmed.text.text_hashes import SeenTexts

TOGETHER = 1 << 10  # pairs processed at once
SHORT, QUOTED, AGAIN, ALIKE, OVER, BLANK = (
    "passage too short for a pair",
    "pair quoting a file of --against",
    "pair with a repeated anchor",
    "pair with a positive nearly equal to another",
    "pair over --max-pairs",
    "line with an empty side",
)


@dataclass(frozen=True)
class Pairing:
    """Settings for making and filtering pairs."""

    shares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 1.0))
    length: int = 150  # words of a passage
    shortest: int = 5  # least words of a side, except titles and questions
    most: int | None = None
    near: float = 0.7  # Jaccard similarity from which the later positive is dropped; 0: keep all
    against: tuple[str, ...] = ()
    split: str = "train"
    seed: int = 0

    def __post_init__(self) -> None:
        for kind, share in self.shares.items():
            if kind not in KINDS:
                raise RecipeError("--kinds", f"found {kind}", " or ".join(KINDS), meant(kind, [*KINDS]))
            if not 0 <= share < float("inf"):
                raise RecipeError("--kinds", f"found {kind}={share:g}", "a share, as title=1 cloze=0.5")
        if not any(self.shares.values()):
            raise RecipeError("--kinds", "found no share above 0", "title=1 cloze=0.5, ...")
        if self.split not in SPLITS:
            raise RecipeError("--split", f"found {self.split}", " or ".join(SPLITS), meant(self.split, [*SPLITS]))
        if self.length < 4 * self.shortest:
            wanted = f"{4 * self.shortest} or more, four times --min-words"
            raise RecipeError("--length", f"found {self.length}", wanted)
        if not 0 <= self.near <= 1:
            raise RecipeError("--near", f"found {self.near:g}", "from 0 (keep all) to 1")

    def check_lines(self) -> None:
        """Raise RecipeError for options that apply only to a corpus."""
        for name, flag in (("shares", "kinds"), ("length",) * 2, ("shortest",) * 2, ("split",) * 2):
            if getattr(self, name) != getattr(Pairing(), name):
                raise RecipeError(f"--{flag}", "found with two files, whose lines are the pairs", "a corpus")


def write_pairs(sources: Sequence[str], out: str, settings: Pairing, *, anew: bool = False) -> list[str]:
    """Write OUT completely or not at all, from a corpus, or from two files line by line. Return lines to print."""
    target, paths = Path(out), [Path(source) for source in sources]
    if target.is_dir() or (target.exists() and not anew):
        raise RecipeError(target, "exists", "a file to write", "name another, or add --anew: it moves this one aside")
    if len(paths) > 2 or (len(paths) == 2 and not all(path.is_file() for path in paths)):
        raise RecipeError("corpus pairs", f"found {', '.join(sources)}", "a corpus, or two files, line by line")
    held_out = Decontaminate(list(settings.against)).grams() if settings.against else None
    dropped: Counter[str] = Counter()
    if len(paths) == 2:
        settings.check_lines()
        drawn = _by_lines(paths[0], paths[1], dropped)
    else:
        drawn = _of_corpus(corpus_folder(sources[0]), settings, dropped)
    scratch = target.with_name(f".{target.name}.part")
    try:
        with files.survive_disk(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
        waiting = Waiting.of(drawn, scratch, settings, held_out, dropped)
        kept = waiting.kept(settings, scratch, dropped)
        if not len(kept):
            raise DataError(sources[0], "gives no pair", "documents of several sentences", _lines_of(dropped))
        kinds, documents = waiting.write(kept, target)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(scratch)
    line = f"{target}: {many(len(kept), 'pair')} of {many(documents, 'document')}"
    counts = ", ".join(f"{kind} {kinds[kind]:,} ({kinds[kind] / len(kept):.0%})" for kind in kinds)
    return [line, counts, *([f"left out: {_lines_of(dropped)}"] if dropped.total() else [])]


def _lines_of(dropped: Counter[str]) -> str:
    reasons = ((count, *reason.partition(" ")[::2]) for reason, count in dropped.items() if count)
    return ", ".join(f"{many(count, noun)} {reason}" for count, noun, reason in reasons)


def _of_corpus(folder: Path, settings: Pairing, dropped: Counter[str]) -> Iterator[DrawnPair]:
    sources = parts(folder, settings.split)
    if not sources:
        raise DataError(folder, f"has no documents in {settings.split}", "a split that it has", "`--split train`")
    for number, document in enumerate(read_documents("pairs", sources)):
        name = document.id or f"{settings.split}:{number}"
        for pair in pairs_of(document, name, settings.shares, settings.length, settings.shortest, settings.seed):
            if pair:
                yield pair
            else:
                dropped[SHORT] += 1


def _by_lines(first: Path, second: Path, dropped: Counter[str]) -> Iterator[DrawnPair]:
    lines = zip_longest(read.lines(first), read.lines(second))
    for number, (anchor, positive) in enumerate(lines, 1):
        if anchor is None or positive is None:
            shorter_name, longer_name = (first, second) if anchor is None else (second, first)
            raise DataError(
                shorter_name, f"ends at line {number - 1:,}, but {longer_name} continues", "as many lines in both"
            )
        if anchor.strip() and positive.strip():
            yield DrawnPair(anchor.strip(), positive.strip(), "translation", f"{first.name}:{number}")
        else:
            dropped[BLANK] += 1


@dataclass(frozen=True)
class Waiting:
    """Pairs in a temporary file, of which some will be dropped."""

    path: Path
    starts: np.ndarray  # byte offset of each, and the end of the last
    signed: list[Path]
    counts: list[int]

    @staticmethod
    def of(
        drawn: Iterator[DrawnPair], folder: Path, settings: Pairing, held_out: HeldOut | None, dropped: Counter[str]
    ) -> Waiting:
        import msgspec

        path, seen, starts, counts = folder / "pairs.jsonl", SeenTexts(), [0], list[int]()
        with files.survive_disk(folder), path.open("wb") as file:
            while block := list(islice(drawn, TOGETHER)):
                pairs = [pair for pair in _clean(block, held_out, dropped) if _first(pair, seen, dropped)]
                for pair in pairs:
                    record = {name: getattr(pair, name) for name in ("anchor", "positive", "document", "source")}
                    starts.append(starts[-1] + file.write(msgspec.json.encode(record) + b"\n"))
                if settings.near:
                    np.save(folder / f"{len(counts)}.npy", signatures([pair.positive for pair in pairs], Near()))
                counts.append(len(pairs))
        signed = [folder / f"{n}.npy" for n in range(len(counts))] if settings.near else []
        return Waiting(path, np.array(starts), signed, counts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def positive(self, number: int) -> str:
        with self.path.open("rb") as file:
            return str(json.loads(self._line(file, number))["positive"])

    def kept(self, settings: Pairing, folder: Path, dropped: Counter[str]) -> np.ndarray:
        stays = np.ones(len(self), bool)
        if settings.near and len(self):
            alike = Near(threshold=settings.near, keep="first")
            duplicates = near.find(self.signed, self.counts, None, self.positive, alike, folder)
            stays[duplicates.numbers] = False
            dropped[ALIKE] = len(duplicates.numbers)
        numbers = np.flatnonzero(stays)
        if settings.most is not None and settings.most < len(numbers):
            dropped[OVER] = len(numbers) - settings.most
            order = np.argsort(chance.bits(chance.key("most pairs", settings.seed), numbers), kind="stable")
            numbers = np.sort(numbers[order[: settings.most]])
        return numbers

    def write(self, numbers: np.ndarray, target: Path) -> tuple[Counter[str], int]:
        kinds, documents = Counter[str](), set[int]()
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.path.open("rb") as file,
            files.writing(target, keep=True) as out,
            Progress("write", len(numbers), "pairs") as bar,
        ):
            for number in numbers.tolist():
                line = self._line(file, number)
                record = json.loads(line)
                kinds[record["source"]] += 1
                documents.add(text_number(record["document"]))
                out.write(line)
                bar.add(1)
        return kinds, len(documents)

    def _line(self, file: BinaryIO, number: int) -> bytes:
        file.seek(int(self.starts[number]))
        return file.read(int(self.starts[number + 1] - self.starts[number]))


def _clean(block: Sequence[DrawnPair], held_out: HeldOut | None, dropped: Counter[str]) -> list[DrawnPair]:
    if held_out is None:
        return list(block)
    hits = held_out.search([side for pair in block for side in (pair.anchor, pair.positive)])
    clean = [pair for pair, *both in zip(block, hits[::2], hits[1::2], strict=True) if both == [None, None]]
    dropped[QUOTED] += len(block) - len(clean)
    return clean


def _first(pair: DrawnPair, seen: SeenTexts, dropped: Counter[str]) -> bool:
    """Return whether this anchor is new. Two pairs with the same anchor would be each other's wrong negatives."""
    new = seen.add(text_number(" ".join(pair.anchor.casefold().split())))
    dropped[AGAIN] += not new
    return new

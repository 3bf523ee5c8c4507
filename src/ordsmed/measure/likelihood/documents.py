"""Documents to score: a text file is one document, in JSON lines every line is one; long documents come in parts.

A part ends where tokenizing both sides separately gives the tokens of the whole, so that a text of any size is read in
bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import paths_of, records, text_of, valid
from ordsmed.text import read

PART = 1 << 21  # characters per part
BESIDE = 256  # characters on each side that are tokenized to check a cut
TRIED = 64  # positions at which a cut is tried


def documents(files: Sequence[str], key: str) -> Iterator[tuple[str, Iterable[str]]]:
    for name in files:
        if kind_of_folder(Path(name)) is FolderKind.STORE:
            remedy = "`--probe perplexity` reads it, as its only input; for a masked model `pseudo_perplexity`"
            raise DataError(name, "is a folder written by `encode`", "texts", remedy)
    for path in paths_of(files):
        if is_json(path):
            for location, row in records(path):
                yield location, [text_of(row, key, location)]
        else:
            yield str(path), _of_file(path)


def _of_file(path: Path) -> Iterator[str]:
    empty = True
    for text in read.texts(path):
        empty = empty and not text.strip()
        yield text
    if empty:
        raise DataError(path, "is empty", "a text")


def is_json(path: Path) -> bool:
    return bool({".json", ".jsonl", ".ndjson"} & set(path.suffixes))


def text_parts(scorer: Scorer, blocks: Iterable[str], location: str) -> Iterator[str]:
    """Yield a text in parts whose concatenated tokens are those of the whole text."""
    buffer: list[str] = []
    size = 0
    for block in blocks:
        valid(block, location)
        buffer.append(block)
        size += len(block)
        if size < PART + BESIDE:
            continue
        text = "".join(buffer)
        begin = 0
        while len(text) - begin >= PART + BESIDE and (end := _end(scorer, text, begin)):
            yield text[begin:end]
            begin = end
        buffer, size = [text[begin:]], len(text) - begin
    if size:
        yield "".join(buffer)


def _end(scorer: Scorer, text: str, begin: int) -> int:
    """Return the end of the part from `begin`, at a line end or other white space; 0 if more text must be read."""
    for spaces in ("\n", " \t"):
        at = begin + PART
        for _ in range(TRIED):
            at = max(text.rfind(sign, begin + 1, at) for sign in spaces)
            if at <= begin:
                break
            left = text[max(at - BESIDE, begin) : at]
            behind = text[at : at + BESIDE]
            whole, *both = (item.pieces for item in scorer.cut([left + behind, left, behind]))
            if np.array_equal(whole, np.concatenate(both)):
                return at
    return 0


def lines(blocks: Iterable[str]) -> Iterator[str]:
    remainder = ""
    for block in blocks:
        *whole, remainder = (remainder + block).split("\n")
        yield from filter(str.strip, whole)
    if remainder.strip():
        yield remainder

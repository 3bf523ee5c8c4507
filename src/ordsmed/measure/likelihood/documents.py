"""Documents to be scored: a text file is one, of JSON lines every line; a long one comes in parts.

A part ends where the tokens of both sides are those of the whole, so that a text of any size is read in bounded memory.
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

PART = 1 << 21  # characters of a part
BESIDE = 256  # characters on both sides of a place that tell whether a text can be cut there
TRIED = 64  # such places


def documents(files: Sequence[str], key: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Each with its place, in blocks as they are read."""
    for name in files:
        if kind_of_folder(Path(name)) is FolderKind.STORE:
            remedy = "`--probe perplexity` takes it, alone; of a masked model `pseudo_perplexity`"
            raise DataError(name, "is the folder of an `encode`", "texts", remedy)
    for path in paths_of(files):
        if is_json(path):
            for place, row in records(path):
                yield place, [text_of(row, key, place)]
        else:
            yield str(path), _of_file(path)


def _of_file(path: Path) -> Iterator[str]:
    """The blocks of a text file, which must hold something."""
    empty = True
    for text in read.texts(path):
        empty = empty and not text.strip()
        yield text
    if empty:
        raise DataError(path, "is empty", "a text")


def is_json(path: Path) -> bool:
    return bool({".json", ".jsonl", ".ndjson"} & set(path.suffixes))


def text_parts(scorer: Scorer, blocks: Iterable[str], place: str) -> Iterator[str]:
    """A text in parts whose tokens, end to end, are those of the whole."""
    buffer: list[str] = []
    size = 0
    for block in blocks:
        valid(block, place)
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
    """Where a part can end: before white space, a line end if there is one; 0: nowhere, so that more is to be read."""
    for spaces in ("\n", " \t"):
        at = begin + PART
        for _ in range(TRIED):
            at = max(text.rfind(sign, begin + 1, at) for sign in spaces)
            if at <= begin:
                break
            before = text[max(at - BESIDE, begin) : at]
            behind = text[at : at + BESIDE]
            whole, *both = (item.pieces for item in scorer.cut([before + behind, before, behind]))
            if np.array_equal(whole, np.concatenate(both)):
                return at
    return 0


def lines(blocks: Iterable[str]) -> Iterator[str]:
    """The lines of a text that are not empty, without their ends."""
    rest = ""
    for block in blocks:
        *whole, rest = (rest + block).split("\n")
        yield from filter(str.strip, whole)
    if rest.strip():
        yield rest

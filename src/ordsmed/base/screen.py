"""How lines fit a screen, and how a command is written so that a shell takes it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO


def columns(stream: TextIO) -> int:
    """How wide lines may be: a terminal's width, or what COLUMNS says; 0: as wide as they like, in a file or pipe."""
    setting = os.environ.get("COLUMNS", "")
    if not stream.isatty() and not setting.isdigit():
        return 0
    return shutil.get_terminal_size().columns


def fitted(line: str, wide: int) -> list[str]:
    """A line in lines of so many columns: broken between words, under the place where its last column begins.

    Commands (in back-ticks, or behind `next:`), paths and other long words stay whole, so that they can be copied.
    """
    if not wide or len(line) <= wide or re.match(r"(next:)? +ordsmed ", line):
        return [line]
    lead = re.match(r"\s*(?:\S+(?: \S+)*\s{2,})*", line)
    name, indent = lead[0] if lead else "", " " * (len(line) - len(line.lstrip()))
    if len(name) > max(len(indent), wide // 2):
        return [name.rstrip(), *fitted(f"{indent}    {line[len(name) :]}", wide)]
    whole = re.sub(r"`[^`]*`", lambda match: match[0].replace(" ", "\0"), line[len(name) :])
    parts = textwrap.wrap(name.replace(" ", "\0") + whole, wide, subsequent_indent=" " * len(name),
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return [part.replace("\0", " ") for part in parts]


def table(rows: Iterable[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Columns one below the other; `numbers`: all but the first end below each other."""
    return ["  " + "  ".join(row).rstrip() for row in _padded(list(rows), numbers)]


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]], *, padded: bool = False) -> list[str]:
    """A Markdown table, a bar within a cell escaped; `padded`: columns one below the other for who reads it as text."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [head, *rows]]
    cells = _padded(cells) if padded else cells
    cells.insert(1, ["-" * (len(cell) if padded else 3) for cell in cells[0]])
    return ["| " + " | ".join(row) + " |" for row in cells]


def _padded(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[list[str]]:
    """Cells as wide as the widest of their column."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[f"{cell:{'>' if numbers and at else '<'}{wide[at]}}" for at, cell in enumerate(row)] for row in rows]


def command(*words: object) -> str:
    """`ordsmed WORDS` as a shell takes it: with quotes where a word has spaces or signs that a shell reads."""
    return shlex.join(["ordsmed", *(str(word) for word in words)])

"""How lines fit a screen, and how a command is written so that a shell takes it."""

import html
import itertools
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

COMMAND_LINE = re.compile(r" +ordsmed | {4}(?:python3|reframe|cd) ")  # as `command_lines` writes it
UNSAFE = frozenset('"$`\\!')  # characters that a shell reads within double quotes


def columns(stream: TextIO) -> int:
    """How wide lines may be: as the terminal is, or as COLUMNS says of it; 0: of any width, in a file or pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def fitted_lines(lines: Iterable[str], wide: int) -> Iterator[str]:
    """Lines in so many columns: of Markdown tables every row is whole, other lines are broken as `fitted` does."""
    for tabular, group in itertools.groupby(lines, lambda line: line.startswith("| ")):
        if tabular:
            yield from _fitted_table(list(group), wide)
        else:
            for line in group:
                yield from fitted(line, wide)


def _fitted_table(lines: list[str], wide: int) -> Iterator[str]:
    """A Markdown table with its cells wrapped; where words are too wide for that, a row is a block of `name: cell`."""
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    if not wide or max(map(len, lines)) <= wide or {len(row) for row in cells} != {len(cells[-1])} or not lines[1:]:
        yield from lines
        return
    head, _, *rows = cells
    by_column = list(zip(head, *rows, strict=True))
    least = [max(len(word) for cell in cells for word in (cell.split() or ["-"])) for cells in by_column]
    widths, room = [max(map(len, cells)) for cells in by_column], wide - 3 * len(head) - 1
    if sum(least) > room:
        for row in rows:
            pairs = [f"{name}: {cell}" for name, cell in zip(head, row, strict=True) if cell]
            for at, pair in enumerate(pairs):
                yield from fitted(f"    {pair}" if at else pair, wide)
        return
    while sum(widths) > room:  # the widest gives way
        widths[max(range(len(head)), key=lambda at: (widths[at] > least[at], widths[at]))] -= 1
    for row in [head, ["-" * width for width in widths], *rows]:
        wrapped = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*wrapped, fillvalue=""):
            yield f"| {' | '.join(part.ljust(width) for part, width in zip(parts, widths, strict=True))} |"


def fitted(line: str, wide: int) -> list[str]:
    """A line in lines of so many columns: broken between words, under the place where its last column begins.

    Commands (in back-ticks, or on lines of their own), paths and other long words stay whole, to be copied.
    """
    if not wide or len(line) <= wide or COMMAND_LINE.match(line):
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


def html_table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """The same for a notebook; whatever stands in a cell is text."""
    tagged = [*([("th", head)] if head else []), *(("td", row) for row in rows)]
    lines = ("".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) for tag, row in tagged)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _padded(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[list[str]]:
    """Cells as wide as the widest of their column."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[f"{cell:{'>' if numbers and at else '<'}{wide[at]}}" for at, cell in enumerate(row)] for row in rows]


def command(*words: object) -> str:
    """Return `ordsmed WORDS` as a shell reads it back: words with spaces or special characters are quoted."""
    return shell_command("ordsmed", *words)


def shell_command(*words: object) -> str:
    """Return a command of any program, quoted for a shell."""
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    """Return a word quoted for a shell; double quotes make words with apostrophes readable."""
    return f'"{word}"' if "'" in word and UNSAFE.isdisjoint(word) else shlex.quote(word)


def command_lines(title: str, *commands: str) -> list[str]:
    """Return a title and below it each command on a line of its own, which `fitted` never breaks."""
    return [f"{title}:", *(f"    {line}" for line in commands)]

"""Fit lines and tables to a screen, and quote commands for a shell."""

import html
import itertools
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

COMMAND_LINE = re.compile(r" +ordsmed | {4}(?:python3|reframe|cd) ")  # as `command_lines` writes it
UNSAFE = frozenset('"$`\\!')  # characters that are special within double quotes


def columns(stream: TextIO) -> int:
    """Return the width of a terminal (or COLUMNS), or 0 for a file or pipe, where lines are not broken."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def fitted_lines(lines: Iterable[str], wide: int) -> Iterator[str]:
    """Yield lines that fit a width. Rows of Markdown tables stay complete; other lines are broken by `fitted`."""
    for tabular, group in itertools.groupby(lines, lambda line: line.startswith("| ")):
        if tabular:
            yield from _fitted_table(list(group), wide)
        else:
            for line in group:
                yield from fitted(line, wide)


def _fitted_table(lines: list[str], wide: int) -> Iterator[str]:
    """Yield a Markdown table with wrapped cells, or a block of `name: cell` per row if words are too wide."""
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    if not wide or max(map(len, lines)) <= wide or {len(row) for row in cells} != {len(cells[-1])} or not lines[1:]:
        yield from lines
        return
    head, _, *rows = cells
    by_column = list(zip(head, *rows, strict=True))
    narrowest = [max(len(word) for cell in cells for word in (cell.split() or ["-"])) for cells in by_column]
    widths, available = [max(map(len, cells)) for cells in by_column], wide - 3 * len(head) - 1
    if sum(narrowest) > available:
        for row in rows:
            pairs = [f"{name}: {cell}" for name, cell in zip(head, row, strict=True) if cell]
            for at, pair in enumerate(pairs):
                yield from fitted(f"    {pair}" if at else pair, wide)
        return
    while sum(widths) > available:  # shrink the widest column
        widths[max(range(len(head)), key=lambda at: (widths[at] > narrowest[at], widths[at]))] -= 1
    for row in [head, ["-" * width for width in widths], *rows]:
        wrapped = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*wrapped, fillvalue=""):
            yield f"| {' | '.join(part.ljust(width) for part, width in zip(parts, widths, strict=True))} |"


def fitted(line: str, wide: int) -> list[str]:
    """Break a line between words, and indent the rest to the line's last column.

    Commands (in back-ticks or on separate lines), paths and other long words are not broken, so they can be copied.
    """
    if not wide or len(line) <= wide or COMMAND_LINE.match(line):
        return [line]
    lead = re.match(r"\s*(?:\S+(?: \S+)*\s{2,})*", line)
    name, indent = lead[0] if lead else "", " " * (len(line) - len(line.lstrip()))
    if len(name) > max(len(indent), wide // 2):
        return [name.rstrip(), *fitted(f"{indent}    {line[len(name) :]}", wide)]
    whole = re.sub(r"`[^`]*`", lambda match: match[0].replace(" ", "\0"), line[len(name) :])
    wrapper = textwrap.TextWrapper(wide, break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * len(name)
    return [part.replace("\0", " ") for part in wrapper.wrap(name.replace(" ", "\0") + whole)]


def table(rows: Iterable[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Return rows with aligned columns. With `numbers`, all columns but the first are right-aligned."""
    return ["  " + "  ".join(row).rstrip() for row in _padded(list(rows), numbers)]


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]], *, padded: bool = False) -> list[str]:
    """Return the lines of a Markdown table with escaped bars. With `padded`, its columns are aligned as text."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [head, *rows]]
    cells = _padded(cells) if padded else cells
    cells.insert(1, ["-" * (len(cell) if padded else 3) for cell in cells[0]])
    return ["| " + " | ".join(row) + " |" for row in cells]


def html_table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    tagged = [*([("th", head)] if head else []), *(("td", row) for row in rows)]
    lines = ("".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) for tag, row in tagged)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _padded(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[list[str]]:
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[f"{cell:{'>' if numbers and at else '<'}{wide[at]}}" for at, cell in enumerate(row)] for row in rows]


def command(*words: object) -> str:
    """Return the command `ordsmed WORDS`, quoted for a shell."""
    return shell_command("ordsmed", *words)


def shell_command(*words: object) -> str:
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    """Return a word quoted for a shell. A word with apostrophes gets double quotes, which are easier to read."""
    return f'"{word}"' if "'" in word and UNSAFE.isdisjoint(word) else shlex.quote(word)


def command_lines(title: str, *commands: str) -> list[str]:
    """Return a title, and each command on a separate line, which `fitted` never breaks."""
    return [f"{title}:", *(f"    {line}" for line in commands)]

"""Building blocks of all reports: HTML document and tables, escaped Markdown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ordsmed.tell.report.tables import ReportCell, ReportTable

HERE = Path(__file__).parent
AGAIN = 10  # seconds between reloads in a browser without scripts
BREAKS = re.compile(r"([,/_]|\.(?=\D))(?=\S)")  # positions where a long name may wrap
SIGNS = re.compile(r"([\\`*_\[\]<>])")  # characters with a meaning in Markdown


def dumps(value: object) -> str:
    """Return strict JSON; NaN is an error."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def document(title: str, parts: Iterable[str], facts: Mapping[str, Any], *, live: str = "") -> str:
    """Return an HTML page of these parts with the common style and script; `facts` is the embedded JSON."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    state = f' data-live="{html.escape(live)}"' if live else ""
    refresh = f'<noscript><meta http-equiv="refresh" content="{AGAIN}"></noscript>' if live else ""
    text = dumps(facts).replace("<", "\\u003c").replace("&", "\\u0026")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{refresh}'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style></head>\n"
        f"<body{state}>\n"
        + "\n".join(parts)
        + f'\n<script type="application/json" id="report">{text}</script>\n<script>\n{script}</script>\n'
        "</body></html>\n"
    )


def section(table: ReportTable, before: str = "") -> str:
    """Return a table with its heading; `before` is a chart above it."""
    about = f'<p class="about">{with_code(table.about)}</p>' if table.about else ""
    title = f"<h2>{html.escape(table.title)}</h2>"
    head = "".join(f'<th scope="col"{_class(table, n)}>{html.escape(name)}</th>' for n, name in enumerate(table.head))
    cells = (
        "".join(cell(entry, "td", _column(table, n, entry), breaks=not n) for n, entry in enumerate(row))
        for row in table.rows
    )
    rows = "".join(f"<tr>{row}</tr>\n" for row in cells)
    grid = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'
    return f'<section id="{html.escape(table.key)}">{title}{about}{before}{grid}</section>'


def _class(table: ReportTable, column: int, shown: ReportCell | None = None) -> str:
    if column in table.numbers:
        return ' class="n"'
    return ' class="wide"' if shown and len(shown.text) > 32 else ""


def _column(table: ReportTable, column: int, shown: ReportCell) -> str:
    return f'{_class(table, column, shown)} data-head="{html.escape(table.head[column])}"'


def cell(shown: ReportCell, tag: str, kind: str = "", *, breaks: bool = False) -> str:
    """Return a cell with its exact value and its path in the JSON; `breaks`: long names may wrap."""
    value = "" if shown.value is None else f' data-value="{html.escape(_exact(shown.value))}"'
    source = f' data-from="/{html.escape("/".join(map(str, shown.source)))}"' if shown.source and value else ""
    text = html.escape(shown.text)
    text = BREAKS.sub(r"\1<wbr>", text) if breaks and not isinstance(shown.value, int | float) else text
    return f"<{tag}{kind}{value}{source}>{text}</{tag}>"


def _exact(value: float | int | str) -> str:
    return value if isinstance(value, str) else dumps(value)


def with_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def plain(text: str) -> str:
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    return SIGNS.sub(r"\\\1", text).replace("&", "&amp;")

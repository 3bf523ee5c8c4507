"""Parts that all reports have, of runs or not: a document of HTML, its tables; text that is no Markdown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ordsmed.tell.report.tables import ReportCell, ReportTable

HERE = Path(__file__).parent
AGAIN = 10  # seconds after which a browser without scripts asks again
BREAKS = re.compile(r"([,/_]|\.(?=\D))(?=\S)")  # after which a long name may go on in the next line
SIGNS = re.compile(r"([\\`*_\[\]<>])")  # what Markdown would read as something else


def dumps(value: object) -> str:
    """JSON as every reader takes it: what is no number is null."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def document(title: str, parts: Iterable[str], facts: Mapping[str, Any], *, live: str = "") -> str:
    """A page of these parts, with the style and the script of all reports; `facts`: the JSON that it holds."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    state = f' data-live="{html.escape(live)}"' if live else ""
    again = f'<noscript><meta http-equiv="refresh" content="{AGAIN}"></noscript>' if live else ""
    text = dumps(facts).replace("<", "\\u003c").replace("&", "\\u0026")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{again}'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style></head>\n"
        f"<body{state}>\n"
        + "\n".join(parts)
        + f'\n<script type="application/json" id="report">{text}</script>\n<script>\n{script}</script>\n'
        "</body></html>\n"
    )


def section(table: ReportTable, before: str = "") -> str:
    """A table with its heading; `before`: a picture above it."""
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
    """Attributes of a cell: its class, and the head of its column, which a narrow screen shows before it."""
    return f'{_class(table, column, shown)} data-head="{html.escape(table.head[column])}"'


def cell(shown: ReportCell, tag: str, kind: str = "", *, breaks: bool = False) -> str:
    """A cell with the number that it rounds, and where that stands in the JSON; `breaks`: it may have several lines."""
    value = "" if shown.value is None else f' data-value="{html.escape(_exact(shown.value))}"'
    source = f' data-from="/{html.escape("/".join(map(str, shown.source)))}"' if shown.source and value else ""
    text = html.escape(shown.text)
    text = BREAKS.sub(r"\1<wbr>", text) if breaks and not isinstance(shown.value, int | float) else text
    return f"<{tag}{kind}{value}{source}>{text}</{tag}>"


def _exact(value: float | int | str) -> str:
    return value if isinstance(value, str) else dumps(value)


def with_code(text: str) -> str:
    """Text in which `commands` and `settings` stand apart."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def plain(text: str) -> str:
    """As text in Markdown: nothing in it is Markdown or HTML."""
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    return SIGNS.sub(r"\\\1", text).replace("&", "&amp;")

"""Format collected validation reports as text, Markdown or HTML, from the JSON data of `collect.facts`."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ordsmed.base import screen
from ordsmed.base.say import many
from ordsmed.machines.suite.collect import RED
from ordsmed.tell.report import parts
from ordsmed.tell.report.parts import plain
from ordsmed.tell.report.tables import Cells, ReportTable, cut, sentence, short_number

TITLE = "One table over systems"
MAX_ROWS = 200  # rows shown of changes and of files left out; the JSON has all of them
MAX_LINES = 20  # rows of each kind in the text form
NO_VALUE = "–"
IDENTITY = ("system", "version", "digest", "torch", "device", "ranks")
VERSIONS = (*IDENTITY, "reports", "first", "last", "ok", "error", "absent")
CHANGES = ("system", "kind", "before", "now", "item", "case", "text")


def lead(facts: Mapping[str, Any]) -> list[str]:
    systems, rows = facts["between"]["systems"], facts["systems"]
    dates = f"{min(row['first'] for row in rows)[:10]} to {max(row['last'] for row in rows)[:10]}"
    left_out = f"; {many(len(facts['left_out']), 'file')} left out" if facts["left_out"] else ""
    red = [change for change in facts["changes"] if change["newest"] and change["kind"] in RED]
    whose = f" on {', '.join(dict.fromkeys(change['system'] for change in red))}" if red else ""
    count = f"{len(red):,} worse or slower" if red else "Nothing is worse or slower"
    return [
        f"{many(facts['reports'], 'report')} of {many(len(systems), 'system')}, {dates}{left_out}.",
        f"{count} in the newest reports{whose}.",
    ]


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from facts["notes"]
    yield from _first(f"left out {left['path']}: {left['reason']}" for left in facts["left_out"])
    systems = _systems(facts)
    yield from screen.table([systems.head, *([cell.text for cell in row] for row in systems.rows)])
    newest = [change for change in facts["changes"] if change["newest"]]
    for kind in ("different", "better", *RED):
        yield from _first(f"{kind:<9}  {_words(change)}" for change in newest if change["kind"] == kind)
    yield from lead(facts)


def _first(rows: Iterator[str]) -> Iterator[str]:
    every = [*rows]
    yield from every[:MAX_LINES]
    if len(every) > MAX_LINES:
        yield f"and {len(every) - MAX_LINES:,} more, see --markdown or --json"


def _words(change: Mapping[str, Any]) -> str:
    of = f"{change['item']}, {change['case']}: " if change["item"] else ""
    return f"{change['system']}, {change['before'][:10]} to {change['now'][:10]}: {of}{change['text']}"


def tables(facts: Mapping[str, Any]) -> list[ReportTable]:
    every = [_systems(facts), _changes(facts), _figures(facts), _cases(facts), _facts(facts), _left_out(facts)]
    return [table for table in every if table.rows]


def _systems(facts: Mapping[str, Any]) -> ReportTable:
    cells = Cells(facts)
    for number in range(len(facts["systems"])):
        cells.add(*cells.texts(("systems", number), VERSIONS))
    about = (
        "a row for each system, version and way to start it; ok, wrong and absent cases are those of its last report"
    )
    head = [{"error": "wrong"}.get(name, name) for name in VERSIONS]
    return cells.table("systems", "Systems, versions, dates", head, about)


def _changes(facts: Mapping[str, Any]) -> ReportTable:
    """Return the table of changes: regressions of the newest reports first, then by date."""
    cells = Cells(facts)
    by_date = sorted(enumerate(facts["changes"]), key=lambda entry: str(entry[1]["now"]), reverse=True)
    ordered = sorted(by_date, key=lambda entry: not (entry[1]["newest"] and entry[1]["kind"] in RED))
    for number, _ in ordered[:MAX_ROWS]:
        cells.add(*cells.texts(("changes", number), CHANGES))
    more = f"; {MAX_ROWS} of {len(ordered):,}, the JSON has all" if len(ordered) > MAX_ROWS else ""
    slower = f"slower: by more than {facts['slower']:.0%} than the median of the five reports before"
    about = f"{slower}, or by more than three times what a figure varies by itself{more}"
    return cells.table("changes", "What changed", ["system", "", "from", "to", "item", "case", "what"], about)


def _between(facts: Mapping[str, Any], part: str, names: Sequence[str], values: str) -> Cells:
    cells, count = Cells(facts), len(facts["between"]["systems"])
    for number in range(len(facts["between"][part])) if count > 1 else ():
        at = ("between", part, number)
        cells.add(*cells.texts(at, names), *cells.texts((*at, values), range(count), NO_VALUE))
    return cells


def _figures(facts: Mapping[str, Any]) -> ReportTable:
    cells = _between(facts, "figures", ("item", "case", "unit"), "values")
    head = ["item", "case", "unit", *facts["between"]["systems"]]
    return cells.table("speeds", "Speeds of systems", head, "of the newest report of each")


def _cases(facts: Mapping[str, Any]) -> ReportTable:
    cells = _between(facts, "cases", ("item", "case"), "states")
    head = ["item", "case", *facts["between"]["systems"]]
    return cells.table("cases", "Cases that end otherwise between systems", head, "in the newest report of each")


def _facts(facts: Mapping[str, Any]) -> ReportTable:
    cells = _between(facts, "facts", ("fact",), "values")
    head = ["fact", *facts["between"]["systems"]]
    return cells.table("facts", "Facts that differ between systems", head, "in the newest report of each")


def _left_out(facts: Mapping[str, Any]) -> ReportTable:
    cells, count = Cells(facts), len(facts["left_out"])
    for number in range(min(count, MAX_ROWS)):
        cells.add(*cells.texts(("left_out", number), ("path", "reason")))
    about = f"{MAX_ROWS} of {count:,}, the JSON has all" if count > MAX_ROWS else ""
    return cells.table("left-out", "Left out", ["file", "why"], about)


def _text(value: object) -> str:
    if isinstance(value, float):
        return short_number(value)
    text = str(value)
    return sentence(text) if " " in text else cut(text)


def markdown(facts: Mapping[str, Any]) -> str:
    return "\n".join(_markdown(facts)).rstrip() + "\n"


def _markdown(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"# {TITLE}", "")
    yield from (line for text in (*lead(facts), *facts["notes"]) for line in (plain(text), ""))
    for table in tables(facts):
        yield from (f"## {table.title}", "")
        rows = [[plain(cell.text) for cell in row] for row in table.rows]
        yield from (*screen.markdown([plain(name) for name in table.head], rows, padded=True), "")
        if table.about:
            yield from (f"{plain(table.about[0].upper() + table.about[1:])}.", "")


def html_page(facts: Mapping[str, Any]) -> str:
    return parts.document(TITLE, _parts(facts), facts)


def _parts(facts: Mapping[str, Any]) -> Iterator[str]:
    summary = "".join(f'<p class="summary">{html.escape(text)}</p>' for text in lead(facts))
    notes = "".join(f'<p class="note">{html.escape(text)}</p>' for text in facts["notes"])
    yield f"<header><h1>{TITLE}</h1>{summary}{notes}</header><main>"
    yield from map(parts.section, tables(facts))
    yield "</main>"

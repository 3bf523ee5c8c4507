"""HTML page of a report: one file with style, charts and numbers, without other files or network access."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ordsmed.base.say import many, operations
from ordsmed.tell.report import curves, parts, ranking, searches, speeds, tables

RECIPES = 12  # maximum number of recipes on a page
NOTES = 40  # maximum number of notes on a page
TOLD = 3  # maximum number of runs that get a sentence each
BROKEN = ("failed", "killed")  # states whose notes come first


def page(report: Mapping[str, Any], *, live: str = "") -> str:
    """Return the page; `live` is the state of a served page, which reloads when the state changes."""
    runs = [{**run, "recipe": {}, "course": _without_points(run["course"])} for run in report["runs"]]
    title = speeds.title(report)
    return parts.document(title, _parts(report, html.escape(title)), {**report, "runs": runs}, live=live)


def _without_points(curve: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if curve is None else {k: v for k, v in curve.items() if k not in ("points", "validations", "scores")}


def _parts(report: Mapping[str, Any], title: str) -> Iterator[str]:
    summary = "".join(f'<p class="summary">{html.escape(line)}</p>' for line in _summary_lines(report))
    yield f"<header><h1>{title}</h1>{_byline(report)}{summary}{_summary(report)}</header><main>"
    yield from map(parts.section, searches.tables(report))
    yield _notes(report)
    yield _losses(report)
    yield _score_curves(report)
    for table in speeds.and_tables(report):
        if table.key.startswith("search-") or (table.key == "runs" and len(report["runs"]) == 1):
            continue  # its numbers are at the top
        yield parts.section(table, _probes(report) if table.key == "probes" else speeds.bars(report, table.key))
    yield _recipes(report)
    stamp = report["made"]
    about = f"Made by ordsmed {stamp['ordsmed']} at {stamp['at']} from {' '.join(stamp['named'])}."
    yield f"</main><footer>{html.escape(about)}</footer>"


def _byline(report: Mapping[str, Any]) -> str:
    stamp = report["made"]
    return f'<p class="note">{html.escape(", ".join(filter(None, (stamp["author"], stamp["at"][:10]))))}</p>'


def _summary_lines(report: Mapping[str, Any]) -> Iterator[str]:
    runs = report["runs"]
    yield from searches.summary_lines(report)
    sentences = [
        (f"{tables.cut(run['name'])}: " if runs[1:] else "") + run["summary"] for run in runs if run["summary"]
    ]
    if 0 < len(sentences) <= TOLD:
        yield from sentences
    yield from ranking.lines(report)
    if not runs:
        yield f"{' and '.join(speeds.counted(report))}."
    elif len(runs) > 1 or not sentences:
        states: dict[str, int] = {}
        for run in runs:
            states[run["state"]] = states.get(run["state"], 0) + 1
        text = ", ".join(f"{count} {state}" for state, count in states.items())
        yield f"{many(len(runs), 'run')} of {many(len(report['groups']), 'recipe')}: {text}."


def _summary(report: Mapping[str, Any]) -> str:
    """Return the most important numbers; for a single run also those that no table shows."""
    cells, run, curve = tables.Cells(report), ("runs", 0), ("runs", 0, "course")
    wanted: list[tuple[str, tables.Path, Callable[[Any], str]]] = (
        [
            ("verb", (*run, "kind"), str),
            ("state", (*run, "state"), str),
            ("step", (*curve, "step"), tables.count),
            ("of", (*run, "planned"), tables.count),
            ("loss", (*curve, "loss"), tables.loss),
            ("best validation", (*curve, "best_judged", "validation"), tables.loss),
            ("tokens", (*curve, "tokens"), tables.count),
            ("tokens/s", (*curve, "tokens_per_second"), tables.count),
            ("weights", (*run, "parameters"), tables.count),
            ("seed", (*run, "seed"), str),
        ]
        if len(report["runs"]) == 1
        else [
            ("time", ("cost", "hours"), tables.hours),
            ("device hours", ("cost", "device_hours"), tables.short_number),
            ("FLOPs", ("cost", "flops"), operations),
            ("energy (kWh)", ("cost", "kwh"), tables.short_number),
        ]
    )
    shown = [(name, cells.at(path, show)) for name, path, show in wanted]
    items = "".join(f"<div><dt>{name}</dt>{parts.cell(cell, 'dd')}</div>" for name, cell in shown if cell.text)
    return f'<dl class="facts">{items}</dl>' if items else ""


def _score_curves(report: Mapping[str, Any]) -> str:
    pictures = curves.scores(report)
    parts = (f'<section class="small"><h3>{html.escape(title)}</h3>{svg}</section>' for title, svg in pictures)
    text = "".join(parts)
    return f'<section id="score-curves"><h2>Scores during training</h2>{text}</section>' if text else ""


def _notes(report: Mapping[str, Any]) -> str:
    notes = [(run["name"], note, run["state"]) for run in report["runs"] for note in run["notes"]]
    notes.sort(key=lambda note: BROKEN.index(note[2]) if note[2] in BROKEN else len(BROKEN))
    if not notes:
        return ""
    items = "".join(
        f'<li class="{"failed" if state == "failed" else "odd"}"><b>{html.escape(tables.cut(name))}</b>: '
        f"{parts.with_code(note[:600])}</li>"
        for name, note, state in notes[:NOTES]
    )
    more = f'<p class="note">and {len(notes) - NOTES:,} more in the JSON</p>' if len(notes) > NOTES else ""
    return f'<section id="notes"><h2>Warnings</h2><ul class="notes">{items}</ul>{more}</section>'


def _losses(report: Mapping[str, Any]) -> str:
    """Return charts per objective and axis; the axis is chosen without a script."""
    subjects = curves.subjects(report)
    if not report["runs"]:
        return ""
    if not subjects:
        return '<section id="loss"><h2>Loss</h2><p>No run here has written a step.</p></section>'
    about = "Lines: means of neighboring steps; bands: minimum to maximum; dots: validations."
    parts = [
        f"{f'<h3>{html.escape(name)}</h3>' if subjects.keys() - {name} else ''}{_axes(report, groups, number)}"
        for number, (name, groups) in enumerate(subjects.items())
    ]
    return (
        f'<section id="loss"><h2>Loss</h2>{"".join(f"<section>{part}</section>" for part in parts)}'
        f'<p class="note">{about} The steep fall at the very beginning is cut off at the top.</p></section>'
    )


def _axes(report: Mapping[str, Any], groups: Sequence[int], number: int) -> str:
    pictures = curves.losses(report, groups)
    buttons = "".join(
        f'<input type="radio" name="axis-{number}" id="axis-{number}-{n}"{"" if n else " checked"}>'
        f'<label for="axis-{number}-{n}">{name}</label>'
        for n, (name, _) in enumerate(pictures)
    )
    panels = "".join(f'<div class="panel">{picture}</div>' for _, picture in pictures)
    return f'{curves.legend(report, groups)}<div class="axes">{buttons}{panels}</div>'


def _probes(report: Mapping[str, Any]) -> str:
    pictures = curves.probes(report)
    return "".join(f'<section class="small"><h3>{html.escape(title)}</h3>{svg}</section>' for title, svg in pictures)


def _recipes(report: Mapping[str, Any]) -> str:
    shown = [group for group in report["groups"] if report["runs"][group["runs"][0]]["recipe"]]
    items = "".join(
        f"<details><summary>{html.escape(tables.cut(group['name']))}</summary>"
        f"<pre>{_recipe(report, group)}</pre></details>"
        for group in shown[:RECIPES]
    )
    more = (
        f'<p class="note">and {len(shown) - RECIPES:,} more: <code>ordsmed show FOLDER --settings</code></p>'
        if shown[RECIPES:]
        else ""
    )
    return f'<section id="recipes"><h2>Recipes</h2>{items}{more}</section>' if items else ""


def _recipe(report: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    flat = report["runs"][group["runs"][0]]["recipe"]
    return html.escape("\n".join(f"{key} = {parts.dumps(value)}" for key, value in flat.items()))

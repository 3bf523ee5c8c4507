"""Markdown of a report, for the appendix of a paper, with a statement on data and compute for a model card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import screen
from ordsmed.base.say import many, operations
from ordsmed.tell.report import parts, ranking, searches, speeds, tables
from ordsmed.tell.report.parts import escaped, plain


def markdown(report: Mapping[str, Any]) -> str:
    return "\n".join(_parts(report)).rstrip() + "\n"


def _parts(report: Mapping[str, Any]) -> Iterator[str]:
    stamp = report["made"]
    yield f"# {plain(speeds.title(report))}"
    yield ""
    yield from (line for part in searches.summary_lines(report) for line in (plain(part), ""))
    sentences = [plain(run["summary"]) for run in report["runs"] if run["summary"]]
    ranked = list(map(plain, ranking.lines(report)))
    byline = [plain(f"{stamp['author']}, {stamp['at'][:10]}")] if stamp["author"] else []
    yield from (line for part in (*byline, *ranked, *(sentences if len(sentences) == 1 else [])) for line in (part, ""))
    if report["runs"]:
        yield from ("## Data and compute", "", *(line for part in statement(report) for line in (part, "")))
    notes = [f"- {plain(run['name'])}: {plain(note)}" for run in report["runs"] for note in run["notes"]]
    if notes:
        yield from ("## Warnings", "", *notes, "")
    for table in speeds.and_tables(report):
        yield from (f"## {plain(table.title)}", "")
        rows = [[plain(cell.text) for cell in row] for row in table.rows]
        yield from (*screen.markdown([plain(name) for name in table.head], rows, padded=True), "")
        if table.about:
            yield from (f"{_with_code(table.about[:1].upper() + table.about[1:])}.", "")
    yield from _settings(report)
    yield f"Made by ordsmed {stamp['ordsmed']} at {stamp['at']}."


def _with_code(text: str) -> str:
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return "".join(f"`{part}`" if number % 2 else escaped(part) for number, part in enumerate(parts))


def statement(report: Mapping[str, Any]) -> list[str]:
    """Return paragraphs on data, compute and software; unknown facts are stated as unknown."""
    versions: dict[str, dict[str, None]] = {}
    for run in report["runs"]:
        for name in ("ordsmed", "torch", "python"):
            if run["environment"].get(name):
                versions.setdefault(name, {})[str(run["environment"][name])] = None
    text = ", ".join(f"{name} {' and '.join(software)}" for name, software in versions.items())
    return [
        _about_data(report["runs"]),
        _about_compute(report),
        f"**Software.** {plain(text)}." if text else "**Software.** Unknown.",
    ]


def _about_data(runs: Sequence[Mapping[str, Any]]) -> str:
    rows = [row for run in runs for row in run["data"]]
    parts = [
        _source(row)
        for row in {row["fingerprint"] or row["source"]: row for row in rows}.values()
        if row["split"] is None
    ]
    examples = {Path(row["source"]).name: row["examples"] for row in rows if row["split"] and row["examples"]}
    flats = [run["recipe"] for run in runs if run["kind"] in ("finetune", "trials")]
    for kind, file in sorted(
        {(str(flat.get("task.kind", "")), Path(str(flat.get("task.train", "unknown"))).name) for flat in flats if flat}
    ):
        many_of = f", {tables.count(examples[file])} examples" if file in examples else ""
        parts.append(f"the files of the task {plain(kind)} ({plain(file)}{many_of})")
    seen = sum(run["course"]["tokens"] for run in runs if run["course"])
    passes = f" All runs together read {tables.count(seen)} tokens." if seen else ""
    return (
        f"**Data.** Trained on {'; '.join(parts)}.{passes}" if parts else "**Data.** Unknown: no run here records it."
    )


def _source(row: Mapping[str, Any]) -> str:
    parts = [plain(row["source"])]
    if row["tokens"] is not None:
        held_out = f" ({tables.count(row['held_out'])} more held out)" if row["held_out"] else ""
        of = f" of {tables.count(row['documents'])} documents" if row["documents"] else ""
        parts.append(f"{tables.count(row['tokens'])} tokens{of}{held_out}")
    if row["vocabulary"]:
        parts.append(f"{plain(row['kind'] or 'tokenizer')} of {tables.count(row['vocabulary'])} pieces")
    parts.append(f"language {plain(row['language'])}" if row["language"] else "language not stated")
    parts.append(f"license {plain(row['licence'])}" if row["licence"] else "license not stated")
    return ", ".join(parts)


def _about_compute(report: Mapping[str, Any]) -> str:
    cost, runs = report["cost"], [run for run in report["runs"] if run["course"]]
    if cost["device_hours"] is None:
        return "**Compute.** Unknown: no run here has written a step."
    machines = dict.fromkeys(run["machine"].split(";")[0] for run in runs if run["machine"])
    text = f"**Compute.** {many(len(runs), 'run')}, {tables.short_number(cost['device_hours'])} device hours in total"
    text += f" ({'; '.join(map(plain, machines))})" if machines else ""
    if cost["flops"] is not None:
        blank = f", unknown for {many(cost['without_flops'], 'run')}" if cost["without_flops"] else ""
        text += f", {operations(cost['flops'])} from the size of the networks{blank}"
    text += "; time of the final steps, without validation, saving and repeated work."
    if cost["kwh"] is not None:
        energy = f"{tables.short_number(cost['kwh'])} kWh, estimated at {report['made']['watts']:g} W per device"
        return f"{text} Energy: {energy}."
    return f"{text} Energy was not measured."


def _settings(report: Mapping[str, Any]) -> Iterator[str]:
    groups = [group for group in report["groups"] if report["runs"][group["runs"][0]]["recipe"]]
    for group in groups:
        flat = report["runs"][group["runs"][0]]["recipe"]
        seeds = ", ".join(str(seed) for seed in group["seeds"] if seed is not None)
        yield from (f"## Recipe of {plain(group['name'])}", "", *([f"Seeds: {seeds}.", ""] if seeds else []))
        rows = [[plain(key), plain(parts.dumps(value))] for key, value in flat.items() if key not in ("out", "seed")]
        yield from (*screen.markdown(["setting", "value"], rows, padded=True), "")

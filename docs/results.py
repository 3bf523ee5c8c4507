"""Writes docs/results.md from what is kept beside it: our figures and others', each with its source (`make results`).

    results/measurements.jsonl   lines of `ordsmed bench NAME --keep docs/results/measurements.jsonl`
    results/figures.json         what else was measured, with date and command; the log has the circumstances
    results/published.json       others' figures; src/ordsmed/measure/bench/published_figures.toml too, for the bench

Another page from another folder: `python docs/results.py FOLDER PAGE`.
"""

from __future__ import annotations

import json
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ordsmed
from ordsmed.base import measurements
from ordsmed.base.measurements import Measurement
from ordsmed.base.screen import markdown
from ordsmed.machines.cluster import claims

HERE = Path(__file__).parent
RATES = Path(ordsmed.__file__).parent / "measure/bench/published_figures.toml"
HEAD = """\
# Results

Ours, Hugging Face's and the papers', with hardware, time and command. `make results` writes this page from the files in
`docs/results`; no number is written by hand. "-" has not been measured. What did not come out as hoped, and how each
figure came about, is in [the log](log.md); commands for figures on GPUs are in [benchmarks](benchmarks.md).

**No recipe of a paper has been run in full.** Figures of others are of other hardware, in tables
of their own: a run on such hardware should be compared with them.
"""
NO_GPU = "**No figure of a GPU is known yet.**\n"
MOST = 2  # numbers in a cell; of more the least and the most, but for latencies
KEPT = """\
Each line is what `ordsmed bench NAME --keep docs/results/measurements.jsonl` added: the median of its rounds, the
slowest and the fastest. The baseline took turns with ordsmed, round by round. Other work on the machine slows both."""


def page(folder: Path) -> str:
    """The whole of it."""
    kept = measurements.read(folder / "measurements.jsonl")
    parts = [HEAD, *([] if any(one.kind == "cuda" for one in kept) else [NO_GPU]), "## Ours\n"]
    if kept:
        parts += ["### Measured by the bench\n", f"{KEPT}\n", *_kept(kept)]
    for table in json.loads((folder / "figures.json").read_text(encoding="utf-8")):
        parts += [f"### {table['title']}\n", *_paragraph(table["text"]), *_lines(_rows(table))]
    parts.append("## Others'\n")
    for table in json.loads((folder / "published.json").read_text(encoding="utf-8")):
        source = f"{table['source']} Ours: `{table['recipe']}`."
        parts += [f"### {table['title']}\n", *_paragraph(source), *_lines(_rows(table))]
    return "\n".join([*parts, *_rates()]).rstrip("\n") + "\n"


def _paragraph(text: str, wide: int = 120) -> list[str]:
    """Broken between words; code stays whole."""
    return [*textwrap.wrap(text, wide, break_long_words=False, break_on_hyphens=False), ""]


def _latencies(figure: dict[str, Any]) -> str:
    return " / ".join(_cell(each) for each in figure.get("latency_ms", [])) or "-"


def _lines(rows: list[list[str]]) -> list[str]:
    return [*markdown(rows[0], rows[1:]), ""]


def _rows(table: dict[str, Any]) -> list[list[str]]:
    return [table["head"], *([_cell(value) for value in row] for row in table["rows"])]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        if len(value) > MOST:
            return f"{_cell(min(value))} to {_cell(max(value))}"
        return ", ".join(map(_cell, value))
    if isinstance(value, str):
        return f"`{value}`" if value.startswith("ordsmed ") else value
    return "-" if value is None else f"{value:,}"


def rate(number: float) -> str:
    """A measured rate: four digits that count."""
    digits = max(0, 4 - len(str(int(number))))
    return f"{number:,.{digits}f}"


def _kept(lines: list[Measurement]) -> Iterator[str]:
    """A table a machine: a row a measurement of ours, with what was measured beside it."""
    ours = [line for line in lines if line.software == "ordsmed"]
    for device, processes, threads in dict.fromkeys((one.device, one.processes, one.threads) for one in ours):
        yield from _paragraph(f"{device}, processes x threads: {processes} x {threads}")
        yield from _lines(
            [
                ["bench", "precision", "length, batch", "a second", "slowest to fastest", "next to it", "date"],
                *(
                    _measured(one, lines)
                    for one in ours
                    if (one.device, one.processes, one.threads) == (device, processes, threads)
                ),
            ]
        )


def _measured(ours: Measurement, lines: list[Measurement]) -> list[str]:
    ends = (
        ours.sequences_per_second * ours.step_seconds / seconds
        for seconds in (ours.step_seconds_most, ours.step_seconds_least)
    )
    return [
        ours.bench,
        ours.precision,
        f"{ours.length}, {ours.batch}",
        rate(ours.sequences_per_second),
        " to ".join(map(rate, ends)),
        "; ".join(_beside(ours, lines)) or "-",
        ours.date[:10],
    ]


def _beside(ours: Measurement, lines: list[Measurement]) -> Iterator[str]:
    for other in lines:
        same = ("bench", "measure", "date", "length", "batch", "micro", "precision", "processes")
        if other.software != "ordsmed" and all(getattr(other, key) == getattr(ours, key) for key in same):
            yield f"{other.software} {rate(other.sequences_per_second)}"


def _rates() -> Iterator[str]:
    """Sequences a second that others published, by what was measured."""
    names = {"training": "pretraining", "finetune": "fine-tuning", "predict": "asking"}
    for own in tomllib.loads(RATES.read_text(encoding="utf-8")).values():
        yield "### Sequences a second\n"
        yield from _paragraph(own["source"])
        yield from _lines(
            [
                ["what", "length", "batch", "device", "devices", "precision", "sequences a second", "milliseconds"],
                *(
                    [
                        names[each["measure"]],
                        str(each["length"]),
                        _cell(each.get("batch")),
                        each["device"],
                        str(each["devices"]),
                        "mixed" if each["mixed"] else "TF32 or FP32",
                        _cell(each["sequences_per_second"]),
                        _latencies(each),
                    ]
                    for each in own["figure"]
                ),
            ]
        )


def reported_times() -> str:
    """Training times that others reported, next to what is estimated for our recipes: no file next to it has them."""
    head = """\
As `ordsmed estimate --claims` prints them, with sources and rates: on the same devices, of our nearest recipe, at a
share of the devices' stated peak."""
    return "\n".join(["", "### Reported training times\n", f"{head}\n", *claims.markdown(), ""])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:] or [HERE / "results", HERE / "results.md"])
    target.write_text(page(source) + reported_times(), encoding="utf-8")

"""Tables of measurements: every combination of lengths, batches, precisions, ... in a separate process.

axes -> cells, as words of the command line -> `ordsmed bench` each -> measurements -> rows -> speed-up, scaling, hours
     -> work/bench/NAME.json and NAME.md, written after every cell; the command makes the page from them

A cell that fails, even when the system kills it, is reported as failed, and the others continue. An interrupted table
resumes with the same command (NAME.part).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ordsmed
from ordsmed.base import files, measurements, run, screen, settings
from ordsmed.base.errors import OrdsmedError, RunError
from ordsmed.base.launch.local import end_with_parent
from ordsmed.base.measurements import DEFAULT_PATH, Measurement
from ordsmed.base.say import say
from ordsmed.measure.bench import published_figures
from ordsmed.measure.bench.recipe import Axes, Bench

WHOLE = ("fp32", "tf32")  # baseline precisions of speed-ups
SECONDS = 3600.0  # per hour
OURS = "ordsmed"
COMPLAINT = "ordsmed: "  # prefix of an error line
WORK = (
    "measure",
    "software",
    "family",
    "task",
    "optimizer",
    "width",
    "layers",
    "parameters",
    "length",
    "dropout",
    "compile",
    "recompute",
    "device",
)
COLUMNS = (
    "length=",
    "task.length=",
    "batch=",
    "layout.micro=",
    "layout.precision=",
    "layout.compile=",
    "devices=",
    "layout.replicate=",
    "layout.shard=",
    "layout.tensor=",
)


@dataclass(frozen=True)
class CellResult:
    words: tuple[str, ...]
    measured: tuple[Measurement, ...] = ()
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    why: str = ""  # error message, if it failed


def measured_table(
    name: str, overrides: Sequence[str], recipe: Bench, *, json_line: bool, left: Callable[[Path], None] | None = None
) -> list[str]:
    """Measure all cells of a recipe and return Markdown, or one line of JSON; results are stored."""
    results: list[CellResult] = []
    axes, location = recipe.table or Axes(), place_of(name)
    cells = [*cells_of(name, overrides, recipe)]
    part = TablePart(location.with_suffix(".part"), recipe)
    for number, words in enumerate(cells, 1):
        stored = part.cells.get(words)
        say(f"{name}: {number} of {len(cells)}: {' '.join(words) or 'the recipe unchanged'}{', stored' * bool(stored)}")
        if stored:
            results.append(stored)
            continue
        result = dataclasses.replace(_run(name, [*overrides, "table=none", *words]), words=words)
        results.append(result)
        if result.why:
            say(f"{name}: {' '.join(words)}: {result.why}")
        elif recipe.keep:
            measurements.add(Path(recipe.keep), result.measured)
        if recipe.keep:
            table = summary(name, axes, results)
            store(location, table, markdown(table))
            part.add(result)
    table = summary(name, axes, results)
    if recipe.keep:
        part.path.unlink(missing_ok=True)
    if not table["rows"]:
        raise RunError(name, "nothing was measured", "", f"{results[0].why} ({len(results)} in total)")
    if left and recipe.keep:
        left(location)
    return [json.dumps(table)] if json_line else markdown(table)


def store(path: Path, table: dict[str, Any], lines: Sequence[str]) -> None:
    """Write a table as JSON, and its lines as Markdown next to it."""
    with files.survive_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, table)
    files.write_text(path.with_suffix(".md"), "\n".join(lines) + "\n")


class TablePart:
    """Finished cells of an unfinished table, so that the same command on the same machine resumes."""

    def __init__(self, path: Path, recipe: Bench) -> None:
        self.path, self.cells = path, dict[tuple[str, ...], CellResult]()
        self.of = [settings.plain(recipe), ordsmed.__version__, platform.node()]
        with contextlib.suppress(OrdsmedError):  # no file, or a damaged one: measure all cells
            lines = files.read_table(path)
            if recipe.keep and lines.get("of") == json.loads(json.dumps(self.of)):
                for cell in lines["cells"]:
                    measured = tuple(settings.decode(Measurement, row, str(path)) for row in cell["measured"])
                    self.cells[tuple(cell["words"])] = CellResult(tuple(cell["words"]), measured, cell["facts"])

    def add(self, result: CellResult) -> None:
        """Store a cell; failed cells are not stored, so that they are measured again."""
        if not result.why:
            self.cells[result.words] = result
        cells = [
            {
                "words": [*cell.words],
                "measured": [settings.plain(measurement) for measurement in cell.measured],
                "facts": cell.facts,
            }
            for cell in self.cells.values()
        ]
        files.write_json(self.path, {"of": self.of, "cells": cells})


def place_of(name: str) -> Path:
    return DEFAULT_PATH.parent / f"{run.title(name)}.json"


def cells_of(name: str, overrides: Sequence[str], recipe: Bench) -> Iterator[tuple[str, ...]]:
    """Yield the settings of every combination; an impossible one is an error before anything is measured."""
    axes, task = recipe.table or Axes(), recipe.measure != "training"
    choices = [
        [[*cell] for cell in axes.cells],
        [[f"{'task.' if task else ''}length={length}"] for length in axes.lengths] or [[]],
        [[f"batch={batch}"] for batch in axes.batches] or [[]],
        [[f"layout.precision={precision}"] for precision in axes.precisions] or [[]],
        [[f"layout.compile={str(compiled).lower()}"] for compiled in axes.compile] or [[]],
        _meshes(axes) or [[]],
    ]
    for parts in itertools.product(*choices):
        words = [word for part in parts for word in part]
        table = run.read_table(run.find_recipe(name, "bench"), "bench")
        cell = settings.decode(type(recipe), settings.override(table, [*overrides, *words, "table=none"]), name)
        if axes.scaling == "weak" and cell.devices > 1:
            words = [*[word for word in words if not word.startswith("batch=")], f"batch={cell.batch * cell.devices}"]
        yield tuple(words)


def _meshes(axes: Axes) -> list[list[str]]:
    keys = ("replicate", "shard", "tensor")
    meshes = [[int(part) for part in mesh.split("x")] for mesh in axes.layouts]
    counts = [count for count in axes.devices if not meshes or count in map(math.prod, meshes)]
    return (
        [
            [*(f"layout.{key}={n}" for key, n in zip(keys, mesh, strict=False)), f"devices={count}"]
            for mesh in meshes or [[]]
            for count in (counts or [math.prod(mesh)])
            if not mesh or count == math.prod(mesh)
        ]
        if meshes or counts
        else []
    )


def _run(name: str, words: Sequence[str]) -> CellResult:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measurements.jsonl"
        command = [sys.executable, "-m", "ordsmed", "bench", name, *words, f"keep={path}", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=end_with_parent)
        answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not answers or not path.exists():
            return CellResult(tuple(words), why=_failure(done).removeprefix(f"{name}: "))
        return CellResult(tuple(words), tuple(measurements.read(path)), json.loads(answers[-1]))


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    if not done.returncode:
        return "wrote no measurement"
    if done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "ended by SIGKILL: the system ran out of memory, or a user killed it"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    # the first error line is that of the process which failed first
    complaints = [line for line in lines if line.startswith(COMPLAINT)] or lines[-1:]
    return complaints[0].removeprefix(COMPLAINT) if complaints else f"ended with status {done.returncode}"


def summary(name: str, axes: Axes, results: Sequence[CellResult]) -> dict[str, Any]:
    measured = [row for result in results for row in result.measured if row.software == OURS]
    rows = [row for result in results for row in _rows(result, axes, measured)]
    unmeasured = [length for length, _ in axes.train if length not in {row.length for row in measured}]
    first = measured[0] if measured else None
    return {
        "bench": name,
        "scaling": axes.scaling,
        **({name: getattr(first, name) for name in ("device", "torch", "version", "date")} if first else {}),
        "rows": rows,
        "time_to_train": hours_by_way(measured, axes.train) if axes.train else [],
        "not_measured": unmeasured,
        "failed": [{"cell": " ".join(result.words), "why": result.why} for result in results if result.why],
        **({"source": published_figures.source(axes.published)} if axes.published else {}),
    }


def _rows(result: CellResult, axes: Axes, measured: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    other_settings = " ".join(word for word in result.words if not word.startswith(COLUMNS))
    for measurement in (line for line in result.measured if line.software == OURS):
        line = ({"settings": other_settings} if other_settings else {}) | row_of(measurement)
        for reference in result.measured:
            if reference.software != OURS and (reference.length, reference.batch) == (
                measurement.length,
                measurement.batch,
            ):
                line[reference.software] = rounded(reference.sequences_per_second)
                facts = result.facts.get(f"batch_{measurement.batch}", result.facts)
                pairs = facts.get("median_ratio", facts.get("ratio"))  # a median of pairs, not a ratio of medians
                line["ratio"] = round(reference.step_seconds / measurement.step_seconds, 3) if pairs is None else pairs
        batch = f"batch_{measurement.batch}"
        line |= _latencies(result.facts.get(batch, {}), result.facts.get(f"{batch}_padded", {}))
        line["speed_up"] = speed_up(measurement, measured)
        if any(line.processes > 1 for line in measured):
            line[axes.scaling] = scaling(measurement, measured, axes.scaling)
        if "profile" in result.facts:
            line["profile"] = result.facts["profile"]
        if axes.published:
            line["published"] = published_figures.comparable(axes.published, measurement)
        yield line


def row_of(timing: Measurement) -> dict[str, Any]:
    row: dict[str, Any] = {
        "length": timing.length,
        "batch": timing.batch,
        "micro": timing.micro,
        "precision": timing.precision,
        "compile": timing.compile,
        "layout": timing.layout,
        "devices": timing.processes,
        "sequences_per_second": rounded(timing.sequences_per_second),
        "slowest": rounded(timing.batch / timing.step_seconds_most),
        "fastest": rounded(timing.batch / timing.step_seconds_least),
        "tokens_per_second": round(timing.tokens_per_second),
        "tflops": rounded(timing.flops_per_second / 1e12),
        "share_of_peak": round(timing.share_of_peak, 3),
        "memory_gib": round(timing.memory / 2**30, 2),
    }
    if timing.energy:
        row["joules_a_sequence"] = rounded(timing.energy / timing.batch)
    return row


def _latencies(packed: dict[str, Any], padded: dict[str, Any]) -> dict[str, Any]:
    if not packed:
        return {}
    return {
        "latency_ms": packed["latency_ms"],
        "nvidia_sequences_per_second": padded["nvidia_examples_per_second"],
        "nvidia_latency_ms": padded["nvidia_latency_ms"],
    }


def speed_up(measurement: Measurement, all_of: Sequence[Measurement]) -> float | None:
    """Return how many times faster this is than the same work in fp32 or TF32, or None if that was not measured.

    Compare with the same batch size if it was measured, otherwise with the fastest one (not for predict).
    """
    if measurement.precision in WHOLE:
        return None
    baselines = [
        row for row in all_of if row.precision in WHOLE and _same(measurement, row, (*WORK, "layout", "processes"))
    ]
    as_large = [row for row in baselines if row.batch == measurement.batch]
    baselines = as_large[-1:] or ([] if measurement.measure == "predict" else baselines)
    fastest = max((row.sequences_per_second for row in baselines), default=0.0)
    return round(measurement.sequences_per_second / fastest, 2) if fastest else None


def scaling(measurement: Measurement, all_of: Sequence[Measurement], kind: str) -> float | None:
    """Return the rate of n devices over that of one, for equal rows per device (weak) or in total (strong)."""
    times = measurement.processes if kind == "weak" else 1
    baselines = [
        row
        for row in all_of
        if row.processes == 1
        and measurement.batch == row.batch * times
        and _same(measurement, row, (*WORK, "precision"))
    ]
    return round(measurement.sequences_per_second / baselines[-1].sequences_per_second, 2) if baselines else None


def hours_by_way(measured: Sequence[Measurement], train: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the hours to train on `train`, for each setup measured at all of its lengths, with speed-ups over fp32."""
    names = (*(name for name in WORK if name != "length"), "processes", "layout", "precision")
    setups: dict[tuple[Any, ...], dict[int, Measurement]] = {}
    for row in measured:
        if row.measure == "training":
            rates = setups.setdefault(tuple(getattr(row, name) for name in names), {})
            if row.length not in rates or rates[row.length].sequences_per_second < row.sequences_per_second:
                rates[row.length] = row
    hours = {
        key: sum(rows / rates[length].sequences_per_second for length, rows in train) / SECONDS
        for key, rates in setups.items()
        if {length for length, _ in train} <= rates.keys()
    }
    lines = []
    for key, needed in hours.items():
        first = next(iter(setups[key].values()))
        baselines = [
            hours[whole] for name in WHOLE if (whole := (*key[:-1], name)) in hours and first.precision not in WHOLE
        ]
        lines.append(
            {
                "network": f"{first.family} {first.layers} x {first.width}",
                "device": first.device,
                "devices": first.processes,
                "compile": first.compile,
                "layout": first.layout,
                "precision": first.precision,
                "hours": rounded(needed),
                "speed_up": round(baselines[0] / needed, 2) if baselines else None,
            }
        )
    return lines


def _same(first: Measurement, second: Measurement, names: Sequence[str]) -> bool:
    return all(getattr(first, name) == getattr(second, name) for name in names)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def digits(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def markdown(table: dict[str, Any]) -> list[str]:
    lines = []
    if "device" in table:
        lines += [
            f"{table['bench']} on {table['device']}, torch {table['torch']}, ordsmed {table['version']},"
            f" {table['date']}; rates are medians of rounds, with their slowest and fastest",
            "",
        ]
    lines += grid(table["rows"])
    if table["time_to_train"]:
        lines += ["", "Time to train:", "", *grid(table["time_to_train"])]
    for length in table["not_measured"]:
        lines += ["", f"time to train: unknown, because length {length:,} was not measured"]
    for failed in table["failed"]:
        lines += ["", f"not measured: {failed['cell'] or 'the recipe'}: {failed['why']}"]
    if "source" in table:
        lines += ["", f"Published: {table['source']}"]
    return lines


def grid(rows: Sequence[dict[str, Any]]) -> list[str]:
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if any(row.get(name) not in (None, []) for row in rows)
    ]
    if not names:
        return []
    return screen.markdown(
        [name.replace("_", " ") for name in names], [[_cell(row.get(name)) for name in names] for row in rows]
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(map(published_figures.cell_of, value))
    return digits(value) if isinstance(value, int | float) else str(value)

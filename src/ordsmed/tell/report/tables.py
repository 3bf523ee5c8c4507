"""Tables of a report; each cell holds its exact value and the value's path in the report's JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FolderPath
from pathlib import PurePath
from typing import Any

from ordsmed.base.say import duration, many, operations
from ordsmed.weights import probe_results

SPREAD = "over the seeds of a recipe; sample deviation; interval of the mean by Student's t"
THRESHOLD = "_thresh"  # suffix of decision thresholds, which are not scores
GUESSING = "at the end; guessing: always predicting the most frequent"
DECIDES = "decide whether a question has an answer; not scores"
SAYS = "the most likely words for a mask with their probabilities, or the continuation of a text"
DATA = "dropped: documents removed by cleaning or as duplicates; held out: tokens of the validation text"
LEFT_OUT = "steps whose updates `[trouble]` skipped or undid; times: how often"
NAMED = 3  # maximum number of folders in a title
SAMPLED = 3  # maximum number of runs with samples
COUNTS = ("total", "HasAns_total", "NoAns_total", "examples", "words", "tokens")  # counts among the scores
LONGEST = 60  # characters shown in a cell; the JSON has the whole text
Path = tuple[str | int, ...]  # path of a value in the JSON
Column = tuple[str, str, Callable[[Any], str]]  # heading, path of the value below its row, format


@dataclass(frozen=True)
class ReportCell:
    text: str
    value: float | int | str | None = None
    source: Path = ()


@dataclass(frozen=True)
class ReportTable:
    """A table with its heading; `numbers` are the numeric columns."""

    key: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    about: str = ""
    numbers: frozenset[int] = frozenset()


@dataclass
class Cells:
    """Builds the cells of a table from the report."""

    report: Mapping[str, Any]
    rows: list[tuple[ReportCell, ...]] = field(default_factory=list)

    def at(self, path: Path, show: Callable[[Any], str]) -> ReportCell:
        """Return the value at a path as a cell; empty if there is none."""
        value: object = self.report
        for part in path:
            if isinstance(value, Mapping):
                value = value.get(part)
            else:  # the path may not exist in this row
                value = value[part] if isinstance(value, list | tuple) and isinstance(part, int) else None
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return ReportCell("", None, path)
        return ReportCell(show(value), value if isinstance(value, int | float | str) else None, path)

    def add(self, *cells: ReportCell) -> None:
        self.rows.append(cells)

    def row(self, at: Path, columns: Sequence[Column]) -> list[ReportCell]:
        return [self.at((*at, *path.split("/")), show) for _, path, show in columns]

    def texts(self, path: Path, keys: Sequence[str | int], missing: str = "") -> list[ReportCell]:
        """Return cells for keys of the value at a path; numbers are rounded and texts are shortened."""
        row = [self.at((*path, key), _text) for key in keys]
        return [cell if cell.text else ReportCell(missing) for cell in row] if missing else row

    def table(self, key: str, title: str, head: Sequence[str], about: str = "") -> ReportTable:
        """Return the table of the added rows, without empty columns."""
        columns = [n for n in range(len(head)) if any(row[n].text for row in self.rows)]
        rows = tuple(tuple(row[n] for n in columns) for row in self.rows)
        numbers = frozenset(
            at
            for at in range(len(columns))
            if all(isinstance(row[at].value, int | float) for row in rows if row[at].text)
        )
        return ReportTable(key, title, tuple(head[n] for n in columns), rows, about, numbers)


def count(value: float) -> str:
    """Format a count as `1,064,960`, `21.4 M` or `3.3 B`."""
    if abs(value) < 10_000_000:
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.3g}"
    unit, name = next(
        scale for scale in ((1e15, "e15"), (1e12, " T"), (1e9, " B"), (1e6, " M")) if abs(value) >= scale[0]
    )
    return f"{value / unit:,.2f}{name}"


def loss(value: float) -> str:
    """Format a loss with four decimals, a small one with more and a large one with fewer."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.01 or not value else f"{value:.3g}"


def score(value: float) -> str:
    return probe_results.said(float(value))


def percent(value: float) -> str:
    return f"{value:.1%}"


def score_named(name: str) -> Callable[[float], str]:
    return percent if name.endswith("_right") else score


def hours(value: float) -> str:
    seconds = value * 3600
    return duration(seconds) if seconds >= 10 else f"{seconds:.2g} s"


def short_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def words(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(text)


def sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 4 * LONGEST else f"{text[: 4 * LONGEST]}…"


def _text(value: object) -> str:
    if isinstance(value, float):
        return short_number(value)
    text = str(value)
    return sentence(text) if " " in text else cut(text)


def _between(show: Callable[[float], str]) -> Callable[[Sequence[float]], str]:
    return lambda ends: " to ".join(map(show, ends))


def cut(text: str) -> str:
    """Shorten text to the length of a cell, in the middle, because the end of a long name matters more."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"


def title(report: Mapping[str, Any]) -> str:
    """Return the given title, or the names of the report's folders."""
    if report["made"]["title"]:
        return str(report["made"]["title"])
    names, runs = [FolderPath(name).resolve().name for name in report["made"]["named"]], len(report["runs"])
    more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
    return cut(", ".join(names[:NAMED])) + more + (f": {many(runs, 'run')}" if runs > len(names) else "")


def tables(report: Mapping[str, Any]) -> list[ReportTable]:
    all_tables = [
        _runs(report),
        *_samples(report),
        *_differences(report),
        *_scores(report),
        *_trials(report),
        _rows_of_runs(report, "probes", PROBES, "Probes", "± error: the standard error over examples"),
        *_data(report),
        _cost(report),
        _rows_of_runs(report, "left_out", SKIPPED, "Skipped and rewound", LEFT_OUT),
        _environment(report),
    ]
    return [table for table in all_tables if table.rows]


RUNS: Sequence[Column] = (
    ("run", "name", cut),
    ("verb", "kind", str),
    ("state", "state", str),
    ("seed", "seed", str),
    ("step", "course/step", count),
    ("of", "planned", count),
    ("loss", "course/loss", loss),
    ("best validation", "course/best_judged/validation", loss),
    ("tokens", "course/tokens", count),
    ("tokens/s", "course/tokens_per_second", count),
    ("time", "course/hours", hours),
    ("FLOPs", "course/flops", operations),
    ("parameters", "parameters", count),
)


def _runs(report: Mapping[str, Any]) -> ReportTable:
    cells = Cells(report)
    for number in range(len(report["runs"])):
        cells.add(*cells.row(("runs", number), RUNS))
    about = "loss: mean of the last 10 steps; time: of the steps, without validation and saving"
    return cells.table("runs", "Runs", _heads(RUNS), about)


def _heads(columns: Sequence[Column]) -> list[str]:
    return [head for head, _, _ in columns]


def _rows_of_runs(
    report: Mapping[str, Any], key: str, columns: Sequence[Column], title: str, about: str
) -> ReportTable:
    """Return a table of the rows that each run has under `key`, after a column with the run's name."""
    cells = Cells(report)
    for number, run in enumerate(report["runs"]):
        for row in range(len(run[key])):
            cells.add(cells.at(("runs", number, "name"), cut), *cells.row(("runs", number, key, row), columns))
    return cells.table(key.replace("_", "-"), title, ["run", *_heads(columns)], about)


def _differences(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    """Yield tables of differing settings: settings as rows for short_number recipes, otherwise recipes as rows."""
    for number, difference in enumerate(report["differences"]):
        at: Path = ("differences", number, "rows")
        names = [cut(report["groups"][group]["name"]) for group in difference["groups"]]
        cells = Cells(report)
        if len(names) <= 6:
            head = ["setting", *names]
            for row, _ in enumerate(difference["rows"]):
                values = [cells.at((*at, row, "values", column), words) for column in range(len(names))]
                cells.add(
                    cells.at((*at, row, "setting"), str), *(cell if cell.text else ReportCell("–") for cell in values)
                )
        else:
            head = ["recipe", *(row["setting"] for row in difference["rows"])]
            for column, group in enumerate(difference["groups"]):
                values = [cells.at((*at, row, "values", column), words) for row in range(len(difference["rows"]))]
                cells.add(cells.at(("groups", group, "name"), cut), *(e if e.text else ReportCell("–") for e in values))
        about = (
            f"settings in which the recipes of `{difference['verb']}` differ; –: the recipe does not have the setting"
        )
        yield cells.table(
            f"differences-{difference['verb']}", f"How the recipes differ: {difference['verb']}", head, about
        )


def _scores(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    """Yield the table of scores, and that of decision thresholds, which are not scores."""
    scores, thresholds = Cells(report), Cells(report)
    several = any(len(group["runs"]) > 1 for group in report["groups"])
    for number, group in enumerate(report["groups"]):
        losses = [entry["mean"] for entry in group["scores"] if entry["score"] == "validation"]
        for row, entry in enumerate(group["scores"]):
            name, at = entry["score"], ("groups", number, "scores", row)
            duplicate = name != "validation" and entry["mean"] in losses  # same as the only term's
            if name in COUNTS or duplicate or (entry["runs"] == 1 and _is_trial(report, group)):
                continue
            show = score_named(name)
            cells = thresholds if name.endswith(THRESHOLD) else scores
            cells.add(
                cells.at(("groups", number, "name"), cut),
                cells.at((*at, "score"), str),
                cells.at((*at, "runs"), count) if several else ReportCell(""),
                *(cells.at((*at, key), show) for key in ("mean", "deviation")),
                cells.at((*at, "interval"), _between(show)),
                *(cells.at((*at, key), show) for key in ("low", "high", "guessing")),
            )
    mean = "mean" if several else "result"
    head = ("recipe", "score", "seeds", mean, "± deviation", "95% interval", "lowest", "highest", "guessing")
    yield scores.table("scores", "Scores", head, SPREAD if several else GUESSING)
    yield thresholds.table("thresholds", "Decision thresholds", (head[0], "threshold", *head[2:]), DECIDES)


def _samples(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    for number, run in enumerate(report["runs"][:SAMPLED]):
        cells = Cells(report)
        steps = sorted({answer["step"] for row in run["samples"] for answer in row["says"]})
        for row, sample in enumerate(run["samples"]):
            at: Path = ("runs", number, "samples", row)
            rows = {answer["step"]: n for n, answer in enumerate(sample["says"])}
            at_steps = [(*at, "says", rows.get(step, -1), "text") for step in steps]
            cells.add(*(cells.at(path, sentence) for path in ((*at, "text"), (*at, "right"), *at_steps)))
        name = f" of {cut(run['name'])}" if report["runs"][1:] else ""
        head = ("held-out text", "right", *(f"step {step:,.0f}" for step in steps))
        yield cells.table(f"samples-{number}", f"Predictions{name}", head, SAYS)


def _is_trial(report: Mapping[str, Any], group: Mapping[str, Any]) -> bool:
    folders = [PurePath(report["runs"][number]["folder"]) for number in group["runs"]]
    grids = {PurePath(run["folder"]) for run in report["runs"] if run["trials"].get("trials")}
    return all(folder.parent.name == "trials" and folder.parent.parent in grids for folder in folders)


def _trials(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    for number, run in enumerate(report["runs"]):
        trials = run["trials"].get("trials")
        if not isinstance(trials, list) or not trials:
            continue
        settings = list(dict.fromkeys(key for trial in trials for key in trial.get("setting", {})))
        scores = list(dict.fromkeys(key for trial in trials for key in trial.get("scores", {})))
        cells = Cells(report)
        for row in range(len(trials)):
            at: Path = ("runs", number, "trials", "trials", row)
            cells.add(
                cells.at((*at, "trial"), cut),
                *(cells.at((*at, "setting", key), words) for key in settings),
                cells.at((*at, "seed"), str),
                cells.at((*at, "step"), count),
                *(cells.at((*at, "scores", key), score) for key in scores),
                cells.at((*at, "seconds"), short_number),
            )
        head = ("trial", *settings, "seed", "step", *scores, "seconds")
        about = f"the best by {run['trials'].get('score')}: {run['trials'].get('best')}"
        yield cells.table(f"trials-{number}", f"Trials of {cut(run['name'])}", head, about)


PROBES: Sequence[Column] = (
    ("probe", "probe", str),
    ("files", "files", cut),
    ("step", "step", count),
    ("words seen", "words", count),
    ("tokens seen", "tokens", count),
    ("score", "score", str),
    ("result", "value", score),
    ("± error", "error", score),
    ("guessing", "guessing", score),
)
FILES: Sequence[Column] = (
    ("file", "source", cut),
    ("split", "split", str),
    ("examples", "examples", count),
    ("tokens", "tokens", count),
)
STORES: Sequence[Column] = (
    ("store", "source", cut),
    ("documents", "documents", count),
    ("words", "words", count),
    ("dropped", "dropped", count),
    ("tokens", "tokens", count),
    ("held out", "held_out", count),
    ("bytes a token", "bytes_a_token", short_number),
    ("unknown", "unknown", short_number),
    ("tokenizer", "kind", str),
    ("vocabulary", "vocabulary", count),
    ("language", "language", str),
    ("license", "licence", cut),
)
SKIPPED: Sequence[Column] = (
    ("first step", "first", count),
    ("last step", "last", count),
    ("times", "times", count),
    ("why", "why", cut),
)
COST: Sequence[Column] = (
    ("time", "hours", hours),
    ("device hours", "device_hours", short_number),
    ("FLOPs", "flops", operations),
    ("kWh", "kwh", short_number),
)


def _data(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    stores, files, seen = Cells(report), Cells(report), set()
    for number, run in enumerate(report["runs"]):
        for row, source in enumerate(run["data"]):
            if (key := source["fingerprint"] or json.dumps(source)) in seen:
                continue
            seen.add(key)
            cells, columns = (files, FILES) if source["split"] else (stores, STORES)
            cells.add(*cells.row(("runs", number, "data", row), columns))
    yield stores.table("data", "Corpus and tokenizer", _heads(STORES), DATA)
    yield files.table("files", "Files of tasks", _heads(FILES))


def _devices(machine: str) -> str:
    """Return the devices without their measured peak, which the environment shows."""
    return cut(machine.partition(";")[0])


def _cost(report: Mapping[str, Any]) -> ReportTable:
    cells = Cells(report)
    numbers = [number for number, run in enumerate(report["runs"]) if run["course"]]
    for number in numbers:
        run: Path = ("runs", number)
        names = cells.at((*run, "name"), cut), cells.at((*run, "machine"), _devices)
        cells.add(*names, *cells.row((*run, "cost"), COST))
    if len(numbers) > 1:
        cells.add(ReportCell(f"all {many(len(numbers), 'run')}"), ReportCell(""), *cells.row(("cost",), COST))
    watts, blank = report["made"]["watts"], report["cost"]["without_flops"]
    about = "time of the final steps, without validation, saving and repeated work"
    about += f"; energy at {watts:g} W per device, from `--watts`" if watts else "; energy: not measured"
    about += f"; FLOPs of {blank} of {many(len(numbers), 'run')} are unknown" if blank else ""
    return cells.table("cost", "Cost", ("run", "machine", *_heads(COST)), about)


def _environment(report: Mapping[str, Any]) -> ReportTable:
    cells, seen = Cells(report), dict[str, list[int]]()
    for number, run in enumerate(report["runs"]):
        if run["environment"]:
            facts = {key: value for key, value in run["environment"].items() if key != "command"}
            seen.setdefault(json.dumps([facts, run["machine"]]), []).append(number)
    keys = list(dict.fromkeys(key for run in report["runs"] for key in run["environment"] if key != "command"))
    for numbers in seen.values():
        names = [report["runs"][number]["name"] for number in numbers]
        at: Path = ("runs", numbers[0])
        runs = ReportCell(cut(names[0]) + (f" and {len(names) - 1} more" if names[1:] else ""))
        cells.add(runs, cells.at((*at, "machine"), cut), *(cells.at((*at, "environment", key), words) for key in keys))
    return cells.table("environment", "Environment", ("runs", "devices", *keys))

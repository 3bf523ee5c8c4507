"""Speeds on a page: tables of `ordsmed bench`, all of its measurements, and comparisons of recipes.

work/bench/NAME.json, measurements.jsonl -> facts, with measurements as rows -> tables, bars
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from ordsmed.base import files, measurements
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.folder import STATUS
from ordsmed.base.measurements import Measurement
from ordsmed.base.say import many
from ordsmed.measure.bench import table
from ordsmed.tell.report import comparisons, searches, values
from ordsmed.tell.report import tables as run_tables
from ordsmed.tell.report.tables import Cells, ReportCell, ReportTable, cut

KEPT = measurements.DEFAULT_PATH.name
MOST = 100  # maximum number of rows of a table, the latest ones
NAMES = {
    "sequences_per_second": "sequences/s",
    "tokens_per_second": "tokens/s",
    "tflops": "TFLOP/s",
    "memory_gib": "GiB",
    "share_of_peak": "of the peak",
    "joules_a_sequence": "J/sequence",
    "speed_up": "speed-up",
    "weak": "weak scaling",
    "strong": "strong scaling",
    "nvidia_sequences_per_second": "sequences/s (NVIDIA's way)",
    "nvidia_latency_ms": "ms (NVIDIA's way)",
    "latency_ms": "ms",
}
ABOUT = "medians of rounds, with the slowest and the fastest; batch: rows per step of all devices"
LIKE_THEM = ("nvidia_sequences_per_second", "padded")  # rates of a row with padding as in the published figures
CALLED = (
    "date",
    "device",
    "network",
    "settings",
    "length",
    "batch",
    "micro",
    "precision",
    "compile",
    "layout",
    "devices",
)
PARTS = (  # separate tables, so that each fits a page
    ("work", "Work and memory", ("tflops", "share_of_peak", "memory_gib", "joules_a_sequence")),
    ("latencies", "Latencies", ("latency_ms", "nvidia_sequences_per_second", "nvidia_latency_ms")),
    ("profile", "Time of a step by kind of operation", ("profile",)),
)
APART = ("published",)  # separate table
ALIKE = ("device", "network", "settings", "compile", "micro", "layout")  # shown above a table if all rows agree


class SpeedFigure(TypedDict):
    other_hardware: bool
    latency_ms: NotRequired[Annotated[list[float], msgspec.Meta(min_length=4)]]


class SpeedRow(TypedDict):
    """Fields of a row that are used in computations; others are shown as they are."""

    sequences_per_second: Annotated[float, msgspec.Meta(gt=0)]
    transformers: NotRequired[float]
    padded: NotRequired[float]
    published: NotRequired[list[SpeedFigure]]


class SpeedTable(TypedDict):
    bench: str
    rows: list[SpeedRow]
    time_to_train: NotRequired[list[dict[str, Any]]]
    not_measured: NotRequired[list[int]]
    failed: list[dict[str, Any]]
    source: NotRequired[str]


def read(path: Path) -> list[dict[str, Any]]:
    if path.is_dir():
        return [entry for file in speed_files(path) for entry in _readable(file)]
    if path.suffix == ".jsonl" and path.is_file():
        if speeds := _measurement_tables(path):
            return speeds
        raise DataError(path, "holds no measurement", "lines written by `ordsmed bench`")
    if path.suffix == ".json" and path.is_file():
        if speeds := _bench_table(path):
            return speeds
        raise DataError(path, "is not a table of `ordsmed bench`", "its NAME.json, or measurements.jsonl")
    return []


def _readable(path: Path) -> list[dict[str, Any]]:
    try:
        return _measurement_tables(path) if path.name == KEPT else _bench_table(path)
    except OrdsmedError as error:
        values.note_left_out(str(error))
        return []


def speed_files(path: Path) -> list[Path]:
    """Return the files that may hold speeds: the file itself, those in a folder, or in its `bench` folder."""
    if path.is_file():
        return [path]
    places = [
        folder for folder in (path, path / measurements.DEFAULT_PATH.parent.name) if not values.exists(folder / STATUS)
    ]
    files_of = [file for folder in places for file in (*values.matching(folder, "*.json"), folder / KEPT)]
    return [file for file in files_of if values.exists(file) and file.is_file()]


def _bench_table(path: Path) -> list[dict[str, Any]]:
    facts = files.read_json(path)
    if not isinstance(facts, dict) or not {"bench", "rows", "scaling", "failed"} <= facts.keys():
        return []
    return [{**values.shaped(path, facts, SpeedTable, "measure it again"), "file": values.written(str(path))}]


def _measurement_tables(path: Path) -> list[dict[str, Any]]:
    by_recipe: dict[str, list[list[Measurement]]] = {}
    for measurement in measurements.read(path):
        groups = by_recipe.setdefault(measurement.bench, [])
        if measurement.software == table.OURS:
            groups.append([measurement])
        elif groups:
            groups[-1].append(measurement)  # references follow their measurement
    return [
        {
            "bench": f"all measurements of {name}",
            "rows": [*_rows(groups[-MOST:])],
            "all_rows": len(groups),
            "file": values.written(str(path)),
        }
        for name, groups in by_recipe.items()
        if groups
    ]


def _rows(groups: Sequence[Sequence[Measurement]]) -> Iterator[dict[str, Any]]:
    measured = [measurement for measurement, *_ in groups]
    for measurement, *references in groups:
        network = f"{measurement.family} {measurement.layers} x {measurement.width}"
        row = {"date": measurement.date, "device": measurement.device, "network": network} | table.row_of(measurement)
        for reference in references:
            row |= {
                reference.software: table.rounded(reference.sequences_per_second),
                "ratio": round(reference.step_seconds / measurement.step_seconds, 3),
            }
        weak = table.scaling(measurement, measured, "weak") if measurement.processes > 1 else None
        yield row | {"speed_up": table.speed_up(measurement, measured), "weak": weak}


def and_tables(report: Mapping[str, Any]) -> list[ReportTable]:
    more = (*comparisons.tables(report), *_speeds(report))
    return [*searches.tables(report), *run_tables.tables(report), *(entry for entry in more if entry.rows)]


def title(report: Mapping[str, Any]) -> str:
    """Return the title of a report: that of its runs, otherwise of its speeds and comparisons."""
    if report["runs"] or report["made"]["title"]:
        return run_tables.title(report)
    names = [cut(speed["bench"]) for speed in report["speeds"]] + [*map(comparisons.title, report["comparisons"])]
    return names[0] if len(names) == 1 else "Speeds and comparisons" if report["comparisons"] else "Speeds"


def counted(report: Mapping[str, Any]) -> list[str]:
    nouns = {"runs": "run", "speeds": "speed table", "comparisons": "comparison"}
    return [many(len(report[key]), noun) for key, noun in nouns.items() if report[key]]


def _speeds(report: Mapping[str, Any]) -> Iterator[ReportTable]:
    """Yield the tables of each benchmark: rows, published figures, hours, and what could not be measured."""
    for number, bench in enumerate(report["speeds"]):
        measured = bench["rows"]
        first = measured[0] if len(measured) > 1 else {}
        common = {n: first[n] for n in ALIKE if n in first and all(row.get(n) == first[n] for row in measured)}
        parts = [
            *(str(bench[key]) for key in ("device", "date") if bench.get(key)),
            *map(_named, common.items()),
            ABOUT,
        ]
        parts += [f"the last {len(bench['rows'])} of {bench['all_rows']:,}"] if _is_cut(bench) else []
        parts += [f"time to train is unknown: length {n:,} was not measured" for n in bench.get("not_measured", [])]
        title, rows = str(bench["bench"]), ("speeds", number, "rows")
        separate = [name for _, _, names in PARTS for name in names]
        yield _grid(
            report, rows, f"speeds-{number}", f"Speeds: {title}", "; ".join(parts), without=[*common, *separate]
        )
        yield _published(report, number)
        distinguishing = _distinguishing(bench["rows"]) or ["length", "batch", "precision"]
        for key, name, names in PARTS:
            if any(row.get(column) for row in bench["rows"] for column in names):
                yield _grid(report, rows, f"{key}-{number}", f"{name}: {title}", "", only=[*distinguishing, *names])
        train = "sum of rows divided by rates over all lengths; speed-up: time in fp32 or TF32 divided by this time"
        yield _grid(report, ("speeds", number, "time_to_train"), f"hours-{number}", f"Time to train: {title}", train)
        yield _grid(report, ("speeds", number, "failed"), f"not-measured-{number}", f"Not measured: {title}", "")


def _is_cut(bench: Mapping[str, Any]) -> bool:
    return bool(bench.get("all_rows", 0) > len(bench["rows"]))


def _distinguishing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in CALLED if len({str(row.get(name)) for row in rows}) > 1]


def _named(item: tuple[str, Any]) -> str:
    name, value = item
    return str(value) if name in ("device", "network", "settings") else f"{name} {_cell(value)}"


def _grid(
    report: Mapping[str, Any],
    at: tuple[str | int, ...],
    key: str,
    title: str,
    about: str,
    *,
    without: Collection[str] = (),
    only: Collection[str] = (),
) -> ReportTable:
    """Return rows of facts as a table; nested numbers get a column each."""
    cells, rows = Cells(report), report["speeds"][at[1]].get(at[2]) or []
    paths = dict.fromkeys(
        path for row in rows for path in _paths(row) if path[0] not in without and (not only or path[0] in only)
    )
    for number in range(len(rows)):
        cells.add(*(cells.at((*at, number, *path), _cell) for path in paths))
    return cells.table(
        key, title, [" ".join([NAMES.get(path[0], path[0].replace("_", " ")), *path[1:]]) for path in paths], about
    )


def _paths(row: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from ((name, inner) for inner in value)
        elif name not in APART:
            yield (name,)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return table.digits(value) if isinstance(value, int | float) else cut(str(value))


def _published(report: Mapping[str, Any], number: int) -> ReportTable:
    cells, bench = Cells(report), report["speeds"][number]
    for row, measured in enumerate(bench["rows"]):
        for index, figure in enumerate(measured.get("published") or []):
            base, at = ("speeds", number, "rows", row), ("speeds", number, "rows", row, "published", index)
            like_them = next((key for key in LIKE_THEM if key in measured), "")
            cells.add(
                *(
                    cells.at((*base, key), _cell)
                    for key in ("length", "batch", "precision", "sequences_per_second", like_them)
                ),
                *(cells.at((*at, key), _cell) for key in ("devices", "device", "sequences_per_second")),
                *(
                    cells.at((*at, "latency_ms", n), _cell) if "latency_ms" in figure else ReportCell("")
                    for n in range(4)
                ),
                ReportCell("other" if figure["other_hardware"] else "same"),
            )
    head = (
        "length",
        "batch",
        "precision",
        "ordsmed, sequences/s",
        "ordsmed, padded",
        "devices",
        "published on",
        "published, sequences/s",
        "ms mean",
        "ms 90%",
        "ms 95%",
        "ms 99%",
        "hardware",
    )
    return cells.table(f"published-{number}", f"Published figures: {bench['bench']}", head, bench.get("source", ""))


def bars(report: Mapping[str, Any], key: str) -> str:
    room, _, number = key.rpartition("-")
    if room != "speeds":
        return ""
    rows = report["speeds"][int(number)]["rows"]
    lines = [line for row in rows for line in _bars(row, rows)]
    highest = max(value for _, value, _ in lines)
    items = "".join(
        f'<li><span>{html.escape(name)}</span><b class="{kind}" style="width:{40 * value / highest:.2f}%"></b>'
        f"<em>{table.digits(value)}</em></li>"
        for name, value, kind in lines
    )
    return f'<figure class="bars"><figcaption>sequences/s</figcaption><ul>{items}</ul></figure>'


def _bars(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float, str]]:
    """Yield label, rate and class of a row and its references; labels name what differs."""
    names = [name for name in _distinguishing(rows) if row.get(name) is not None]
    parts = [
        f"{NAMES.get(name, name)} {_cell(row[name])}" if isinstance(row[name], int) else str(row[name])
        for name in names
    ]
    called = ", ".join(parts) or "the recipe unchanged"
    yield called, row["sequences_per_second"], "ours"
    for reference in ("transformers", "padded"):
        if reference in row:
            yield f"{called}: {reference}", row[reference], "theirs"

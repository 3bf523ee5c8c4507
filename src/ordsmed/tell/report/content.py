"""Content of a report: one dictionary of facts from which the page, the Markdown and the JSON are written.

{"made": ..., "runs": [facts of each], "groups": [runs that differ only in the seed], "differences": [...],
 "speeds": [tables of benchmarks], "comparisons": [two recipes over seeds],
 "searches": [measurements of `make --for search`]}
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base.identity import identity
from ordsmed.learn.score import seeds
from ordsmed.tell.report import comparisons, folders, parts, samples, searches, speeds, values

BESIDE = ("seed", "seeds", "out", "log", "keep", "save", "jobs", "features")  # settings that do not distinguish runs
MACHINE = ("layout.device", "layout.threads", "layout.workers", "layout.background", "layout.patience")


def content(
    names: Sequence[str],
    *,
    watts: float = 0.0,
    title: str = "",
    author: str = "",
    read: folders.CurveReader | None = None,
) -> dict[str, Any]:
    """Return the content for the runs in these folders; `read` reads metrics files, by default from the start."""
    stored = {name: (speeds.read(Path(name)), comparisons.read(Path(name))) for name in names}
    paths = folders.find(names, [name for name in names if any(stored[name])])
    runs = folders.read(paths, read=read) if paths else []
    if len(runs) == 1 and read is None:
        runs[0]["samples"] = samples.ask(paths[0], runs[0])
    for run in runs:
        curve = run["course"] or {}
        hours = curve.get("device_hours")
        run["cost"] = {
            "hours": curve.get("hours"),
            "device_hours": hours,
            "flops": curve.get("flops"),
            "kwh": hours * watts / 1000 if watts and hours is not None else None,
        }
    groups = _groups(runs)
    return {
        "made": {
            "ordsmed": str(identity()),
            "at": time.strftime("%Y-%m-%d %H:%M"),
            "named": [*map(values.written, names)],
            "watts": watts or None,
            "title": values.written(title),
            "author": values.written(author),
        },
        "runs": runs,
        "groups": groups,
        "differences": _differences(runs, groups),
        "cost": _all_cost(runs),
        "speeds": [table for tables, _ in stored.values() for table in tables],
        "comparisons": [table for _, tables in stored.values() for table in tables],
        "searches": [searched for name in names for searched in searches.read(Path(name))],
    }


def _all_cost(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key in ("hours", "device_hours", "flops", "kwh"):
        known = [run["cost"][key] for run in runs if run["cost"][key] is not None]
        result[key] = sum(known) if known else None
    result["without_flops"] = sum(run["course"] is not None and run["cost"]["flops"] is None for run in runs)
    return result


def essence(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that distinguish a run from others, without seed, output and machine."""
    return {key: value for key, value in run["recipe"].items() if key not in (*BESIDE, *MACHINE)}


def _groups(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group runs with the same recipe, whatever their seed, and store the group's number in each run."""
    result: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        key = parts.dumps([run["kind"], sorted(_words(essence(run)).items())]) if run["recipe"] else f"run {number}"
        result.setdefault(key, []).append(number)
    groups: list[dict[str, Any]] = []
    for members in result.values():
        for number in members:
            runs[number]["group"] = len(groups)
        group_runs = [runs[number] for number in members]
        groups.append(
            {"name": _name(group_runs), "runs": members, "seeds": [run["seed"] for run in group_runs]}
            | {"scores": _statistics(group_runs)}
        )
    seen: dict[str, int] = {}
    for group in groups:
        seen[group["name"]] = seen.get(group["name"], 0) + 1
        if (count := seen[group["name"]]) > 1:
            group["name"] += f" ({count})"
    return groups


def _words(flat: Mapping[str, Any]) -> dict[str, str]:
    return {key: parts.dumps(value) if not isinstance(value, str) else value for key, value in flat.items()}


def _name(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a run's name; for several runs the common start of their names or their folder's name."""
    if len(runs) == 1:
        return str(runs[0]["name"])
    paths = [Path(run["folder"]).resolve() for run in runs]
    if len({path.parent for path in paths}) == 1 and paths[0].parent.name not in ("trials", "pretrain", "finetune"):
        names = [path.name for path in paths]
        first, last = min(names), max(names)
        common = first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
        prefix = common.rstrip("-_., ")
        return prefix if len(prefix) > 3 and prefix != "seed" else paths[0].parent.name
    return str(runs[0]["name"])


def _statistics(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    values: dict[str, list[float]] = {}
    guessing: dict[str, float] = {}
    for run in {run["seed"]: run for run in runs if run["scores"]}.values():  # a repeated seed counts once
        scores = run["scores"]
        for key, value in scores.get("found", {}).items():
            if key not in NO_SCORES:
                values.setdefault(key, []).append(value)
        guessing |= scores.get("guessing", {})
    return [{"score": key, **_over_seeds(numbers), "guessing": guessing.get(key)} for key, numbers in values.items()]


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    statistics = seeds.over_seeds(values)
    several = statistics.count > 1
    return {
        "runs": statistics.count,
        "mean": statistics.mean,
        "deviation": statistics.deviation,
        "interval": list(statistics.interval) if statistics.interval else None,
        "low": statistics.least if several else None,
        "high": statistics.most if several else None,
    }


NO_SCORES = ("step", "loss", "tokens", "training_seconds", "examples", "unigram")


def _differences(runs: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each command, a table of the settings in which its groups differ."""
    tables = []
    for verb in dict.fromkeys(run["kind"] for run in runs):
        firsts = [runs[group["runs"][0]] for group in groups]
        numbers = [number for number, run in enumerate(firsts) if run["kind"] == verb and run["recipe"]]
        flats = [runs[groups[number]["runs"][0]]["recipe"] for number in numbers]
        keys = [key for key in dict.fromkeys(key for flat in flats for key in flat) if key not in BESIDE]
        rows = [{"setting": key, "values": [flat.get(key) for flat in flats]} for key in keys]
        rows = [row for row in rows if len(set(map(parts.dumps, row["values"]))) > 1]
        kinds = {row["setting"].removesuffix("kind") for row in rows if row["setting"].endswith(".kind")}
        rows = [row for row in rows if row["setting"].endswith(".kind") or not row["setting"].startswith(tuple(kinds))]
        if rows:
            tables.append({"verb": verb, "groups": numbers, "rows": rows})
    return tables

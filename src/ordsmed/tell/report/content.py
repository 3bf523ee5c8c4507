"""The content of a report: one table of facts that the page, the Markdown and the JSON are all written from.

{"made": ..., "runs": [facts of each], "groups": [runs that differ in nothing but the seed], "differences": [...],
 "speeds": [tables of benches], "comparisons": [two recipes by their seeds],
 "searches": [what `make --for search` measured]}
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base.identity import identity
from ordsmed.learn.score import seeds
from ordsmed.tell.report import comparisons, folders, parts, samples, searches, speeds, values

BESIDE = ("seed", "seeds", "out", "log", "keep", "save", "jobs", "features")  # settings by which no run is another
MACHINE = ("layout.device", "layout.threads", "layout.workers", "layout.background", "layout.patience")


def content(
    names: Sequence[str],
    *,
    watts: float = 0.0,
    title: str = "",
    author: str = "",
    read: folders.CurveReader | None = None,
) -> dict[str, Any]:
    """All that is known of the runs in these folders; `read`: who reads their metrics."""
    kept = {name: (speeds.read(Path(name)), comparisons.read(Path(name))) for name in names}
    paths = folders.find(names, [name for name in names if any(kept[name])])
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
        "made": {"ordsmed": str(identity()), "at": time.strftime("%Y-%m-%d %H:%M"),
                 "named": [*map(values.written, names)], "watts": watts or None,
                 "title": values.written(title), "author": values.written(author)},
        "runs": runs, "groups": groups, "differences": _differences(runs, groups), "cost": _all_cost(runs),
        "speeds": [table for tables, _ in kept.values() for table in tables],
        "comparisons": [table for _, tables in kept.values() for table in tables],
        "searches": [searched for name in names for searched in searches.read(Path(name))],
    }  # fmt: skip


def _all_cost(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all runs together; None where no run tells."""
    result: dict[str, Any] = {}
    for key in ("hours", "device_hours", "flops", "kwh"):
        known = [run["cost"][key] for run in runs if run["cost"][key] is not None]
        result[key] = sum(known) if known else None
    result["without_flops"] = sum(run["course"] is not None and run["cost"]["flops"] is None for run in runs)
    return result


def essence(run: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by which a run is another one."""
    return {key: value for key, value in run["recipe"].items() if key not in (*BESIDE, *MACHINE)}


def _groups(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of one recipe, whatever their seeds; each run is told its group."""
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
    """Of one run its own; of several that of the folder they share, or what their names begin with."""
    if len(runs) == 1:
        return str(runs[0]["name"])
    paths = [Path(run["folder"]).resolve() for run in runs]
    if len({path.parent for path in paths}) == 1 and paths[0].parent.name not in ("trials", "pretrain", "finetune"):
        names = [path.name for path in paths]
        first, last = min(names), max(names)
        same = first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
        begin = same.rstrip("-_., ")
        return begin if len(begin) > 3 and begin != "seed" else paths[0].parent.name
    return str(runs[0]["name"])


def _statistics(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each score its mean, sample deviation and interval over the runs that have it."""
    values: dict[str, list[float]] = {}
    guessing: dict[str, float] = {}
    for run in {run["seed"]: run for run in runs if run["scores"]}.values():  # the same seed twice tells nothing new
        scores = run["scores"]
        for key, value in scores.get("found", {}).items():
            if key not in NO_SCORES:
                values.setdefault(key, []).append(value)
        guessing |= scores.get("guessing", {})
    return [{"score": key, **_over_seeds(numbers), "guessing": guessing.get(key)} for key, numbers in values.items()]


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean, deviation, interval and ends; of one value nothing that it does not tell itself."""
    over = seeds.over_seeds(values)
    several = over.count > 1
    return {
        "runs": over.count,
        "mean": over.mean,
        "deviation": over.deviation,
        "interval": list(over.interval) if over.interval else None,
        "low": over.least if several else None,
        "high": over.most if several else None,
    }


NO_SCORES = ("step", "loss", "tokens", "training_seconds", "examples", "unigram")


def _differences(runs: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The settings in which groups of one verb differ: a table of settings by groups for each verb."""
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

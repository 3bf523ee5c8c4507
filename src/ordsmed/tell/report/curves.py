"""Learning curves of a report: losses of runs, or of a recipe's seeds together, over steps, tokens, FLOPs, time."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from ordsmed.base.say import many
from ordsmed.tell.report import plot
from ordsmed.tell.report.learning_curve import COLUMNS
from ordsmed.tell.report.plot import PlotAxis, PlotCurve, PlotPoint
from ordsmed.tell.report.tables import cut, loss

AXES = (("step", "step"), ("tokens", "tokens"), ("flops", "FLOPs"), ("hours", "hours"))
MANY = 12  # maximum number of curves with visible bands
SHOWN = 6  # maximum number of charts of scores


def subjects(report: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the groups with a curve by objective or task, because losses of different ones are not comparable."""
    result: dict[str, list[int]] = {}
    for number, group in enumerate(report["groups"]):
        runs = [report["runs"][index] for index in group["runs"]]
        if any(map(_has_curve, runs)):
            recipe = runs[0]["recipe"]
            kind = recipe.get("objective.kind") or recipe.get("task.kind") or recipe.get("objective") or ""
            result.setdefault(" ".join(filter(None, (runs[0]["kind"], str(kind)))), []).append(number)
    return result


def losses(report: Mapping[str, Any], groups: Sequence[int]) -> list[tuple[str, str]]:
    colored = _colored(report, groups)
    result = []
    for key, label in AXES:
        curves = [curve for number in groups if (curve := _curve(report, number, key, colored))]
        if curves:
            missing = len(groups) - len(curves)
            axis, curves, unit = _scaled(key, label, curves)
            phases = [(x / unit, text) for x, text in _phases(report, groups, key)]
            notes = [f"{missing} not shown: {label} unknown."] if missing else []
            notes += [
                f"Cut off at the top: {cut(name)}, which reaches {loss(top)}." for name, top in plot.cut_off(curves)
            ]
            note = "".join(f'<p class="note">{html.escape(text)}</p>' for text in notes)
            picture = plot.plot(axis, curves, "loss", phases, guessing=_guessing(report, groups))
            result.append(("time" if key == "hours" else label, picture + note))
    return result


def _guessing(report: Mapping[str, Any], groups: Sequence[int]) -> float | None:
    levels = {report["runs"][number]["guessing_loss"] for group in groups for number in report["groups"][group]["runs"]}
    return levels.pop() if len(levels) == 1 else None


def scores(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    runs = [run for run in report["runs"] if run["course"] and any(run["course"]["scores"].values())]
    if len(runs) > plot.COLORED:
        return []
    pictures: list[tuple[str, str]] = []
    for name in dict.fromkeys(name for run in runs for name in run["course"]["scores"]):
        rows = [(n, run, run["course"]["scores"].get(name, [])) for n, run in enumerate(runs)]
        if len(pictures) == SHOWN or max(len(points) for _, _, points in rows) < 2:
            continue
        unit = 100.0 if name.endswith("_right") else 1.0
        lines = [
            (n, run["name"], [PlotPoint(x, y * unit, y * unit, y * unit) for x, y in points]) for n, run, points in rows
        ]
        plotted = [PlotCurve(title, list(points), [], n, banded=False) for n, title, points in lines if points]
        levels = {run["scores"].get("guessing", {}).get(name) for _, run, _ in rows}
        level = levels.pop() if len(levels) == 1 else None
        axis = plot.axis_of("step", "step", [point.x for curve in plotted for point in curve.points if point])
        about = "% right" if unit == 100.0 else name
        picture = plot.plot(axis, plotted, about, bands=True, guessing=None if level is None else level * unit)
        pictures.append((name, picture + (plot.legend(plotted, {}) if len(plotted) > 1 else "")))
    return pictures


def legend(report: Mapping[str, Any], groups: Sequence[int]) -> str:
    colored = _colored(report, groups)
    curves = [curve for number in groups if (curve := _curve(report, number, "step", colored))]
    notes = {}
    for group in (report["groups"][number] for number in groups):
        count = len([number for number in group["runs"] if _has_curve(report["runs"][number])])
        seeds = {report["runs"][number]["seed"] for number in group["runs"]}
        notes[group["name"]] = (
            f"{many(count, 'seed')}: mean, lowest to highest"
            if count > 1 and len(seeds) == count
            else (f"{many(count, 'run')}: mean, lowest to highest" if count > 1 else "")
        )
    return plot.legend(curves, notes)


def _has_curve(run: Mapping[str, Any]) -> bool:
    return bool(run["course"] and run["course"]["points"])


def _colored(report: Mapping[str, Any], groups: Sequence[int]) -> dict[int, int]:
    """Return the colors of groups: all if there are few, otherwise those with the lowest losses."""
    if len(groups) > plot.COLORED:
        groups = sorted(groups, key=lambda n: _last_loss(report, n))[: plot.COLORED]
    return {group: number for number, group in enumerate(sorted(groups))}


def _last_loss(report: Mapping[str, Any], group: int) -> float:
    runs = [report["runs"][number] for number in report["groups"][group]["runs"]]
    losses = [run["course"]["loss"] for run in runs if _has_curve(run) and run["course"]["loss"] is not None]
    return sum(losses) / len(losses) if losses else float("inf")


def _curve(report: Mapping[str, Any], number: int, key: str, colored: Mapping[int, int]) -> PlotCurve | None:
    """Return the curve of a group, or None if nothing is known on this axis."""
    group, column = report["groups"][number], COLUMNS.index(key)
    curves = [run["course"] for n in group["runs"] if _has_curve(run := report["runs"][n])]
    lines = [plot.bucketed(curve["points"], column) for curve in curves]
    lines = [line for line in lines if any(line)]
    if not lines:
        return None
    points = lines[0] if len(lines) == 1 else plot.band(lines)
    index = {"step": 0, "tokens": 2, "hours": 3, "flops": 4}[key]
    dots = (
        [
            (row[index], row[1])
            for curve in curves
            for row in curve["validations"]
            if row[index] is not None and row[1] is not None
        ]
        if number in colored and len(curves) == 1
        else []
    )
    banded = (len(colored) <= MANY and number in colored) or len(lines) > 1
    return PlotCurve(group["name"], points, dots, colored.get(number), banded)


def _scaled(key: str, label: str, curves: Sequence[PlotCurve]) -> tuple[PlotAxis, list[PlotCurve], float]:
    highest = max(point.x for curve in curves for point in curve.points if point)
    unit, label = plot.scaled(key, label, highest)
    scaled = [
        PlotCurve(
            c.name,
            [p and PlotPoint(p.x / unit, p.low, p.mean, p.high) for p in c.points],
            [(x / unit, y) for x, y in c.dots],
            c.color,
            c.banded,
        )
        for c in curves
    ]
    return plot.axis_of(key, label, [point.x for curve in scaled for point in curve.points if point]), scaled, unit


def _phases(report: Mapping[str, Any], groups: Sequence[int], key: str) -> list[tuple[float, str]]:
    """Return where the phases after the first start, if all runs with phases have the same ones."""
    members = [report["runs"][number] for group in groups for number in report["groups"][group]["runs"]]
    runs = [run for run in members if _has_curve(run) and len(run["course"]["phases"]) > 1]
    if not runs or any(run["course"]["phases"] != runs[0]["course"]["phases"] for run in runs[1:]):
        return []
    points, column = runs[0]["course"]["points"], COLUMNS.index(key)
    result = []
    for phase, first in runs[0]["course"]["phases"][1:]:
        rows_before = [row for row in points if row[0] < first and row[column] is not None]
        if rows_before:
            result.append((rows_before[-1][column], f"phase {phase}"))
    return result


def probes(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    result: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for run in report["runs"]:
        for row in run["probes"]:
            if row["value"] is not None and row["step"] is not None:
                key = (row["probe"], row["files"], row["score"])
                result.setdefault(key, {}).setdefault(run["name"], []).append(row)
    pictures: list[tuple[str, str]] = []
    for (probe, files, score), models in result.items():
        if max(len({row["step"] for row in rows}) for rows in models.values()) < 2 or len(pictures) == SHOWN:
            continue
        unit = next(unit for unit in ("words", "tokens", "step") if _all_have(models, unit))
        curves = [_probe_curve(name, rows, unit, number) for number, (name, rows) in enumerate(models.items())]
        curves = [curve for curve in curves if curve.points]
        if not curves:
            continue
        label = "step" if unit == "step" else f"{unit} seen"
        values = [point.x for curve in curves for point in curve.points if point]
        axis = plot.axis_of(unit, label, [x for x in values if x > 0], logarithmic=True)
        keys = plot.legend(curves, {}) if len(curves) > 1 else ""
        guessing = {row["guessing"] for rows in models.values() for row in rows}
        level = guessing.pop() if len(guessing) == 1 else None
        first = any(not row[unit] for rows in models.values() for row in rows)
        note = '<p class="note">Scores before the first step are only in the table.</p>' if first else ""
        picture = plot.plot(axis, curves, score, bands=True, guessing=level)
        pictures.append((f"{score}: {probe} of {files}", picture + keys + note))
    return pictures


def _all_have(models: Mapping[str, Sequence[Mapping[str, Any]]], unit: str) -> bool:
    return all(row[unit] is not None for rows in models.values() for row in rows)


def _probe_curve(name: str, rows: Sequence[Mapping[str, Any]], unit: str, number: int) -> PlotCurve:
    """Return results at positive x, for a logarithmic axis, with standard errors as a band."""
    ordered = sorted((row for row in rows if row[unit] > 0), key=lambda row: row[unit])
    points = [
        PlotPoint(row[unit], row["value"] - (row["error"] or 0.0), row["value"], row["value"] + (row["error"] or 0.0))
        for row in ordered
    ]
    dots = [(point.x, point.mean) for point in points]
    return PlotCurve(name, list(points), dots, number if number < plot.COLORED else None)

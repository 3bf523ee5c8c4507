"""Charts of runs: loss and validation over steps, scores of trials, and bands over seeds."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import chart, files
from ordsmed.base.chart import BOTTOM, COLORS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Mean
from ordsmed.learn.score.bands import BandPoint, Curve
from ordsmed.train.callbacks import Callback
from ordsmed.train.trial_results import digits_of, setting_of

TRIALS = "trials.json"
BARS = "dots: seeds; bars: mean ± sample deviation"
BANDS = "line: mean; dark: ± sample deviation; light: minimum to maximum; dots: validation"
WIDEST = 118  # characters per line of the caption
ENDLESS = 1e30  # larger losses count as infinite


class Pictures(Callback):
    """Callback that draws the chart of a finished run, or of its trials."""

    def finished(self, folder: Path) -> None:
        if (folder / TRIALS).exists():
            draw_trials(folder, folder.name, files.read_table(folder / TRIALS))
        else:
            draw(folder, folder.name)


def draw(folder: Path, title: str) -> Path | None:
    """Draw `loss.svg` into a run's folder from its metrics; return None if there is nothing to draw."""
    lines = files.read_lines(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    training = [line for line in lines if "validation" not in line]
    if len(_numbers(training, "loss")) < 2:
        return None
    path = folder / "loss.svg"
    files.write_text(path, svg(training, [line for line in lines if "validation" in line], title))
    return path


def svg(training: Sequence[dict[str, Any]], validations: Sequence[dict[str, Any]], title: str) -> str:
    """Return the chart of a run as SVG text, without losses that are not numbers."""
    steps: list[int] = [line["step"] for line in training]
    training, validations = _numbers(training, "loss"), _numbers(validations, "validation")
    levels = [*(line["loss"] for line in training), *(line["validation"] for line in validations)]
    first = min([steps[0], *(line["step"] for line in validations)])
    picture = chart.over_steps(title, (first, max(steps[-1], steps[0] + 1)), _range(levels, 1e-6))
    phases = sorted({line["phase"] for line in training})
    for phase in phases:
        lines = [line for line in training if line["phase"] == phase]
        color = COLORS[(phase - 1) % len(COLORS)]
        picture.line([(line["step"], line["loss"]) for line in _thin(lines)], color, 0.35)
        picture.line(_smooth(lines), color)
        picture.text(WIDTH - RIGHT - 110 * (phases[-1] - phase), 26, f"phase {phase}", "end", color)
    for line in validations:
        picture.dot(line["step"], line["validation"], 4)
    if validations:
        first_validation = (
            "" if validations[0]["step"] else f", {validations[0]['validation']:.3f} before the first step"
        )
        picture.text(
            LEFT + 8, HEIGHT - BOTTOM - 10, f"• validation: {validations[-1]['validation']:.3f}{first_validation}"
        )
    return str(picture)


def _range(levels: Sequence[float], least: float = 0.0) -> tuple[float, float]:
    """Return the limits of a chart's vertical axis: the lowest value and the 99.5th percentile, to cut off outliers.

    The limits differ by at least `least` times the lowest value, and by at least 0.001.
    """
    ordered = sorted(levels)
    low = ordered[0]
    return low, max(ordered[int(len(ordered) * 0.995)], low + max(1e-3, least * abs(low)))


@dataclass(frozen=True)
class BandGroup:
    """Curves of the runs of one recipe."""

    name: str
    losses: Sequence[BandPoint]
    validations: Sequence[BandPoint] = ()
    broken: Sequence[Curve] = ()
    """losses of runs that are not in the mean"""


def draw_bands(path: Path, title: str, groups: Sequence[BandGroup], below: str) -> Path | None:
    """Draw losses over steps, one color per recipe: mean, deviation and range; None if there are none."""
    points = [point for group in groups for point in (*group.losses, *group.validations)]
    broken = [point for group in groups for curve in group.broken for point in curve if abs(point[1]) < ENDLESS]
    if not points and len(broken) < 2:
        return None
    steps = [point.step for point in points] + [step for step, _ in broken]
    levels = [level for point in points for level in (point.over.least, point.over.most)]
    first, last = int(min(steps)), max(int(max(steps)), int(min(steps)) + 1)
    picture = chart.over_steps(title, (first, last), _range(levels or [loss for _, loss in broken]))
    for number, group in enumerate(groups):
        color = COLORS[number % len(COLORS)]
        _band(picture, group, color)
        if len(groups) > 1:
            picture.text(WIDTH - RIGHT - 8, TOP + 16 + 18 * number, group.name, "end", color)
    lines = [*textwrap.wrap(below, WIDEST), BANDS]
    for number, line in enumerate(lines):
        picture.text(LEFT, HEIGHT + 16 * number + 10, line)
    picture.height += 16 * len(lines) + 12
    files.write_text(path, str(picture))
    return path


def _band(picture: Chart, group: BandGroup, color: str) -> None:
    if group.losses:
        around = [(point, point.over.mean, point.over.deviation or 0.0) for point in group.losses]
        picture.band([(point.step, point.over.least, point.over.most) for point in group.losses], color, 0.15)
        picture.band([(point.step, mean - width, mean + width) for point, mean, width in around], color, 0.3)
        picture.line([(point.step, mean) for point, mean, _ in around], color)
    for curve in group.broken:
        points = [point for point in curve if abs(point[1]) < ENDLESS]
        if points:
            picture.line(points[:: max(1, len(points) // 300)], color, more=' stroke-dasharray="3 3"')
    for point in group.validations:
        picture.bar(point.step, point.over.least, point.over.most, color)
        picture.dot(point.step, point.over.mean, 4, color)


def _numbers(lines: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [line for line in lines if isinstance(line.get(key), int | float) and abs(line[key]) < ENDLESS]


def draw_trials(folder: Path, title: str, results: Mapping[str, Any]) -> Path | None:
    score = results["score"]
    rows = [row for row in results["settings"] if math.isfinite(row["scores"].get(score, {}).get("mean", math.nan))]
    if not rows:
        return None
    level = rows[0]["guessing"].get(score)
    guessing = level["mean"] if level and math.isfinite(level["mean"]) else None
    if len({row["setting"].get("step") for row in rows}) > 1:
        lines: dict[str, list[Mean]] = {}
        for row in sorted(rows, key=lambda row: row["setting"]["step"]):
            other_settings = {name: value for name, value in row["setting"].items() if name != "step"}
            lines.setdefault(setting_of(other_settings), []).append(_mean(row, results))
        text = chart.over_log(f"{title}: {score}", lines, f"step of pretraining; {BARS}", guessing)
    else:
        note = "" if guessing is None else f" (guessing {guessing:.{digits_of(results) - 1}f})"
        means = [(setting_of(row["setting"]), _mean(row, results)) for row in rows]
        text = chart.side_by_side(f"{title}: {score}{note}", means, BARS)
    path = folder / "trials.svg"
    files.write_text(path, text)
    return path


def _mean(row: Mapping[str, Any], results: Mapping[str, Any]) -> Mean:
    score, setting = results["score"], row["setting"]
    trials = [trial.get("scores", {}) for trial in results["trials"] if trial["setting"] == setting]
    values = [scores[score] for scores in trials if math.isfinite(scores.get(score, math.nan))]
    result = row["scores"][score]
    deviation, digits = result.get("deviation", math.nan), digits_of(results)
    return Mean(result["mean"], deviation, values, setting.get("step", 0), row["best"], digits)


def _thin(lines: Sequence[dict[str, Any]], most: int = 1500) -> Sequence[dict[str, Any]]:
    return lines[:: max(1, len(lines) // most)]


def _smooth(lines: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    size = max(1, len(lines) // 60)
    groups = [lines[i : i + size] for i in range(0, len(lines), size)]
    return [(group[len(group) // 2]["step"], sum(s["loss"] for s in group) / len(group)) for group in groups]

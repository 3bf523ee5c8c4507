"""Pictures as SVG: of a run its loss over steps, validation as dots; of trials their scores; of seeds a band."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.learn.score.bands import BandPoint, Course

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 64, 44, 20, 48
COLOURS = ("#1f6feb", "#d1671b", "#1a7f52", "#8250df", "#b35900", "#0a7ea4")
INK, FAINT = "#24292f", "#d8dee4"
BARS = "dots: seeds; bars: mean ± sample deviation"
BANDS = "line: mean; dark: ± sample deviation; light: least to most; dots: validation"
LONGEST, WIDEST = 50, 118  # letters of a setting, of a line below
ENDLESS = 1e30  # a loss of so much is as good as infinite

Scale = Callable[[float], float]  # a number -> where it stands


def draw(folder: Path, title: str) -> Path | None:
    """Draw `loss.svg` into a run's folder from its metrics; None where there is nothing to draw."""
    lines = files.read_lines(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    training = [line for line in lines if "validation" not in line]
    judged = [line for line in lines if "validation" in line]
    if len(_numbers(training, "loss")) < 2:
        return None
    path = folder / "loss.svg"
    files.write_text(path, svg(training, judged, title))
    return path


def svg(training: Sequence[dict[str, Any]], judged: Sequence[dict[str, Any]], title: str) -> str:
    """The picture as text; losses that are no numbers are left out."""
    steps: list[int] = [line["step"] for line in training]
    training, judged = _numbers(training, "loss"), _numbers(judged, "validation")
    ordered: list[float] = sorted([line["loss"] for line in training] + [line["validation"] for line in judged])
    low = ordered[0]
    high = max(ordered[int(len(ordered) * 0.995)], low + max(1e-3, 1e-6 * abs(low)))
    first, last = steps[0], max(steps[-1], steps[0] + 1)

    def x(step: float) -> float:
        return LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (high - min(loss, high)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 26, title, 15, "start"), *_axes(low, high, first, last, x, y)]
    phases = sorted({line["phase"] for line in training})
    for phase in phases:
        own = [line for line in training if line["phase"] == phase]
        colour = COLOURS[(phase - 1) % len(COLOURS)]
        parts.append(_path([(x(s["step"]), y(s["loss"])) for s in _thin(own)], colour, 0.35))
        parts.append(_path([(x(s), y(v)) for s, v in _smooth(own)], colour, 1.0))
        parts.append(_text(WIDTH - RIGHT - 110 * (phases[-1] - phase), 26, f"phase {phase}", 12, "end", colour))
    for line in judged:
        parts.append(f'<circle cx="{x(line["step"]):.1f}" cy="{y(line["validation"]):.1f}" r="4" fill="{INK}"/>')
    if judged:
        parts.append(
            _text(LEFT + 8, HEIGHT - BOTTOM - 10, f"• validation: {judged[-1]['validation']:.3f}", 12, "start")
        )
    return _whole(parts, HEIGHT)


@dataclass(frozen=True)
class BandGroup:
    """Runs of one recipe in a picture."""

    name: str
    losses: Sequence[BandPoint]
    validations: Sequence[BandPoint] = ()
    broken: Sequence[Course] = ()
    """losses of runs that are in no mean"""


def draw_bands(path: Path, title: str, groups: Sequence[BandGroup], below: str) -> Path | None:
    """Draw losses over steps, a color a recipe: mean, mean ± deviation, least to most; None where there are none."""
    stretches = [each for group in groups for each in (*group.losses, *group.validations)]
    broken = [point for group in groups for course in group.broken for point in course if abs(point[1]) < ENDLESS]
    if not stretches and len(broken) < 2:
        return None
    steps = [each.step for each in stretches] + [step for step, _ in broken]
    levels = [each.over.least for each in stretches] + [each.over.most for each in stretches]
    levels = sorted(levels or [loss for _, loss in broken])
    low, high = levels[0], max(levels[int(len(levels) * 0.995)], levels[0] + 1e-3)
    first, last = int(min(steps)), max(int(max(steps)), int(min(steps)) + 1)

    def x(step: float) -> float:
        return LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (high - min(max(loss, low), high)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 26, title, 15, "start"), *_axes(low, high, first, last, x, y)]
    for number, group in enumerate(groups):
        colour = COLOURS[number % len(COLOURS)]
        parts += _band(group, colour, x, y)
        if len(groups) > 1:
            parts.append(_text(WIDTH - RIGHT - 8, TOP + 16 + 18 * number, group.name, 12, "end", colour))
    lines = [*textwrap.wrap(below, WIDEST), BANDS]
    parts += [_text(LEFT, HEIGHT + 16 * number + 10, line, 12, "start") for number, line in enumerate(lines)]
    files.write_text(path, _whole(parts, HEIGHT + 16 * len(lines) + 12))
    return path


def _band(group: BandGroup, colour: str, x: Scale, y: Scale) -> list[str]:
    """One recipe's; runs that are in no mean are dashed."""
    reach = [(each, each.over.deviation or 0.0) for each in group.losses]
    parts = [
        _area([(x(e.step), y(e.over.least), y(e.over.most)) for e, _ in reach], colour, 0.15),
        _area([(x(e.step), y(e.over.mean - d), y(e.over.mean + d)) for e, d in reach], colour, 0.3),
        _path([(x(e.step), y(e.over.mean)) for e, _ in reach], colour, 1.0),
    ] if reach else []  # fmt: skip
    for course in group.broken:
        points = [point for point in course if abs(point[1]) < ENDLESS]
        points = points[:: max(1, len(points) // 300)]
        text = "L".join(f"{x(step):.1f} {y(loss):.1f}" for step, loss in points)
        parts += [f'<path d="M{text}" fill="none" stroke="{colour}" stroke-dasharray="3 3"/>'] if text else []
    for each in group.validations:
        top, bottom = y(each.over.most), y(each.over.least)
        parts.append(f'<path d="M{x(each.step):.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}"/>')
        parts.append(_dot(x(each.step), y(each.over.mean), 4, colour))
    return parts


def _area(points: Sequence[tuple[float, float, float]], colour: str, opacity: float) -> str:
    """What lies between two lines."""
    around = [*((a, low) for a, low, _ in points), *((a, high) for a, _, high in reversed(points))]
    text = "L".join(f"{a:.1f} {b:.1f}" for a, b in around)
    return f'<path d="M{text}Z" fill="{colour}" opacity="{opacity}"/>'


def _numbers(lines: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The lines whose value is a number that can be drawn."""
    return [line for line in lines if isinstance(line.get(key), int | float) and abs(line[key]) < ENDLESS]


def draw_trials(folder: Path, title: str, found: Mapping[str, Any]) -> Path | None:
    """Draw `trials.svg` from what trials.json holds; None where nothing was judged."""
    means = ((row, row["scores"].get(found["score"], {}).get("mean", math.nan)) for row in found["settings"])
    rows = [row for row, mean in means if math.isfinite(mean)]
    if not rows:
        return None
    over_steps = len({row["setting"].get("step") for row in rows}) > 1
    path = folder / "trials.svg"
    files.write_text(path, (_over_steps if over_steps else _side_by_side)(rows, found, title))
    return path


def draw_course(
    path: Path, title: str, score: str, points: Sequence[Mapping[str, Any]], axis: str = "step of pretraining"
) -> bool:
    """Draw how scores change while models learn, unless it is drawn so already; was it not?

    Of each point its place on the `axis` as `step`, `value`, `error`, `guessing` or None, and where they are of several
    models `model`.
    """
    rows = [
        {
            "setting": {"step": p["step"], **({"model": p["model"]} if "model" in p else {})},
            "scores": {score: {"mean": p["value"], "deviation": p["error"]}},
            "guessing": {} if p["guessing"] is None else {score: {"mean": p["guessing"]}},
        }
        for p in points
    ]
    text = _over_steps(rows, {"score": score, "trials": []}, title, axis=f"{axis}; bars: standard error")
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") == text:
        return False
    files.write_text(path, text)
    return True


def _over_steps(
    rows: Sequence[Mapping[str, Any]], found: Mapping[str, Any], title: str, axis: str = f"step of pretraining; {BARS}"
) -> str:
    """The score against the step of pretraining, by its logarithm; a line for each setting of the rest."""
    score = found["score"]
    steps = sorted({row["setting"]["step"] for row in rows})
    low, high = _reach(rows, found)
    first = min(step for step in steps if step > 0)
    decades = max(math.log10(steps[-1] / first), 0.3)
    begin = LEFT + (90 if steps[0] == 0 else 16)  # step 0 has no logarithm: it stands by itself at the left

    def x(step: float) -> float:
        return begin + math.log10(step / first) / decades * (WIDTH - RIGHT - 16 - begin) if step else LEFT + 24

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 26, f"{title}: {score}", 15, "start"), *_levels(low, high, y), *_log_marks(steps, x, axis)]
    if guessing := _guessing(rows, score):
        level = y(guessing["mean"])
        parts.append(f'<path d="M{LEFT} {level:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-dasharray="2 4"/>')
        parts.append(_text(WIDTH - RIGHT, level - 6, f"guessing {guessing['mean']:.1f}", 12, "end"))
    lines = _by_rest(rows)
    for number, (name, own) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts += _line(sorted(own, key=lambda row: row["setting"]["step"]), found, colour, x, y)
        if len(lines) > 1:
            parts.append(_text(LEFT + 12, TOP + 16 + 18 * number, name, 12, "start", colour))
    return _whole(parts, HEIGHT)


def _line(rows: Sequence[Mapping[str, Any]], found: Mapping[str, Any], colour: str, x: Scale, y: Scale) -> list[str]:
    """Means over steps with their deviations; step 0 is not joined to the others."""
    points = [(row["setting"]["step"], row["scores"][found["score"]], _values(row, found)) for row in rows]
    parts = [_path([(x(step), y(own["mean"])) for step, own, _ in points if step], colour, 1.0)]
    for step, own, values in points:
        top, bottom = map(y, _ends(own))
        parts.append(f'<path d="M{x(step):.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}" opacity="0.6"/>')
        parts += [_dot(x(step), y(value), 2.5, colour, 0.35) for value in values]
        parts.append(_dot(x(step), y(own["mean"]), 4, colour))
    return parts


def _side_by_side(rows: Sequence[Mapping[str, Any]], found: Mapping[str, Any], title: str) -> str:
    """A line a setting: its trials as dots, their mean with the deviation."""
    score = found["score"]
    names = [setting_of(row["setting"]) for row in rows]
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    left, right = 26 + 7 * max(map(len, names)), RIGHT + 100
    height = TOP + 34 * len(rows) + BOTTOM
    low, high = _reach(rows, found, guessing=False)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (WIDTH - left - right)

    guessing = _guessing(rows, score)
    beside = f" (guessing {guessing['mean']:.1f})" if guessing else ""
    parts = [_text(16, 26, f"{title}: {score}{beside}", 15, "start")]
    for mark in marks(low, high, 6):
        parts.append(f'<path d="M{x(mark):.1f} {TOP}V{height - BOTTOM}" stroke="{FAINT}"/>')
        parts.append(_text(x(mark), height - BOTTOM + 18, f"{mark:g}", 12, "middle"))
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        level, score_of_row = TOP + 34 * number + 17, row["scores"][score]
        colour, ink = (COLOURS[1], COLOURS[1]) if row["best"] else (COLOURS[0], INK)
        parts.append(_text(left - 10, level + 4, name, 12, "end", ink))
        parts.append(_path([(x(end), level) for end in _ends(score_of_row)], colour, 1.0))
        parts.append(f'<path d="M{x(score_of_row["mean"]):.1f} {level - 8}v16" stroke="{colour}" stroke-width="2"/>')
        parts += [_dot(x(value), level, 4, colour, 0.5) for value in _values(row, found)]
        parts.append(_text(WIDTH - RIGHT, level + 4, spread(score_of_row), 12, "end", ink))
    parts.append(_text((left + WIDTH - right) / 2, height - 10, BARS, 12, "middle"))
    return _whole(parts, height)


def _reach(
    rows: Sequence[Mapping[str, Any]], found: Mapping[str, Any], *, guessing: bool = True
) -> tuple[float, float]:
    """The lowest and highest number to be shown, with some room."""
    score, shown = found["score"], []
    for row in rows:
        shown += [*_ends(row["scores"][score]), *_values(row, found)]
        shown += [usual["mean"]] if guessing and (usual := _guessing([row], score)) else []
    room = max(0.06 * (max(shown) - min(shown)), 0.05)
    return min(shown) - room, max(shown) + room


def _ends(told: Mapping[str, float]) -> tuple[float, float]:
    """Of the bar of a mean."""
    reach = told.get("deviation", 0.0)
    reach = reach if math.isfinite(reach) else 0.0
    return told["mean"] - reach, told["mean"] + reach


def _values(row: Mapping[str, Any], found: Mapping[str, Any]) -> list[float]:
    """The scores of a setting's trials."""
    own = [trial for trial in found["trials"] if trial["setting"] == row["setting"]]
    values = [trial["scores"][found["score"]] for trial in own if found["score"] in trial.get("scores", {})]
    return [value for value in values if math.isfinite(value)]


def _guessing(rows: Sequence[Mapping[str, Any]], score: str) -> Mapping[str, float] | None:
    """What guessing scores, where that is a number."""
    level = rows[0]["guessing"].get(score)
    return level if level and math.isfinite(level["mean"]) else None


def _by_rest(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by their setting beside the step."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        rest = setting_of({name: value for name, value in row["setting"].items() if name != "step"})
        found.setdefault(rest, []).append(row)
    return found


def setting_of(setting: Mapping[str, Any]) -> str:
    """A setting for a person."""
    words = (f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in setting.items())
    return ", ".join(words) or "as in the recipe"


def spread(found: Mapping[str, float] | None) -> str:
    """A mean with its deviation; nothing where there is none."""
    if not found:
        return ""
    beside = math.isfinite(found.get("deviation", math.nan))
    return f"{found['mean']:.2f}" + (f" ± {found['deviation']:.2f}" if beside else "")


def _log_marks(steps: Sequence[int], x: Scale, axis: str) -> list[str]:
    """The steps under the axis, those left out that would stand on another."""
    parts, last = [], -1e9
    for step in steps:
        text = f"{step:,}" if step < 1_000_000 else f"{step / 1e6:,.4g} M"
        if x(step) - last > 7 * len(text) + 8:
            parts.append(_text(x(step), HEIGHT - BOTTOM + 18, text, 12, "middle"))
            last = x(step)
    return [*parts, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, axis, 12, "middle")]


def _dot(x: float, y: float, radius: float, colour: str, opacity: float = 1.0) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" opacity="{opacity}"/>'


def _whole(parts: Sequence[str], height: int) -> str:
    """The picture around its parts."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _levels(low: float, high: float, y: Scale) -> list[str]:
    """Lines across at round numbers."""
    parts = []
    for mark in marks(low, high, 6):
        parts.append(f'<path d="M{LEFT} {y(mark):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        parts.append(_text(LEFT - 8, y(mark) + 4, f"{mark:g}", 12, "end"))
    return parts


def _axes(low: float, high: float, first: int, last: int, x: Scale, y: Scale) -> list[str]:
    parts = _levels(low, high, y)
    for mark in marks(first, last, 7):
        parts.append(_text(x(mark), HEIGHT - BOTTOM + 18, f"{mark:,.0f}", 12, "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "step", 12, "middle"))
    parts.append(_text(LEFT - 8, TOP - 10, "loss", 12, "end"))
    return parts


def marks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two."""
    raw = (high - low) / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw)
    start = math.ceil(low / step)
    return [round(i * step, 10) for i in range(start, math.floor(high / step) + 1)]


def _thin(lines: Sequence[dict[str, Any]], most: int = 1500) -> Sequence[dict[str, Any]]:
    return lines[:: max(1, len(lines) // most)]


def _smooth(lines: Sequence[dict[str, Any]]) -> list[tuple[int, float]]:
    """Means of about 60 stretches."""
    size = max(1, len(lines) // 60)
    groups = [lines[i : i + size] for i in range(0, len(lines), size)]
    return [(group[len(group) // 2]["step"], sum(s["loss"] for s in group) / len(group)) for group in groups]


def _path(points: Sequence[tuple[float, float]], colour: str, opacity: float) -> str:
    text = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    return (
        f'<path d="{text}" fill="none" stroke="{colour}" stroke-width="{1 if opacity < 1 else 2}" opacity="{opacity}"/>'
    )


def _text(x: float, y: float, text: str, size: int, anchor: str, colour: str = INK) -> str:
    style = f'font-family="sans-serif" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(text)}</text>'

"""The picture of a run: its loss over steps as an SVG, a colour a phase, validation as dots."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.train.meters import read

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 64, 44, 20, 48
COLOURS = ("#1f6feb", "#d1671b", "#1a7f52", "#8250df", "#b35900", "#0a7ea4")
INK, FAINT = "#24292f", "#d8dee4"


def draw(folder: Path, title: str) -> Path | None:
    """Draw `loss.svg` into a run's folder from its metrics; None where there is nothing to draw."""
    lines = read(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    training = [line for line in lines if "validation" not in line]
    judged = [line for line in lines if "validation" in line]
    if len(training) < 2:
        return None
    path = folder / "loss.svg"
    files.write_text(path, svg(training, judged, title))
    return path


def svg(training: Sequence[dict[str, Any]], judged: Sequence[dict[str, Any]], title: str) -> str:
    """The picture as text."""
    losses = [line["loss"] for line in training] + [line["validation"] for line in judged]
    ordered = sorted(losses)
    low, high = ordered[0], max(ordered[int(len(ordered) * 0.995)], ordered[0] + 1e-3)
    steps = [line["step"] for line in training]
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
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _axes(low: float, high: float, first: int, last: int, x: Any, y: Any) -> list[str]:
    parts = []
    for mark in _marks(low, high, 6):
        parts.append(f'<path d="M{LEFT} {y(mark):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        parts.append(_text(LEFT - 8, y(mark) + 4, f"{mark:g}", 12, "end"))
    for mark in _marks(first, last, 7):
        parts.append(_text(x(mark), HEIGHT - BOTTOM + 18, f"{mark:,.0f}", 12, "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "step", 12, "middle"))
    parts.append(_text(LEFT - 8, TOP - 10, "loss", 12, "end"))
    return parts


def _marks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two."""
    import math

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

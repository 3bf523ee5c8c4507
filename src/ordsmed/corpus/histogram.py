"""Histograms of lengths in powers of two: counted, drawn with block characters, or as an SVG.

[1, 3, 3, 9]  ->  0: 0, 1: 1, 2-3: 2, 4-7: 0, 8-15: 1  ->  1    ████         25.0 %
                                                           2-3  ████████     50.0 %
"""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
BINS = 40  # the last one begins at 2 ** 38
BLOCKS = " ▏▎▍▌▋▊▉"
WIDTH, PANEL, LEFT, TOP, RIGHT, BOTTOM = 760, 250, 64, 44, 20, 40
COLOURS = ("#1f6feb", "#d1671b", "#1a7f52")
INK, FAINT = "#24292f", "#d8dee4"


def count(numbers: NDArray[np.int64]) -> Counts:
    """How many numbers fall into each bin: 0, 1, 2-3, 4-7 ..."""
    return np.bincount(np.frexp(numbers.astype(np.float64))[1], minlength=BINS)


def named(counts: Counts) -> dict[str, int]:
    """From the first bin that holds something to the last."""
    filled = np.flatnonzero(counts)
    return {_name(n): int(counts[n]) for n in range(filled[0], filled[-1] + 1)} if len(filled) else {}


def lines(counts: Counts, wide: int = 0) -> list[str]:
    """A line a bin, for a terminal of so many columns; 0: as wide as they like."""
    bins = named(counts)
    most, total = max(bins.values(), default=1), max(int(counts.sum()), 1)
    pad = max(map(len, bins), default=0)
    width = min(40, max(4, wide - pad - 10)) if wide else 40
    return [f"{name:>{pad}}  {_bar(n / most, width):{width}}  {n / total:6.1%}" for name, n in bins.items()]


def svg(panels: Mapping[str, Mapping[str, Counts]]) -> str:
    """A panel a quantity, a color a split: the share of its documents, or sentences, in each bin."""
    height = PANEL * len(panels) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    parts = [head, '<rect width="100%" height="100%" fill="white"/>']
    for number, (title, splits) in enumerate(panels.items()):
        parts += _panel(title, splits, number * PANEL)
    return "\n".join([*parts, "</svg>\n"])


def _panel(title: str, splits: Mapping[str, Counts], top: int) -> list[str]:
    shares = {name: counts / max(counts.sum(), 1) for name, counts in splits.items()}
    filled = np.flatnonzero(sum(shares.values(), np.zeros(BINS)))
    first, last = (filled[0], filled[-1]) if len(filled) else (0, 0)
    most = max([*(share.max() for share in shares.values()), 1e-9])
    floor, step = top + PANEL - BOTTOM, (WIDTH - LEFT - RIGHT) / (last - first + 1)
    parts = [_text(LEFT, top + 26, title, 15, "start")]
    for mark in (0.5, 1.0):
        y = floor - mark * (PANEL - TOP - BOTTOM)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{mark * most:.0%}", 12, "end"))
    for number, (name, share) in enumerate(shares.items()):
        colour, wide = COLOURS[number % len(COLOURS)], 0.84 * step / len(shares)
        parts.append(_text(WIDTH - RIGHT - 90 * (len(shares) - 1 - number), top + 26, name, 12, "end", colour))
        for place in range(first, last + 1):
            tall = share[place] / most * (PANEL - TOP - BOTTOM)
            x = LEFT + (place - first + 0.08) * step + number * wide
            parts.append(
                f'<rect x="{x:.1f}" y="{floor - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{colour}"/>'
            )
    names = [
        _text(LEFT + (n - first + 0.5) * step, floor + 16, _name(n).split("-")[0], 12, "middle")
        for n in range(first, last + 1)
    ]
    return [*parts, f'<path d="M{LEFT} {floor}H{WIDTH - RIGHT}" stroke="{INK}"/>', *names]


def _name(place: int) -> str:
    return str(place) if place < 2 else f"{1 << place - 1:,}-{(1 << place) - 1:,}"


def _bar(share: float, width: int) -> str:
    whole, rest = divmod(round(share * width * 8), 8)
    return ("█" * whole + BLOCKS[rest]).rstrip() or ("▏" if share else "")


def _text(x: float, y: float, text: str, size: int, anchor: str, colour: str = INK) -> str:
    style = f'font-family="sans-serif" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(text)}</text>'

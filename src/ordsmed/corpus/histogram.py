"""Histograms of lengths in powers of two, as counts, as lines of block characters, or as SVG.

[1, 3, 3, 9]  ->  0: 0, 1: 1, 2-3: 2, 4-7: 0, 8-15: 1  ->  1    ████         25.0 %
                                                           2-3  ████████     50.0 %
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chart

Counts = NDArray[np.int64]
BINS = 40  # the last one begins at 2 ** 38
BLOCKS = " ▏▎▍▌▋▊▉"


def count(numbers: NDArray[np.int64]) -> Counts:
    """Return how many numbers are in each bin: 0, 1, 2-3, 4-7 ..."""
    return np.bincount(np.frexp(numbers.astype(np.float64))[1], minlength=BINS)


def named(counts: Counts) -> dict[str, int]:
    filled = np.flatnonzero(counts)
    return {_name(n): int(counts[n]) for n in range(filled[0], filled[-1] + 1)} if len(filled) else {}


def lines(counts: Counts, wide: int = 0) -> list[str]:
    """Return one line per bin, for a terminal of `wide` columns; 0: no limit."""
    bins = named(counts)
    longest, total = max(bins.values(), default=1), max(int(counts.sum()), 1)
    pad = max(map(len, bins), default=0)
    width = min(40, max(4, wide - pad - 10)) if wide else 40
    return [f"{name:>{pad}}  {_bar(n / longest, width):{width}}  {n / total:6.1%}" for name, n in bins.items()]


def svg(panels: Mapping[str, Mapping[str, Counts]]) -> str:
    return chart.histograms(panels, lambda bin: _name(bin).split("-")[0])


def _name(bin: int) -> str:
    return str(bin) if bin < 2 else f"{1 << bin - 1:,}-{(1 << bin) - 1:,}"


def _bar(share: float, width: int) -> str:
    whole, eighths = divmod(round(share * width * 8), 8)
    return ("█" * whole + BLOCKS[eighths]).rstrip() or ("▏" if share else "")

"""Histograms of lengths in powers of two: counted, drawn with block characters, or as an SVG.

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
    return chart.histograms(panels, lambda bin: _name(bin).split("-")[0])


def _name(bin: int) -> str:
    return str(bin) if bin < 2 else f"{1 << bin - 1:,}-{(1 << bin) - 1:,}"


def _bar(share: float, width: int) -> str:
    whole, rest = divmod(round(share * width * 8), 8)
    return ("█" * whole + BLOCKS[rest]).rstrip() or ("▏" if share else "")

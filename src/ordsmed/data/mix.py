"""Mix: each store's share of a run's tokens, computed from the sizes of the stores.

temperature   tokens ** temperature: 1 proportional, 0 equal (0.7, 0.5 and 0.3 in mmBERT's three phases)
unimax        equal shares, but no store is read more than this many times (Chung et al. 2023)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import large
from ordsmed.base.settings import as_toml

Names = str | tuple[str, ...] | dict[str, float]  # stores: one, several with equal weights, or several with weights


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Shares of stores by their sizes; exactly one of the two settings."""

    temperature: float | None = None
    """exponent of a store's size in its share: 1 proportional, 0 equal; elsewhere alpha, or 1 / temperature"""
    unimax: float | None = None
    """equal shares, but no store is read more often than this many times"""

    def __post_init__(self) -> None:
        if self.temperature is None and self.unimax is None:
            raise ValueError("temperature: missing; wanted it or `unimax`")
        if None not in (self.temperature, self.unimax):
            raise ValueError("unimax: found together with temperature; wanted one of the two")
        if self.temperature is not None and not 0 <= self.temperature <= 1:
            problem = f"found {self.temperature:g}; wanted 0 to 1"
            remedy = f"; a temperature of {self.temperature:g} that divides is {1 / self.temperature:.3g} here"
            raise ValueError(f"temperature: {problem}{remedy if self.temperature > 1 else ''}")
        if self.unimax is not None and not 0 < self.unimax < math.inf:
            raise ValueError(f"unimax: found {self.unimax:g}; wanted a number of passes above 0")

    def shares(self, counts: Sequence[float], budget: float, location: str = "mix") -> list[float]:
        """Return each store's share of `budget` tokens; `counts`: tokens of each store."""
        if self.temperature is not None:
            powers = [count**self.temperature for count in counts]
            whole = math.fsum(powers)
            return [power / whole for power in powers]
        assert self.unimax is not None
        most = self.unimax * math.fsum(counts)
        if most < budget:
            problem = f"found {self.unimax:g}, which gives {large(most)} tokens for a phase of {large(budget)}"
            least = math.ceil(10 * budget / math.fsum(counts)) / 10
            raise RecipeError(f"{location}.unimax", problem, f"{least:g} or more, or fewer steps")
        drawn, left = [0.0] * len(counts), budget
        for rank, number in enumerate(sorted(range(len(counts)), key=lambda number: counts[number])):
            drawn[number] = min(left / (len(counts) - rank), self.unimax * counts[number])
            left -= drawn[number]
        return [tokens / budget for tokens in drawn]


def listed(names: Names, mix: Mix | None = None) -> dict[str, float]:
    """Return stores with their weights; raise an error for invalid weights, or for weights together with a mix."""
    if isinstance(names, str):
        return {names: 1.0}
    if not isinstance(names, Mapping):
        if len(set(names)) < len(names) or not names:
            raise ValueError(f"data: found {as_toml(names)}; wanted one or more different ones")
        return dict.fromkeys(names, 1.0)
    if not names or not all(0 <= weight < math.inf for weight in names.values()):
        raise ValueError(f"data: found {as_toml(names)}; wanted one or more, with weights of 0 or more")
    if not any(names.values()):
        raise ValueError(f"data: found {as_toml(names)}; wanted a weight above 0, or no data would be read")
    if mix is not None and len(set(names.values())) > 1:
        raise ValueError("mix: found together with weights of data; wanted one of the two: give the data as a list")
    return dict(names)

"""Outcomes of checks: a state, a text and a remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ordsmed.base import screen

State = Literal["ok", "warning", "error", "absent"]  # absent: cannot be checked on this machine, which is not a fault


@dataclass(frozen=True)
class Outcome:
    state: State
    text: str
    remedy: str = ""
    figures: dict[str, float] = field(default_factory=dict)  # measured values by name and unit
    check: str = ""
    node: str = ""  # machine that reports it, if there are several

    @property
    def words(self) -> str:
        where = f"{self.node}: " if self.node else ""
        return f"{where}{self.text}{f'; {self.remedy}' if self.remedy else ''}"


def ok(text: str, **figures: float) -> Outcome:
    return Outcome("ok", text, figures=figures)


def warning(text: str, remedy: str, **figures: float) -> Outcome:
    return Outcome("warning", text, remedy, figures)


def error(text: str, remedy: str, **figures: float) -> Outcome:
    return Outcome("error", text, remedy, figures)


def absent(text: str, remedy: str = "") -> Outcome:
    return Outcome("absent", text, remedy)


def worst(outcomes: Iterable[Outcome]) -> State:
    states = {outcome.state for outcome in outcomes}
    return "error" if "error" in states else "warning" if "warning" in states else "ok"


def lines(outcomes: Iterable[Outcome]) -> Iterator[str]:
    rows = [(outcome.state, outcome.check, outcome.words) for outcome in outcomes]
    yield from screen.table(rows) if rows else ()


def plain(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(outcome) for outcome in outcomes]

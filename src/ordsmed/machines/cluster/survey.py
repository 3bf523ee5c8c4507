"""Survey of code bases that pretrain such models: requirements, training times, and whether they are maintained."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ordsmed.base import menu, screen, settings
from ordsmed.base.say import many

UNKNOWN, INFERENCE = "unknown", "inference only"
HEAD = ("code", "architecture", "developer", "requires", "multi-GPU", "multi-node", "training time", "maintained")


@dataclass(frozen=True)
class Code:
    name: str
    architecture: str
    developer: str
    requires: str
    multi_gpu: str
    multi_node: str
    maintained: str
    training_time: str = ""
    """as reported; default: from its claims"""
    use: str = "pretraining"
    """pretraining, or inference only, which is out of scope"""
    seen: str = ""
    """date of the newest change"""
    source: str = "its repository"

    @property
    def row(self) -> list[str]:
        name = f"{self.name} ({self.use})" if self.use == INFERENCE else self.name
        maintained = f"{self.maintained}, {self.seen}" if self.seen else self.maintained
        basics, devices = [self.architecture, self.developer, self.requires], [self.multi_gpu, self.multi_node]
        return [name, *basics, *devices, self.training_time, maintained]


@dataclass(frozen=True)
class Claim:
    code: str
    work: str
    hours: tuple[float, float]
    """minimum and maximum"""
    devices: tuple[int, int]
    """minimum and maximum"""
    device: str
    nodes: int = 1
    precision: str = ""
    """default: the fastest of the device"""
    recipe: str = ""
    """the closest built-in recipe"""
    tokens: float = 0.0
    """tokens of training, if they differ from the recipe"""
    note: str = ""
    source: str = ""

    @property
    def time(self) -> str:
        least, most = self.hours
        unit, hours_a_unit = ("days", 24) if least >= 48 and not (least % 24 or most % 24) else ("hours", 1)
        return f"{to(least / hours_a_unit, most / hours_a_unit)} {unit}"

    @property
    def on(self) -> str:
        nodes = f", {many(self.nodes, 'machine')}" if self.nodes > 1 else ""
        several = "s" if self.device == "TPU" else ""
        return f"{to(*self.devices)} {self.device}{several}{nodes}"


def to(least: float, most: float) -> str:
    """Return a range as text: `4`, or `4 to 16`."""
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def table() -> dict[str, Any]:
    return tomllib.loads((menu.PACKAGE_ROOT / "survey.toml").read_text(encoding="utf-8"))


def claims() -> tuple[Claim, ...]:
    return tuple(settings.decode(Claim, row, "survey.toml") for row in table()["claim"])


def codes() -> tuple[Code, ...]:
    times: dict[str, list[str]] = {}
    for entry in claims():
        times.setdefault(entry.code, []).append(f"{entry.work}: {entry.time} on {entry.on}")
    decoded = [settings.decode(Code, entry, "survey.toml") for entry in table()["code"]]
    return tuple(
        entry if entry.training_time else replace(entry, training_time="; ".join(times[entry.name]))
        for entry in decoded
    )


Estimates = Mapping[str, Sequence[Mapping[str, Any]]]  # code -> its claims, each with an `estimate` as text


def facts(estimates: Estimates | None = None) -> list[dict[str, Any]]:
    rows = [settings.plain(code) for code in codes()]
    return rows if estimates is None else [{**row, "claims": [*estimates[row["name"]]]} for row in rows]


def lines(estimates: Estimates | None = None) -> Iterator[str]:
    for code in codes():
        name, architecture, developer, requires, gpu, node, time, maintained = code.row
        yield f"{name}: {architecture}; {developer}"
        if code.use != INFERENCE:
            yield f"  multi-GPU {gpu}; multi-node {node}; training time {time}"
        if estimates is not None:
            yield from (f"  estimate: {text}" for text in _estimates(code, estimates))
        yield f"  requires {requires}; maintained: {maintained}"


def _estimates(code: Code, estimates: Estimates) -> list[str]:
    if code.use == INFERENCE:
        return []
    return [f"{row['reported']}: {row['estimate']}" for row in estimates[code.name]] or ["none: no time was reported"]


def markdown(estimates: Estimates | None = None) -> list[str]:
    if estimates is None:
        return screen.markdown(HEAD, [code.row for code in codes()])
    rows = [[*code.row, "; ".join(_estimates(code, estimates)) or "not of interest"] for code in codes()]
    return screen.markdown([*HEAD, "estimated for our recipe"], rows)

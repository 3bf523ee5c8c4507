"""The survey: codes that pretrain such models, what each needs, and whether anybody still keeps it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ordsmed.base import menu, screen, settings

UNKNOWN, INFERENCE = "unknown", "inference only"
HEAD = ("code", "architecture", "developer", "requires", "multi-GPU", "multi-node", "training time", "maintained")


@dataclass(frozen=True)
class Code:
    """One implementation."""

    name: str
    architecture: str
    developer: str
    requires: str
    multi_gpu: str
    multi_node: str
    training_time: str
    maintained: str
    use: str = "pretraining"
    """pretraining, or inference only, which is not of interest here"""
    seen: str = ""
    """the newest change that was read"""
    source: str = "its repository"

    @property
    def row(self) -> list[str]:
        name = f"{self.name} ({self.use})" if self.use == INFERENCE else self.name
        kept = f"{self.maintained}, {self.seen}" if self.seen else self.maintained
        what, devices = [self.architecture, self.developer, self.requires], [self.multi_gpu, self.multi_node]
        return [name, *what, *devices, self.training_time, kept]


def codes() -> tuple[Code, ...]:
    """All of the survey, in its order."""
    table = tomllib.loads((menu.HOUSE / "survey.toml").read_text(encoding="utf-8"))
    return tuple(settings.decode(Code, one, "survey.toml") for one in table["code"])


def facts() -> list[dict[str, Any]]:
    """For other programs."""
    return [settings.plain(one) for one in codes()]


def lines() -> Iterator[str]:
    """For a screen: a paragraph a code, which is wider than a table may be."""
    for one in codes():
        name, architecture, developer, requires, gpu, node, time, kept = one.row
        yield f"{name}: {architecture}; {developer}"
        if one.use != INFERENCE:
            yield f"  multi-GPU {gpu}; multi-node {node}; training time {time}"
        yield f"  requires {requires}; maintained: {kept}"


def markdown() -> list[str]:
    """The table of the docs."""
    return screen.markdown(HEAD, [one.row for one in codes()])

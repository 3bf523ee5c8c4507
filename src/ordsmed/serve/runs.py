"""Loss curves and scores of a served model's run, for the web page. They contain no paths."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from ordsmed.serve.models import ServedModel
from ordsmed.tell.report import folders
from ordsmed.tell.report.live import Follower

POINTS = 200  # a curve with at least this many steps has between POINTS and 2 * POINTS points


class ProbeScore(Struct):
    """A score of a probe."""

    probe: str
    score: str
    step: float | None
    value: float


class RunFacts(Struct):
    """Progress, losses and scores of a run."""

    name: str
    summary: str  # one sentence
    state: str
    step: float | None
    planned: int | None  # steps
    tokens: float | None
    hours: float | None
    loss: float | None  # the mean of the last few steps
    guessing_loss: float | None  # of predicting by token frequency
    points: list[list[float | None]]  # step, lowest, mean and highest loss of a stretch of steps
    validations: list[list[float | None]]  # step, loss
    curves: dict[str, list[list[float]]]  # scores of validations: step, value
    scores: dict[str, float]  # at the end of the run
    guessing: dict[str, float]
    probes: list[ProbeScore]


@dataclass
class RunReader:
    """Reads the files of runs, one run at a time, and only their new lines, so frequent requests are cheap."""

    follower: Follower = field(default_factory=Follower)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, served: ServedModel) -> RunFacts:
        async with self.lock:
            facts = await asyncio.to_thread(folders.read_one, served.folder, POINTS, self.follower.read)
        return _facts(served.name, facts)


def _facts(name: str, facts: dict[str, Any]) -> RunFacts:
    curve = facts["course"] or {}
    return RunFacts(
        name=name,
        summary=facts["summary"],
        state=facts["state"],
        step=curve.get("step"),
        planned=facts["planned"],
        tokens=curve.get("tokens"),
        hours=curve.get("hours"),
        loss=curve.get("loss"),
        guessing_loss=facts["guessing_loss"],
        points=[point[:4] for point in curve.get("points", [])],
        validations=[validation[:2] for validation in curve.get("validations", [])],
        curves=curve.get("scores", {}),
        scores=facts["scores"].get("found", {}),
        guessing=facts["scores"].get("guessing", {}),
        probes=[ProbeScore(row["probe"], row["score"], row["step"], row["value"]) for row in facts["probes"]],
    )

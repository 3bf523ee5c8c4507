"""Weights & Biases; `--offline FOLDER` writes files for a later `wandb sync`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ordsmed.tell.report.send import Sending, imported

LATER = (
    "`wandb sync {}/wandb/offline-run-*` sends it from a machine with a network: all folders, those of a run in order"
)


class WandbRun:
    """A run at Weights & Biases, which is resumed when it is sent again."""

    def __init__(self, sending: Sending) -> None:
        wandb = imported("wandb", "wandb")
        mode: dict[str, Any] = {"mode": "offline", "dir": str(sending.offline)} if sending.offline else {}
        self.run = wandb.init(
            project=sending.project,
            name=sending.name,
            id=sending.key,
            resume="allow",
            config=dict(sending.settings),
            settings=wandb.Settings(x_disable_stats=True, console="off", silent=True),
            **mode,
        )

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        self.run.log(dict(numbers), step=step)

    def end(self, scores: Mapping[str, float], state: str) -> None:
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=1 if state in ("failed", "killed") else 0)


Tracker = WandbRun

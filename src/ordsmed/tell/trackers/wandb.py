"""Weights & Biases; `--offline FOLDER` writes what `wandb sync` sends later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ordsmed.tell.report.send import Sending, imported

LATER = "`wandb sync {}/wandb/offline-run-*` sends it where there is a network: all of them, those of a run in order"


class WandbRun:
    """One run at Weights & Biases, which goes on where it was when it is sent again."""

    def __init__(self, sending: Sending) -> None:
        wandb = imported("wandb", "wandb")
        mode: dict[str, Any] = {"mode": "offline", "dir": str(sending.offline)} if sending.offline else {}
        self.run = wandb.init(
            project=sending.project, name=sending.name, id=sending.key, resume="allow", config=dict(sending.settings),
            settings=wandb.Settings(x_disable_stats=True, console="off", silent=True), **mode,
        )  # fmt: skip

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        """The numbers of a step."""
        self.run.log(dict(numbers), step=step)

    def end(self, scores: Mapping[str, float], state: str) -> None:
        """What was found in the end."""
        self.run.summary.update(dict(scores))
        self.run.finish(exit_code=1 if state in ("failed", "killed") else 0)


Tracker = WandbRun

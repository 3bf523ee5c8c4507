"""Trackio, which stores runs on this machine (TRACKIO_DIR, or `--offline FOLDER`) or in a Space."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ordsmed.tell.report.send import Sending, imported

LATER = "`TRACKIO_DIR={} trackio show` opens it"


class TrackioRun:
    def __init__(self, sending: Sending) -> None:
        if sending.offline:
            os.environ["TRACKIO_DIR"] = str(sending.offline.resolve())  # Trackio reads it on import
        self.trackio = imported("trackio", "trackio")
        self.last = sending.last
        self.trackio.init(  # identifies a run by its name; CPU and GPU statistics of this machine are not the run's
            project=sending.project,
            name=f"{sending.name}-{sending.key[:4]}",
            config=dict(sending.settings),
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        self.trackio.log(dict(numbers), step=step)
        self.last = step

    def end(self, scores: Mapping[str, float], state: str) -> None:
        """Log the final scores at the last step, because Trackio has no summary."""
        if scores:
            self.trackio.log(dict(scores), step=self.last)
        self.trackio.finish()


Tracker = TrackioRun

"""Trackio, which keeps runs on this machine (TRACKIO_DIR, or `--offline FOLDER`) or in a Space."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ordsmed.tell.report.send import Sending, imported

LATER = "`TRACKIO_DIR={} trackio show` shows it"


class TrackioRun:
    """One run in Trackio's store."""

    def __init__(self, sending: Sending) -> None:
        if sending.offline:
            os.environ["TRACKIO_DIR"] = str(sending.offline.resolve())  # which it reads as it is imported
        self.trackio = imported("trackio", "trackio")
        self.last = sending.last
        self.trackio.init(  # it knows a run by its name alone; what this machine does meanwhile is nothing of the run
            project=sending.project, name=f"{sending.name}-{sending.key[:4]}", config=dict(sending.settings),
            resume="allow", embed=False, auto_log_cpu=False, auto_log_gpu=False,
        )  # fmt: skip

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        """The numbers of a step."""
        self.trackio.log(dict(numbers), step=step)
        self.last = step

    def end(self, scores: Mapping[str, float], state: str) -> None:
        """What was found in the end: Trackio has no summary, so it stands at the last step."""
        if scores:
            self.trackio.log(dict(scores), step=self.last)
        self.trackio.finish()


Tracker = TrackioRun

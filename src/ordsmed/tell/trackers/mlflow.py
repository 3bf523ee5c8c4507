"""MLflow, at MLFLOW_TRACKING_URI; `--offline FOLDER` writes a local store that `mlflow ui` opens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ordsmed.tell.report.send import Sending, imported

AT_ONCE = 900  # numbers per request; MLflow accepts 1,000
SETTINGS = 90  # settings per request; MLflow accepts 100
LONGEST = 500  # characters of a setting
STATES = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "killed": "KILLED"}
LATER = "`mlflow ui --backend-store-uri sqlite:///{}/mlflow.db` opens it"


class MlflowRun:
    """A run in an MLflow experiment; sending it again finds it by its key."""

    def __init__(self, sending: Sending) -> None:
        self.entities = imported("mlflow.entities", "mlflow")
        tracking = imported("mlflow.tracking", "mlflow")
        store = f"sqlite:///{sending.offline.resolve()}/mlflow.db" if sending.offline else None
        self.client = tracking.MlflowClient(tracking_uri=store)
        self.waiting: list[Any] = []
        self.last = sending.last
        known = self.client.get_experiment_by_name(sending.project)
        location: dict[str, Any] = {}
        if sending.offline:
            location = {"artifact_location": (sending.offline.resolve() / "mlartifacts").as_uri()}
        experiment = known.experiment_id if known else self.client.create_experiment(sending.project, **location)
        sent_runs = self.client.search_runs([experiment], f"tags.ordsmed = '{sending.key}'")
        run = (
            sent_runs[0]
            if sent_runs
            else self.client.create_run(
                experiment, start_time=int(sending.began * 1000), run_name=sending.name, tags={"ordsmed": sending.key}
            )
        )
        self.key, self.ended = run.info.run_id, run.info.status != "RUNNING"
        settings = [self.entities.Param(_valid_name(key), value[:LONGEST]) for key, value in sending.settings.items()]
        for start in range(0, 0 if run.data.params else len(settings), SETTINGS):  # can be sent only once
            self.client.log_batch(self.key, params=settings[start : start + SETTINGS])

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        self.waiting += [
            self.entities.Metric(_valid_name(name), value, int(at * 1000), step) for name, value in numbers.items()
        ]
        self.last = step
        if len(self.waiting) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        for start in range(0, len(self.waiting), AT_ONCE):
            self.client.log_batch(self.key, metrics=self.waiting[start : start + AT_ONCE])
        self.waiting = []

    def end(self, scores: Mapping[str, float], state: str) -> None:
        self._flush()
        for name, value in scores.items():
            self.client.log_metric(self.key, _valid_name(name), value, step=self.last)
        if state in STATES:
            self.client.set_terminated(self.key, status=STATES[state])
        elif self.ended:
            self.client.update_run(self.key, status="RUNNING")


def _valid_name(name: str) -> str:
    """Return a name that MLflow accepts, such as `phase.1.learning_rate` for `phase[1].learning_rate`."""
    return re.sub(r"[^\w .:/-]", "_", re.sub(r"\[(\d+)\]", r".\1", name), flags=re.ASCII)


Tracker = MlflowRun

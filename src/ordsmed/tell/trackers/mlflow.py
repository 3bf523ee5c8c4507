"""MLflow, at MLFLOW_TRACKING_URI; `--offline FOLDER` keeps a store of it there, which `mlflow ui` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ordsmed.tell.report.send import Sending, imported

AT_ONCE = 900  # numbers a request; MLflow takes 1,000
SETTINGS = 90  # settings a request; MLflow takes 100
LONGEST = 500  # letters of a setting
STATES = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "killed": "KILLED"}
LATER = "`mlflow ui --backend-store-uri sqlite:///{}/mlflow.db` shows it"


class MlflowRun:
    """One run of an experiment of MLflow, found again by its key when it is sent again."""

    def __init__(self, sending: Sending) -> None:
        self.entities = imported("mlflow.entities", "mlflow")
        tracking = imported("mlflow.tracking", "mlflow")
        store = f"sqlite:///{sending.offline.resolve()}/mlflow.db" if sending.offline else None
        self.client = tracking.MlflowClient(tracking_uri=store)
        self.waiting: list[Any] = []
        self.last = sending.last
        known = self.client.get_experiment_by_name(sending.project)
        where: dict[str, Any] = {}
        if sending.offline:
            where = {"artifact_location": (sending.offline.resolve() / "mlartifacts").as_uri()}
        experiment = known.experiment_id if known else self.client.create_experiment(sending.project, **where)
        before = self.client.search_runs([experiment], f"tags.ordsmed = '{sending.key}'")
        run = before[0] if before else self.client.create_run(
            experiment, start_time=int(sending.began * 1000), run_name=sending.name, tags={"ordsmed": sending.key}
        )  # fmt: skip
        self.key, self.ended = run.info.run_id, run.info.status != "RUNNING"
        settings = [self.entities.Param(_named(key), value[:LONGEST]) for key, value in sending.settings.items()]
        for start in range(0, 0 if run.data.params else len(settings), SETTINGS):  # which may be told once alone
            self.client.log_batch(self.key, params=settings[start : start + SETTINGS])

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        """The numbers of a step, sent with those of others."""
        self.waiting += [
            self.entities.Metric(_named(name), value, int(at * 1000), step) for name, value in numbers.items()
        ]
        self.last = step
        if len(self.waiting) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        for start in range(0, len(self.waiting), AT_ONCE):
            self.client.log_batch(self.key, metrics=self.waiting[start : start + AT_ONCE])
        self.waiting = []

    def end(self, scores: Mapping[str, float], state: str) -> None:
        """What was found in the end; a run that goes on stays open, or is opened again."""
        self._flush()
        for name, value in scores.items():
            self.client.log_metric(self.key, _named(name), value, step=self.last)
        if state in STATES:
            self.client.set_terminated(self.key, status=STATES[state])
        elif self.ended:
            self.client.update_run(self.key, status="RUNNING")


def _named(name: str) -> str:
    """`phase[1].rate` as `phase.1.rate`: MLflow takes no other signs in a name than these."""
    return re.sub(r"[^\w .:/-]", "_", re.sub(r"\[(\d+)\]", r".\1", name), flags=re.ASCII)


Tracker = MlflowRun

"""TrainingRun: the folder, state, scores, metrics and model of a training that was called from Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.api import model
from ordsmed.api.model import OpenModel
from ordsmed.base import files
from ordsmed.base.run import Run
from ordsmed.base.say import in_words
from ordsmed.base.screen import html_table
from ordsmed.tell.show import picture
from ordsmed.train import meters
from ordsmed.weights.origin import Origin


@dataclass(frozen=True)
class TrainingRun:
    """A run, or trials. Its properties are read from its folder at each access."""

    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)

    def _repr_html_(self) -> str:
        """Return its learning curve and scores for a notebook, with a table of its trials."""
        scores = [(name, in_words(value)) for name, value in self.scores.items() if not isinstance(value, dict)]
        rows = [("folder", self.folder), ("state", self.state), *scores]
        return f"{self._loss_picture()}{html_table(rows)}{self._trials_table()}"

    def _loss_picture(self) -> str:
        lines = self.metrics
        training = [line for line in lines if "validation" not in line]
        validations = [line for line in lines if "validation" in line]
        return picture.svg(training, validations, self.folder.name) if len(training) > 1 else ""

    def _trials_table(self) -> str:
        rows = [(trial.folder.name, trial.state, in_words(trial.scores)) for trial in self.trials]
        return html_table(rows, ("trial", "state", "scores")) if rows else ""

    @property
    def state(self) -> str:
        """Return done, running, stopped or failed."""
        return str(Run(self.folder).status.get("state", ""))

    @property
    def scores(self) -> dict[str, Any]:
        """Return its final scores and those of guessing. They are empty until it is done."""
        path = self.folder / "scores.json"
        return files.read_table(path) if path.exists() else {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Return a table for each step (loss, rate, seconds...) and validation; for trials an empty list."""
        path = self.folder / "metrics.jsonl"
        return meters.read(path) if path.exists() else []

    @property
    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that `open` can open."""
        return Origin.of(self.folder).steps()

    @property
    def trials(self) -> list[TrainingRun]:
        """Return the runs of trials, sorted by name; for a single run an empty list."""
        return [TrainingRun(path) for path in sorted((self.folder / "trials").glob("*/"))]

    def open(
        self, *, step: int | None = None, device: str = "auto", precision: str = "fp32", threads: int | None = None
    ) -> OpenModel:
        """Open its model: that of the end, of the best trial, or of a step with a checkpoint."""
        return model.open(self.folder, step=step, device=device, precision=precision, threads=threads)

"""TrainingRun: what a training called from Python leaves: its folder, how it stands, what was measured, its model."""

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
    """A run, or trials; what is told of it is read from its folder when it is asked for."""

    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)

    def _repr_html_(self) -> str:
        """The course of its loss, for a notebook, and what it found in the end; of trials a row each."""
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
        """done, running, stopped or failed."""
        return str(Run(self.folder).status.get("state", ""))

    @property
    def scores(self) -> dict[str, Any]:
        """What it found in the end, beside guessing; empty while it is not done."""
        path = self.folder / "scores.json"
        return files.read_table(path) if path.exists() else {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A table a step (its loss, rate, seconds...) and one a validation; of trials none, each has its own."""
        path = self.folder / "metrics.jsonl"
        return meters.read(path) if path.exists() else []

    @property
    def steps(self) -> list[int]:
        """Those that `open` can be asked for."""
        return Origin.of(self.folder).steps()

    @property
    def trials(self) -> list[TrainingRun]:
        """The runs of trials, by name; of one run none."""
        return [TrainingRun(path) for path in sorted((self.folder / "trials").glob("*/"))]

    def open(
        self, *, step: int | None = None, device: str = "auto", precision: str = "fp32", threads: int | None = None
    ) -> OpenModel:
        """Its model: of the end, of the best trial, or of a step that was kept."""
        return model.open(self.folder, step=step, device=device, precision=precision, threads=threads)

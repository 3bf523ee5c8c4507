"""TrainingRun: what a training called from Python leaves: its folder, how it stands, what was measured, its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.api import model
from ordsmed.api.model import OpenModel
from ordsmed.base import files
from ordsmed.base.run import Run
from ordsmed.train import meters
from ordsmed.weights.origin import Origin


@dataclass(frozen=True)
class TrainingRun:
    """A run, or trials; what is told of it is read from its folder when it is asked for."""

    folder: Path

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

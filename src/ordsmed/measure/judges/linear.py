"""The linear classifier trained by `ordsmed corpus judge`.

Its score is the probability of a label, or the expected value if the labels are numbers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.menu import Choice
from ordsmed.corpus import linear


@dataclass(frozen=True)
class LinearJudge(Choice):
    """Linear classifier over hashed words and word pairs; over 50 MB/s per core."""

    run: str
    "folder written by `corpus judge`"

    rises = True

    @staticmethod
    def recognises(path: str) -> bool:
        return kind_of_folder(path) is FolderKind.JUDGE

    def stamp(self) -> str:
        return linear.stamp(Path(self.run))

    def labels(self) -> tuple[str, ...]:
        return self._model.labels

    def span(self, label: str) -> tuple[float, float] | None:
        return (0.0, 1.0) if label else linear.label_range(self.labels())

    def score(self, text: str, label: str) -> float:
        model = self._model
        probabilities = model.probabilities(text)
        if label:
            return probabilities[model.labels.index(label)]
        return sum(probability * float(name) for probability, name in zip(probabilities, model.labels, strict=True))

    @functools.cached_property
    def _model(self) -> linear.Linear:
        return linear.Linear.load(Path(self.run))

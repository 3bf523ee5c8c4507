"""The linear classifier of `ordsmed corpus judge`: its probability of a label, or the number it expects."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.menu import Choice
from ordsmed.corpus import linear


@dataclass(frozen=True)
class LinearJudge(Choice):
    """Hashed words and pairs of words: 50 MB/s of a core and more."""

    run: str
    "a folder of `corpus judge`"

    rises = True

    @staticmethod
    def recognises(path: str) -> bool:
        return kind_of_folder(path) is FolderKind.JUDGE

    def stamp(self) -> str:
        return linear.stamp(Path(self.run))

    def labels(self) -> tuple[str, ...]:
        return self._model.labels

    def span(self, label: str) -> tuple[float, float] | None:
        return (0.0, 1.0) if label else linear.ends(self.labels())

    def score(self, text: str, label: str) -> float:
        model = self._model
        shares = model.probabilities(text)
        if label:
            return shares[model.labels.index(label)]
        return sum(share * float(name) for share, name in zip(shares, model.labels, strict=True))

    @functools.cached_property
    def _model(self) -> linear.Linear:
        return linear.Linear.load(Path(self.run))

"""A trained model as a scorer of documents.

A classifier or regressor made by `finetune` scores with its prediction, a language model with bits per byte.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice, kind_of
from ordsmed.learn.task import Task
from ordsmed.measure.likelihood import running, ways
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.windows import Cutting, with_scores
from ordsmed.text import read
from ordsmed.use.predict import classified
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import Trained, open_model

LOOKED_AT = 200  # characters that are tokenized to check whether a text has enough tokens
UNTOLD = 8.0  # bits per byte reported for a text too short to be scored


@dataclass(frozen=True)
class ModelJudge(Choice):
    """Trained model that scores one text at a time on one thread, so that results are reproducible.

    A classifier reads the first `task.length` tokens; a language model reads the whole text in consecutive windows.
    """

    run: str
    "run, imported model, Hugging Face folder, or the name of one"

    @staticmethod
    def recognises(path: str) -> bool:
        return Origin.find(path) is not None

    @property
    def rises(self) -> bool:
        return isinstance(self._opened.objective, Task)

    def stamp(self) -> object:
        origin = Origin.of(self.run).owner
        if origin.is_run:
            return [origin.status.get("fingerprint"), origin.source(None).step]
        return read.stamp(sorted(path for path in Path(origin.folder).iterdir() if path.is_file()))

    def labels(self) -> tuple[str, ...]:
        if not self.rises:
            _ = self._scorer  # raises an error if the model cannot score texts
            return ()
        learned = self._opened.learned
        if getattr(learned, "pairs", True) or not (learned.labels or learned.number):
            problem = f"was fine-tuned for {kind_of(learned)}, not for classes or a number per text"
            raise RecipeError(
                self.run, problem, "a classifier of single texts", "`ordsmed finetune classify` makes one"
            )
        return tuple(learned.labels)

    def span(self, label: str) -> tuple[float, float] | None:
        if not self.rises:
            return None
        return (0.0, 1.0) if label else self._opened.learned.ends

    def score(self, text: str, label: str) -> float:
        with _one_thread():
            if not self.rises:
                return _bits(*self._scorer, text)
            (answer,) = classified(self._opened, [text])
        return answer.probabilities[label] if label else float(answer.number or 0.0)

    @functools.cached_property
    def _opened(self) -> Trained:
        trained = open_model(self.run)
        trained.check_heads()
        trained.objective.eval()
        return trained

    @functools.cached_property
    def _scorer(self) -> tuple[Scorer, Cutting]:
        scorer = ways.scorer(self._opened, prefers=("causal",))
        return scorer, Cutting.of(scorer, 0, 0, self.run)


def _bits(scorer: Scorer, cutting: Cutting, text: str) -> float:
    start_count = 0 if scorer.start_tokens is None else len(scorer.start_tokens)
    if start_count + len(scorer.cut([text[:LOOKED_AT]])[0]) < (1 if cutting.by_line else 2):
        return UNTOLD
    records = []
    for example in running.of_text(scorer, cutting, "judge", [text]):
        scores = scorer.scores(list(example.items))
        records.append(with_scores(example.about, scores))
    return float(running.finding(records).facts["bits_per_byte"])


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)

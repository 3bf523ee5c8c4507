"""Filter documents by the score of a trained classifier or language model, which is stored as meta["score"].

    run = "work/judge", label = "prose", least = 0.5:   0.93  ->  kept, meta["score"] = 0.93
                                                        0.08  ->  dropped: low score

`run` is the result of `ordsmed corpus judge` or `ordsmed finetune classify` (the score is the probability of `label`,
or the predicted number), or a language model (the score is bits per byte, lower is better). `best` keeps a share, with
a threshold set on a sample of the corpus. `weight = "score"` keeps documents at random with their score as probability.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from ordsmed.base import menu
from ordsmed.base.checks import at_least
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.keys import text_number
from ordsmed.base.menu import Choice
from ordsmed.text.document import Document
from ordsmed.text.read import tally

DIGITS = 4  # decimals of a score


class DocumentScorer(Protocol):
    """The interface of every choice in the menu `judges`: a trained model that scores documents."""

    @property
    def rises(self) -> bool:
        """Return whether a higher score is better."""

    def labels(self) -> tuple[str, ...]:
        """Return the known classes; none if it predicts a number."""

    def span(self, label: str) -> tuple[float, float] | None:
        """Return the lowest and the highest possible score, or None if they are unknown."""

    def stamp(self) -> object:
        """Return a value that changes with the model at the same path."""

    def score(self, text: str, label: str) -> float:
        """Return the probability of a class, or the number."""


@dataclass(frozen=True)
class Judge(Choice):
    """Keeps documents with a good score; sets meta["score"] of all."""

    run: str
    "a folder of `corpus judge` or `finetune`, a language model, or the name of one"
    label: str = ""
    "the class whose probability is the score; not needed if the model predicts numbers"
    least: float | None = None
    "a document with a lower score is dropped"
    most: float | None = None
    "a document with a higher score is dropped"
    best: float = 1.0
    "share of the documents to keep, the best ones; the threshold is set on a sample of the corpus"
    sample: int = 5000
    "number of documents in that sample"
    weight: Literal["none", "score"] = "none"
    "score: keep a document with a probability that rises linearly from the lowest score (0) to the highest (1)"
    into: str = "score"
    "key of the score in a document's meta"
    seed: int = 0
    "seed of the random choice"

    def __post_init__(self) -> None:
        at_least(self, sample=1)
        if not 0 < self.best <= 1:
            raise ValueError(f"best: found {self.best}; wanted a share above 0, to 1")
        if self.best * self.sample < 1:
            raise ValueError(
                f"best: found {self.best}, which keeps nothing of a sample of {self.sample:,}; raise `sample`"
            )
        if self.best < 1 and (self.least is not None or self.most is not None):
            raise ValueError("best: found together with least or most; wanted a share, or thresholds")
        if None not in (self.least, self.most) and self.least > self.most:  # type: ignore[operator]
            raise ValueError(f"least: found {self.least}, above most = {self.most}, so that nothing is kept")

    def check_inputs(self) -> None:
        """Raise RecipeError for a wrong path or label, and for thresholds that keep nothing."""
        _opened.cache_clear()  # the model at this path may have changed since
        labels, span = self._model.labels(), self._model.span(self.label)
        if self.label and self.label not in labels:
            wanted = f"one of {', '.join(labels)}" if labels else "none: it predicts a number"
            raise RecipeError(
                "judge.label", f"found `{self.label}`", wanted, nearest(self.label, labels) if labels else ""
            )
        if not self.label and labels and span is None:
            raise RecipeError("judge.label", f"missing; {self.run} knows classes", f"one of {', '.join(labels)}")
        if span and self.least is not None and self.least > span[1]:
            raise RecipeError("judge.least", f"found {self.least}, so that nothing is kept", f"at most {span[1]:g}")
        if span and self.most is not None and self.most < span[0]:
            raise RecipeError("judge.most", f"found {self.most}, so that nothing is kept", f"at least {span[0]:g}")
        if self.weight == "score" and not span:
            wanted = "scores with a lowest and a highest value: a classifier"
            raise RecipeError("judge.weight", f"found {self.weight} with {self.run}, a language model", wanted)

    def stamp(self) -> object:
        return self._model.stamp()

    def sampled(self) -> int:
        return self.sample if self.best < 1 else 0

    def fitted(self, documents: Sequence[Document]) -> Judge:
        rises = self._model.rises
        scores = sorted((self._score(document.text) for document in documents), reverse=rises)
        if not scores:
            return self
        last = scores[max(round(self.best * len(scores)), 1) - 1]
        return replace(self, best=1.0, least=last) if rises else replace(self, best=1.0, most=last)

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        score = meta[self.into] = self._score(text)
        reason = self._reason(text, score)
        if reason:
            tally().left_out[f"judge: {reason}"] += 1
            return None
        return text

    def _reason(self, text: str, score: float) -> str:
        if self.least is not None and score < self.least:
            return "low score"
        if self.most is not None and score > self.most:
            return "high score"
        if self.weight == "score":
            low, high = self._model.span(self.label) or (0.0, 1.0)
            if text_number(f"{self.seed} {text}") >= (score - low) / (high - low) * 2**64:
                return "not drawn"
        return ""

    def _score(self, text: str) -> float:
        return round(float(self._model.score(text, self.label)), DIGITS)

    @property
    def _model(self) -> DocumentScorer:
        return _opened(self.run)


@functools.cache
def _opened(run: str) -> DocumentScorer:
    """Open the model at a path with the first kind of the menu that recognizes it."""
    for kind in menu.entries("judges"):
        choice = menu.load("judges", kind)
        if choice.recognises(run):
            scorer: DocumentScorer = choice(run)
            return scorer
    wanted = "a folder of `ordsmed corpus judge` or `ordsmed finetune`, or a language model"
    raise RecipeError("judge.run", f"found {run}, which is none of these", wanted)

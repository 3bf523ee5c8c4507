"""Documents are kept by a score that a trained judge gives them, which stays with them as meta["score"].

    run = "work/judge", label = "prose", least = 0.5:   0.93  ->  kept, meta["score"] = 0.93
                                                        0.08  ->  dropped: low score

`run` is what `ordsmed corpus judge` or `ordsmed finetune classify` made (the score is the probability of `label`, or
the number that it tells), or a language model (the score is the bits of a byte, of which fewer are better). `best`
keeps a share, with a threshold found on a sample of the corpus itself; `weight = "score"` draws documents by theirs.
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

DIGITS = 4  # of a score behind the point


class DocumentScorer(Protocol):
    """What the menu `judges` offers."""

    @property
    def rises(self) -> bool:
        """Is a higher score better?"""

    def labels(self) -> tuple[str, ...]:
        """The classes it knows; none of one that tells a number."""

    def span(self, label: str) -> tuple[float, float] | None:
        """The lowest and the highest score there can be, where that is known."""

    def stamp(self) -> object:
        """What tells it from another at the same place."""

    def score(self, text: str, label: str) -> float:
        """The probability of a class, or the number."""


@dataclass(frozen=True)
class Judge(Choice):
    """Only documents whose score is good enough; meta["score"] for all."""

    run: str
    "a folder of `corpus judge` or `finetune`, a language model, or a name that leads to one"
    label: str = ""
    "the class whose probability is the score; of a judge that tells numbers it may be left out"
    least: float | None = None
    "a document with a lower score is dropped"
    most: float | None = None
    "a document with a higher score is dropped"
    best: float = 1.0
    "share of the documents that is kept, the best of them; the threshold is found on a sample of the corpus"
    sample: int = 5000
    "documents of that sample"
    weight: Literal["none", "score"] = "none"
    "score: a document is kept with a chance that rises with its score, from the lowest (0) to the highest (1)"
    into: str = "score"
    "name of the score in a document's meta"
    seed: int = 0
    "of these chances"

    def __post_init__(self) -> None:
        at_least(self, sample=1)
        if not 0 < self.best <= 1:
            raise ValueError(f"best: found {self.best}; wanted a share above 0, to 1")
        if self.best * self.sample < 1:
            raise ValueError(
                f"best: found {self.best}, which keeps nothing of a sample of {self.sample:,}; raise `sample`"
            )
        if self.best < 1 and (self.least is not None or self.most is not None):
            raise ValueError("best: found beside least or most; wanted a share, or thresholds")
        if None not in (self.least, self.most) and self.least > self.most:  # type: ignore[operator]
            raise ValueError(f"least: found {self.least}, above most = {self.most}, so that nothing is kept")

    def check_inputs(self) -> None:
        """Refuse what is no judge, another label than it has, and thresholds that keep nothing."""
        _opened.cache_clear()  # what stands there may be another than when this process last asked
        labels, span = self._model.labels(), self._model.span(self.label)
        if self.label and self.label not in labels:
            wanted = f"one of {', '.join(labels)}" if labels else "none: it tells a number"
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
            wanted = "a judge whose scores have two ends: a classifier"
            raise RecipeError("judge.weight", f"found {self.weight} beside {self.run}, a language model", wanted)

    def stamp(self) -> object:
        return self._model.stamp()

    def sampled(self) -> int:
        """How many documents it wants to see before it begins."""
        return self.sample if self.best < 1 else 0

    def fitted(self, documents: Sequence[Document]) -> Judge:
        """With the threshold that keeps the best share of these."""
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
        """Why a document is dropped; empty where it is not."""
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
    """What can be asked of what stands there, whatever kind it is."""
    for kind in menu.entries("judges"):
        choice = menu.load("judges", kind)
        if choice.recognises(run):
            scorer: DocumentScorer = choice(run)
            return scorer
    wanted = "a folder of `ordsmed corpus judge` or `ordsmed finetune`, or a language model"
    raise RecipeError("judge.run", f"found {run}, where there is none", wanted)

"""Rerank: a question and a passage scored, by a model that learned numbers, or two classes, of pairs, or by MaxSim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import value_key
from ordsmed.learn.task import LateInteraction, Task
from ordsmed.nn.model import own_tensors
from ordsmed.use.index.choice import Rescoring
from ordsmed.use.predict import Classified, classified
from ordsmed.weights import weights
from ordsmed.weights.trained import Trained, opened

AT_ONCE = 256  # pairs
REMEDY = "`ordsmed index INDEX --rerank RUN` measures another, `search --no-rerank` does without"
SIGNS = 4  # around two texts, at most


@dataclass(frozen=True)
class Reranker:
    """What scores pairs of texts, how many passages of a question it orders, and how much its scores weigh."""

    scores: Rescoring
    top: int
    weight: float = 1.0

    @staticmethod
    def opened(folder: Path, facts: dict[str, Any], opening: dict[str, Any]) -> Reranker:
        """The one that an index describes; refused once its model is another."""
        with run.at_home(folder):
            trained = opened(facts["model"], **{**opening, "step": None})
        if reranker_key(trained) != facts["key"]:
            problem = f"its reranker {facts['model']} has changed since it was measured"
            raise RecipeError(folder, problem, "the model as it was", REMEDY)
        return Reranker(partial(pair_scores, trained), facts["top"], facts["weight"])


def reranker_key(trained: Trained) -> str:
    """16 hexadecimal digits: equal where a model gives the same scores."""
    return value_key([trained.kind, weights.digest(own_tensors(trained.objective)), trained.tokenizer.fingerprint], 16)


def check_reranker(trained: Trained) -> None:
    """Refuse a model that does not give pairs one score."""
    labels = trained.objective.labels if isinstance(trained.objective, Task) else ("",)
    if not getattr(trained.learned, "pairs", False) or trained.bare or len(labels) not in (0, 2):
        wanted = "a model that learned numbers, or two classes, of pairs"
        raise RecipeError(trained.folder, "does not score pairs of texts", wanted)


def pair_scores(trained: Trained, questions: Sequence[str], texts: Sequence[str]) -> list[float]:
    """The number that a pair is given, or the probability of its second class of two."""
    check_reranker(trained)
    scores: list[float] = []
    for at in range(0, len(texts), AT_ONCE):
        some = questions[at : at + AT_ONCE]
        results = classified(trained, some, _fitting(trained, some, texts[at : at + AT_ONCE]))
        scores += [pair_score(result) for result in results]
    return scores


def _fitting(trained: Trained, questions: Sequence[str], texts: Sequence[str]) -> list[str]:
    """As much of each text as is read beside its question, or by itself: of passages that is their front."""
    if isinstance(trained.objective, LateInteraction):
        return [*texts]
    sizes = [len(ids) for ids in trained.tokenizer.encode_batch(questions)]
    encodings = trained.tokenizer.plain.encode_batch(list(texts), add_special_tokens=False)
    rooms = [max(trained.learned.length - size - SIGNS, 1) for size in sizes]
    return [
        text[: encoding.offsets[room - 1][1]] if len(encoding) > room else text
        for text, encoding, room in zip(texts, encodings, rooms, strict=True)
    ]


def pair_score(result: Classified) -> float:
    return result.number if result.number is not None else list(result.probabilities.values())[1]

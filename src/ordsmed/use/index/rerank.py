"""Rerank: a question and a passage scored, by a model that learned numbers, or two classes, of pairs, or by MaxSim."""

from __future__ import annotations

from collections.abc import Sequence

from ordsmed.base.errors import RecipeError
from ordsmed.learn.task import LateInteraction, Task
from ordsmed.use.predict import Classified, classified
from ordsmed.weights.trained import Trained

AT_ONCE = 256  # pairs
SIGNS = 4  # around two texts, at most


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

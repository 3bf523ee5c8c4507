"""Reranking: score pairs of question and passage with a cross-encoder or by MaxSim.

A cross-encoder is a model that was fine-tuned on pairs, for a number or for two classes.
"""

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
from ordsmed.weights.trained_model import Trained, opened

AT_ONCE = 256  # pairs per batch
REMEDY = "measure the new model: `ordsmed index INDEX --rerank RUN`; or search with --no-rerank"
SIGNS = 4  # special tokens of a pair, at most


@dataclass(frozen=True)
class Reranker:
    scores: Rescoring
    top: int  # passages of a question that it orders
    weight: float = 1.0  # of its scores; the scores of the search get 1 - weight

    @staticmethod
    def opened(folder: Path, facts: dict[str, Any], opening: dict[str, Any]) -> Reranker:
        """Open the reranker that an index describes, or raise an error if its model has changed."""
        with run.in_start_folder(folder):
            trained = opened(facts["model"], **{**opening, "step": None})
        if reranker_key(trained) != facts["key"]:
            problem = f"its reranker {facts['model']} has changed since it was measured"
            raise RecipeError(folder, problem, "the model as it was", REMEDY)
        return Reranker(partial(pair_scores, trained), facts["top"], facts["weight"])


def reranker_key(trained: Trained) -> str:
    """Return 16 hexadecimal digits that are equal for models that give the same scores."""
    return value_key([trained.kind, weights.digest(own_tensors(trained.objective)), trained.tokenizer.fingerprint], 16)


def check_reranker(trained: Trained) -> None:
    """Raise an error unless the model gives a pair of texts one score."""
    labels = trained.objective.labels if isinstance(trained.objective, Task) else ("",)
    if not getattr(trained.learned, "pairs", False) or trained.bare or len(labels) not in (0, 2):
        wanted = "a model fine-tuned on pairs, for a number or two classes"
        raise RecipeError(trained.folder, "does not score pairs of texts", wanted)


def pair_scores(trained: Trained, questions: Sequence[str], texts: Sequence[str]) -> list[float]:
    """Return the score of each pair: the predicted number, or the probability of the second of two classes."""
    check_reranker(trained)
    scores: list[float] = []
    for begin in range(0, len(texts), AT_ONCE):
        block = questions[begin : begin + AT_ONCE]
        results = classified(trained, block, _fitting(trained, block, texts[begin : begin + AT_ONCE]))
        scores += [pair_score(result) for result in results]
    return scores


def _fitting(trained: Trained, questions: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the beginning of each text that fits next to its question, as a cross-encoder cuts passages.

    For late interaction, texts are read alone and returned as they are.
    """
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

"""Classify: predict a class or a number for a text or a pair of texts.

    [CLS] Rain falls . [SEP] It is wet . [SEP]  ->  states [L, D]  ->  pool [D]  ->  head  ->  entailment 0.93, ...

The network learns numbers on a scale from 0 to 1; predictions are on the original scale. learn/classification/ reads
files, encodes texts, and scores and writes predictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.learn.classification import inputs, outputs
from ordsmed.learn.classification.inputs import UNKNOWN, numbers
from ordsmed.learn.classification.outputs import LOSSES, OF_NUMBERS, LabelPredictions, check_f1
from ordsmed.learn.classification.records import LabeledFiles, Records, check_written_labels, sorted_labels
from ordsmed.learn.classification.records import Part as Part  # subclasses of Classify import it from here
from ordsmed.learn.classification.word_counts import counted_classes
from ordsmed.learn.head_transfer import UNIT, rescalable
from ordsmed.learn.pool import Pool, pooled
from ordsmed.learn.score import labels as scores
from ordsmed.learn.task import Arrays, ClassWeights, Files, LabelWeights, Task, check_labels, label_weights
from ordsmed.learn.usage import Usage, in_python, is_short, pipeline
from ordsmed.nn.model import ModelSettings
from ordsmed.text.labelled import glue
from ordsmed.text.tokenizer import Tokenizer

SPECIAL = 2  # tokens around a text
FIRST, SECOND = "Rain falls.", "It is wet."  # example texts of the model card


@dataclass(frozen=True, kw_only=True)
class Classify(LabeledFiles, Choice):
    """A class, or a number, of one text or two."""

    metrics: tuple[str, ...] = ()
    """accuracy, f1, macro_f1, matthews; for numbers pearson, spearman, squared_error; the first compares checkpoints"""
    length: int = 128
    """maximum tokens of an example; longer ones are truncated; elsewhere max_seq_length"""
    class_weights: ClassWeights = None
    """weight of each label in the loss, by default 1; balanced: the same total weight for each class"""
    pool: Pool | None = None
    """state that the head reads; left out: mean for a new head on a ModernBERT, last for causal networks, max for
    recurrent ones, else first; a head that is trained further keeps its pooling"""

    METHOD: ClassVar[str] = "classify"
    VERBS: ClassVar[tuple[str, ...]] = ("classify",)
    EXAMPLE: ClassVar[tuple[str, ...]] = ("It is here.", "It is not here.")
    role: ClassVar[str] = "classify"
    MADE_UP: ClassVar[str] = "texts.tsv"
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, "metrics", "class_weights", "pool")
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("language",)
    LATER: ClassVar[tuple[str, ...]] = (
        "train",
        "dev",
        "name",
        "language",
        "text",
        "second",
        "label",
        "split",
        "format",
        "header",
        "errors",
        "metrics",
        "length",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        usual = ("pearson", "spearman") if self.number else ("accuracy", "macro_f1")
        official = self.benchmark.metrics if self.benchmark else ()
        object.__setattr__(self, "metrics", self.metrics or official or usual)
        for metric in self.metrics:
            if metric not in scores.METRICS or (metric in OF_NUMBERS) != self.number:
                fit = [name for name in scores.METRICS if (name in OF_NUMBERS) == self.number]
                raise ValueError(f"metrics: found {metric}; wanted some of {', '.join(fit)}")
        if self.metrics[0] in LOSSES:
            raise ValueError(f"metrics: found {self.metrics[0]} first; wanted a score of which higher is better")
        check_labels(self.labels, self.class_weights)
        if self.number and (self.labels or self.class_weights):
            raise ValueError("number: found with labels or class_weights; wanted either classes or a number")

    @classmethod
    def named(cls, name: str) -> dict[str, Any] | None:
        return {"name": name} if name.lower() in glue.KNOWN else None

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        if role != cls.role:
            return None
        return {"number": True, "scale": [*UNIT]} if number else {"labels": list(labels)} if labels else {}

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        rows = (f"{words(max(1, size - SPECIAL))}\t{number % 2}\n" for number, size in enumerate(sizes.tolist()))
        return "text\tlabel\n" + "".join(rows)

    @property
    def record(self) -> str:
        return self.metrics[0]

    def complete(self, records: Records) -> Classify:
        seen, location = Counter(records.gold), records.parts[0].path
        if len(seen) < 2:
            raise DataError(location, f"`{records.gold[0]}` in every row", "two labels or numbers, or more")
        if self.number:
            numbers = [float(gold) for gold in seen]
            return replace(self, scale=self.scale or (min(numbers), max(numbers)))
        if not self.labels:
            check_written_labels(seen, location)
        labels = self.labels or sorted_labels(seen)
        check_f1(self.metrics, labels)
        if absent := [label for label in labels if label not in seen]:
            say(f"{location}: no training example has the label {', '.join(absent)}")
        return replace(self, labels=labels, class_weights=label_weights(self.class_weights, labels, seen))

    def features(self, records: Records, reader: TextReader) -> Features:
        return inputs.features(self, self.length, records, reader)

    def fill_pool(self, usual: Pool | None, head: object) -> Classify:
        if self.pool or self.top.recurrent:
            return self
        return replace(self, pool=usual if head is None else getattr(head, "pool", None))

    def card_examples(self, records: Records) -> dict[str, str]:
        """Return a short example of the records, as replacements for the texts of `usage`."""
        number = next((n for n, text in enumerate(records.texts) if is_short(text)), None)
        if number is None:
            return {}
        seconds = {SECOND: records.seconds[number]} if records.seconds else {}
        return {FIRST: records.texts[number], **seconds}

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Classifier:
        return Classifier(self, model, tokenizer.vocabulary)

    def predictions(self, records: Records, features: Features, answers: Arrays) -> LabelPredictions:
        if self.number:
            low, high = self.ends
            return LabelPredictions((low + answers["number"].astype(np.float64) * (high - low)).tolist())
        shares = answers["probabilities"]
        return LabelPredictions([self.labels[number] for number in shares.argmax(1)], shares)

    def score(self, records: Records, predictions: LabelPredictions) -> dict[str, float]:
        return outputs.score(self, self.metrics, records, predictions)

    def fitted(self, records: Records, features: Features, answers: Arrays) -> Classify:
        return self

    def guesses(self, train: Records, records: Records) -> LabelPredictions:
        if self.number:
            return LabelPredictions(scores.mean_guess(numbers(train.gold), records.texts).tolist())
        codes = [self.labels.index(gold) for gold in train.gold]
        return LabelPredictions([self.labels[number] for number in scores.majority(codes, records.texts)])

    def counted(self, train: Features, features: Features) -> LabelPredictions | None:
        classes = None if self.number else counted_classes(train, features, len(self.labels))
        return None if classes is None else LabelPredictions([self.labels[number] for number in classes])

    def write(self, folder: Path, records: Records, predictions: LabelPredictions) -> list[Path]:
        return outputs.write(self, folder, records, predictions)

    def read(self, path: Path, records: Records) -> LabelPredictions:
        return outputs.read(self, path, records)

    def details(self, records: Records, predictions: LabelPredictions) -> list[tuple[str, list[str], list[list[Any]]]]:
        return outputs.details(self, records, predictions)


class Classifier(Task):
    def __init__(self, settings: Classify, model: ModelSettings, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        assert settings.labels or settings.number, "call complete() first: the training data determine the labels"
        self.labels, self.number, self.weights = settings.labels, settings.number, {"classify": 1.0}
        weights = settings.class_weights
        self.label_weights = LabelWeights(weights, self.labels) if isinstance(weights, dict) else None
        recurrent = model.capabilities.state or (self.top is not None and self.top.recurrent is not None)
        usual: Pool = "max" if recurrent else "last" if model.capabilities.causal else "first"
        self.pool = settings.pool or usual
        self.add_head("classify", 1 if self.number else len(self.labels))

    def count(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch.labels
        if labels is None:
            return {"classify": torch.zeros((), dtype=torch.float64)}
        if self.number:
            return {"classify": (~labels.isnan()).sum(dtype=torch.float64)}
        known, weights = labels != UNKNOWN, self._label_weights(labels.device)
        counted = known if weights is None else weights[labels.clamp(min=0)] * known
        return {"classify": counted.sum(dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        state = pooled(self.states(batch), batch, self.pool)
        logits = self.get_submodule("classify")(state).float()
        return {"scores": logits.squeeze(1) if self.number else logits}  # [E] or [E, labels]

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        logits, labels = scores["scores"], batch.labels
        assert labels is not None
        if self.number:
            right = torch.where(labels.isnan(), logits.detach(), labels)
            return {"classify": F.mse_loss(logits, right, reduction="sum")}
        weights = self._label_weights(labels.device)
        return {"classify": F.cross_entropy(logits, labels, weights, ignore_index=UNKNOWN, reduction="sum")}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        logits = scores["scores"]
        return {"number": logits} if self.number else {"probabilities": logits.softmax(-1)}

    def usage(self, name: str, tokenizer: Tokenizer, learned: Classify) -> Usage:
        example, texts = f'"{FIRST}"', "a text"
        if learned.pairs:
            example, texts = f'{{"text": "{FIRST}", "text_pair": "{SECOND}"}}', "two texts"
        call = f"ask({example}, truncation=True, max_length={learned.length})"
        does, note = f"predicts the class of {texts}: " + ", ".join(f"`{label}`" for label in self.labels), ""
        if self.number:
            low, high = learned.ends
            does = f"predicts a number for {texts}, from {low:g} to {high:g}"
            if (low, high) != UNIT and rescalable(self, learned) is None:
                call = f'{low:g} + {high - low:g} * {call}[0]["score"]'
                note = "  # the class of transformers cannot store the scale"
        kind = "text-classification"
        return Usage(kind, does, in_python(name, f"{pipeline(kind, name)}print({call}){note}"))

    def _label_weights(self, device: torch.device) -> Tensor | None:
        return None if self.label_weights is None else self.label_weights.on(device)

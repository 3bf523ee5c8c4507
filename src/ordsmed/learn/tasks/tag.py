"""Tag: a label for each word of a sentence, such as named entities and parts of speech.

    Newts   B-ANIMAL        [CLS] new ##ts swim [SEP]        new  -> Newts   B-ANIMAL
    swim    O          ->          ^        ^           ->   swim -> swim    O

Tags such as B-PER, I-PER and O mark spans, and spans are scored; otherwise the tags of words are scored. learn/tagging/
encodes sentences, and scores and writes predictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base.checks import or_more
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features
from ordsmed.data.pieces import TextReader
from ordsmed.learn.score import spans
from ordsmed.learn.tagging import inputs, outputs
from ordsmed.learn.tagging.outputs import TagPredictions
from ordsmed.learn.tagging.tags import OTHER_COLUMN, check_spans, first_of, in_scheme, is_span, scheme_of
from ordsmed.learn.task import Arrays, ClassWeights, Files, LabelWeights, Task, by_example, check_labels, label_weights
from ordsmed.learn.usage import Usage, in_python, is_short, pipeline
from ordsmed.nn.model import ModelSettings
from ordsmed.text import read
from ordsmed.text.labelled import conll
from ordsmed.text.labelled.conll import TaggedSentences
from ordsmed.text.tokenizer import Tokenizer

SENTENCE = "Rain falls in Bergen ."  # example of the model card


@dataclass(frozen=True, kw_only=True)
class Tag(Files, Choice):
    """A tag for each word."""

    column: str | int = -1
    """column of the tags: upos, xpos, feats, feats:KEY, misc:KEY (misc:name in NorNE), or its number, -1 for the
    last"""
    word: int = 1
    """number of the column of words, in files that are not CoNLL-U"""
    errors: read.Errors = "strict"
    """bytes that are not UTF-8: strict: an error; otherwise replaced and counted"""
    labels: tuple[str, ...] = ()
    """the tags that are learned, in this order; left out: those of the training data, sorted"""
    scheme: spans.Scheme | None = None
    """tagging scheme for learning: IOB1, IOB2, IOBES or BILOU; left out: that of the files"""
    file_scheme: spans.Scheme | None = None
    """tagging scheme of predictions; left out: that of the training data"""
    repair_tags: bool = True
    """rewrite predicted tags as well-formed spans; this does not change which spans are right"""
    length: int = 256
    """maximum tokens of a row, with special tokens; longer sentences are split into windows; elsewhere
    max_seq_length"""
    stride: int | None = None
    """tokens from the start of a window to the next; left out: half of a window"""
    class_weights: ClassWeights = None
    """weight of each label in the loss, by default 1; balanced: the same total weight for each label"""

    METHOD: ClassVar[str] = "tag"
    VERBS: ClassVar[tuple[str, ...]] = ("tag",)
    EXAMPLE: ClassVar[tuple[str, ...]] = ("It is here .",)
    NARROW_SHARE: ClassVar[float] = 2.0
    role: ClassVar[str] = "tag"
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, "file_scheme", "repair_tags", "class_weights")
    LATER: ClassVar[tuple[str, ...]] = (
        "train",
        "dev",
        "column",
        "word",
        "errors",
        "file_scheme",
        "repair_tags",
        "length",
        "stride",
    )

    def __post_init__(self) -> None:
        conll.Column.of(self.column)
        if self.word == 0:
            raise ValueError("word: found 0; wanted a column's number: 1 is the first, -1 the last")
        check_labels(self.labels, self.class_weights)
        if self.labels and self.scheme and not self.of_spans:
            raise ValueError(f"scheme: found {self.scheme} with labels that are not spans; wanted labels such as B-PER")
        or_more(self, length=1, stride=1)

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        if role != cls.role:
            return None
        known: dict[str, Any] = {"column": -1} | ({"labels": list(labels)} if labels else {})  # the last one
        return known | ({"file_scheme": spans.scheme([labels])} if spans.is_spans(labels) else {})

    @property
    def record(self) -> str:
        return "f1" if self.of_spans else "accuracy"

    @property
    def of_spans(self) -> bool:
        return spans.is_spans(self.labels)

    def records(self, paths: Sequence[str], *, learning: bool = False) -> TaggedSentences:
        sentences = conll.read(paths, self.column, word=self.word, tagged=learning, errors=self.errors)
        if str(self.column) == "-1":
            for source in sentences.sources:
                conll.refuse_pairs(source)
        return sentences.to_learn() if learning else sentences

    def card_examples(self, records: TaggedSentences) -> dict[str, str]:
        text = next(filter(is_short, map(" ".join, records.words)), SENTENCE)
        return {SENTENCE: text}

    def example_file(self, location: str, columns: Mapping[str, list[Any]]) -> tuple[str, str, dict[str, Any]]:
        return "conll", conll.of_columns(location, columns, str(self.column)), {"column": -1, "word": 1}

    def about(self, sentences: Sequence[Sequence[str]]) -> TaggedSentences:
        words = [[*sentence] for sentence in sentences]
        names = [f"sentence {number}" for number in range(1, len(words) + 1)]
        return TaggedSentences(words, [[None] * len(sentence) for sentence in words], names)

    def complete(self, records: TaggedSentences) -> Tag:
        counts = Counter(tag for tag in chain.from_iterable(records.tags) if tag is not None)
        file_scheme = self.file_scheme
        if spans.is_spans(self.labels or counts):
            check_spans(records, records.tags)
            file_scheme = self.file_scheme or scheme_of(records.tags)
            learned = chain.from_iterable(in_scheme(tags, self.scheme) for tags in records.tags)
            counts = Counter(tag for tag in learned if tag is not None)
        elif not self.labels:
            self._note_odd(records)
        labels = self.labels or tuple(sorted(counts))
        known = [label for label in labels if counts[label]]
        if len(known) < 2:
            tags = f"the only tag {known[0]}" if known else "none of the labels"
            raise DataError(records.starts[0], f"the words have {tags}", "at least two different tags")
        weights = label_weights(self.class_weights, labels, counts)
        return replace(self, labels=labels, file_scheme=file_scheme, class_weights=weights)

    def _note_odd(self, records: TaggedSentences) -> None:
        """Report a tag that marks no span if other tags do; raise an error if `scheme` needs spans."""
        tags = {tag for tag in chain.from_iterable(records.tags) if tag is not None}
        odd = {tag for tag in tags if not is_span(tag)} or {tag for tag in tags - {"O"} if "-" not in tag} or tags
        location, tag = first_of(odd, records, records.tags)
        if self.scheme and tags == {"O"}:
            raise DataError(location, "the only tag O", "spans for the scheme, such as B-PER", OTHER_COLUMN)
        if self.scheme:
            next_to = f" next to {min(tags - odd - {'O'})}" if tags - odd - {"O"} else ""
            problem = f"{self.scheme}, but {location} has the tag {tag}{next_to}"
            raise RecipeError("task.scheme", problem, "O and tags such as B-PER")
        if "O" in tags and any(tag.startswith("B-") for tag in tags):
            say(f"{location}: tags such as {tag} are not spans, so the tags of words are scored instead of spans")

    def features(self, records: TaggedSentences, reader: TextReader) -> Features:
        return inputs.features(records, reader, self.length, self.stride, self.labels, self.scheme)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Tagger:
        return Tagger(self, model, tokenizer.vocabulary)

    def predictions(self, records: TaggedSentences, features: Features, answers: Arrays) -> TagPredictions:
        words = features.more["example"], features.more["place"]
        names = iter(np.array(self.labels, object)[answers["tag"][words]].tolist())
        tags = [list(islice(names, len(sentence))) for sentence in records.words]
        if self.of_spans and (self.repair_tags or self.scheme):
            assert self.file_scheme
            tags = [spans.converted(sentence, self.file_scheme) for sentence in tags]
        return TagPredictions(tags, answers["probability"][words])

    def score(self, records: TaggedSentences, predictions: TagPredictions) -> dict[str, float]:
        return outputs.score(records, predictions, self.file_scheme, of_spans=self.of_spans)

    def count_scored(self, records: TaggedSentences) -> int:  # type: ignore[override]
        return sum(any(tag is not None for tag in tags) for tags in records.tags)

    def fitted(self, records: TaggedSentences, features: Features, answers: Arrays) -> Tag:
        return self

    def guesses(self, train: TaggedSentences, records: TaggedSentences) -> TagPredictions:
        return outputs.guesses(train, records)

    def write(self, folder: Path, records: TaggedSentences, predictions: TagPredictions) -> list[Path]:
        return outputs.write(folder, records, predictions, of_spans=self.of_spans)

    def read(self, path: Path, records: TaggedSentences) -> TagPredictions:
        return outputs.read(path, records, self.column, self.word, self.errors, of_spans=self.of_spans)

    def details(
        self, records: TaggedSentences, predictions: TagPredictions
    ) -> list[tuple[str, list[str], list[list[Any]]]]:
        return outputs.details(records, predictions, of_spans=self.of_spans)


class Tagger(Task):
    """A network that scores every tag at every token; a word's tag is read at its first token."""

    by_marks, by_token = True, ("tag", "probability")

    def __init__(self, settings: Tag, model: ModelSettings, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        self.labels, self.weights, weights = settings.labels, {"tag": 1.0}, settings.class_weights
        assert weights != "balanced", "call complete() first: it replaces balanced by numbers"
        self.label_weights = LabelWeights(weights, self.labels) if weights else None
        self.add_head("tag", len(self.labels))

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {"tag": self._counts(batch).sum(dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        head: Any = self.tag
        return {"tag": head(self.states(batch)).float()}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        lost = F.cross_entropy(scores["tag"].flatten(0, 1), batch.targets.flatten(), reduction="none")
        return {"tag": (lost * self._counts(batch).flatten()).sum()}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        probability, tag = scores["tag"].softmax(-1).max(-1)
        return {"tag": by_example(tag, batch, 0).int(), "probability": by_example(probability, batch)}

    def usage(self, name: str, tokenizer: Tokenizer, learned: Tag) -> Usage:
        kind = "token-classification"
        does = "predicts the tag of each word: " + ", ".join(f"`{tag}`" for tag in self.labels)
        grouped = all(label == "O" or label[:2] in ("B-", "I-") for label in self.labels)
        code = pipeline(kind, name, ', aggregation_strategy="first"' if grouped else "")
        code += f'for found in ask("{SENTENCE}"):\n    print(found)\n'
        return Usage(kind, does, in_python(name, code))

    def _counts(self, batch: Batch) -> Tensor:
        if self.label_weights is None:
            return batch.weights
        return batch.weights * self.label_weights.on(batch.targets.device)[batch.targets]

"""The interface of a task: an objective over labeled examples that can also predict.

Fine-tuning therefore uses the same training loop as pretraining.

files -> records -> features -> Batch -> scores -> summed losses     (training)
                                                -> answers -> predictions -> official scores, files in usual formats
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.settings import as_toml
from ordsmed.data.batch import Batch
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.learn.objective import Network, Objective
from ordsmed.learn.upper_layers import Top, Upper, read
from ordsmed.learn.usage import Usage
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.heads import sequential
from ordsmed.nn.model import PIPELINES, ModelSettings, TaskKind
from ordsmed.text.tokenizer import Tokenizer

INITIALIZER_STD = 0.02  # of a new head's weights
LOST = " lost"  # suffix of a term: its summed loss, in the result of `validate`
Arrays = dict[str, NDArray[Any]]
ClassWeights = dict[str, float] | Literal["balanced"] | None
R = TypeVar("R")
P = TypeVar("P")


@dataclass(frozen=True)
class TextVectors:
    """How a network makes the vector of a text, and how vectors are compared."""

    pool: Literal["mean", "first", "last", "max"]
    normalize: bool
    prompts: Mapping[str, str]  # role of a text (query, passage) -> prompt before it
    length: int  # maximum tokens of a text; longer ones are truncated
    widths: tuple[int, ...] = ()  # lengths of prefixes that are trained as vectors too
    sparse: bool = False  # a weight for each token of the vocabulary, most of them 0
    compared: Literal["cosine", "dot"] | None = None  # None: cosine if vectors have length 1, else dot product

    @property
    def similarity(self) -> Literal["cosine", "dot"]:
        return self.compared or ("cosine" if self.normalize else "dot")


class Embedding:
    """The additional interface of a task that learns vectors of texts."""

    vectors: TextVectors
    vector_width: int  # D

    def embed(self, batch: Batch) -> Tensor:
        """Return the vector of each text, [E, D]."""
        raise NotImplementedError


@dataclass(frozen=True)
class TokenVectors:
    """How a network makes vectors of the tokens of a text, and which tokens have one."""

    width: int  # numbers of each vector
    prompts: Mapping[str, str]  # role of a text (query, passage) -> prompt before it
    length: int  # maximum tokens of a text; longer ones are truncated
    query_length: int  # maximum tokens of a question
    expand: int = 0  # shorter questions are padded to this many tokens; 0: no padding
    filler: int = 0  # the token that pads questions
    skipped: tuple[int, ...] = ()  # tokens of a passage that get no vector
    widths: tuple[int, ...] = ()  # lengths of prefixes that are trained as vectors too


class LateInteraction:
    """The additional interface of a task that learns a vector for each token of a text."""

    tokens: TokenVectors

    def token_vectors(self, batch: Batch) -> Tensor:
        """Return the vectors of each text's tokens, [E, L, W]; 0 for padding and for tokens that are skipped."""
        raise NotImplementedError


class Reranking:
    """The additional interface of a task whose models score two texts that are read together."""

    share: bool  # whether scores are from 0 to 1


class Task(Objective):
    """A network, optional layers on top of it, and one head, which `add_head` adds as the attribute `role`."""

    labels: tuple[str, ...] = ()  # names of classes or tags
    number: bool = False  # whether the task predicts a number
    frozen: bool = False  # whether the weights of the network are frozen
    by_marks: bool = False  # whether the labels are in the features' marks, one per token
    by_token: tuple[str, ...] = ()  # keys of `answers` with an entry per token: [E, L, ...]
    end_to_end: tuple[str, ...] = ()  # keys of `answers` whose tokens are stored without padding

    def __init__(self, top: Top, model: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.model_settings, self.state = model, {}
        self.model = model.build(vocabulary)
        top = top.for_family(model)
        self.top = None if top.plain else Upper(top, model)

    def add_head(self, role: TaskKind, outputs: int) -> None:
        """Add the head; call it last, because it numbers the dropout layers.

        Args:
            role: the kind of head: classify, tag, span or joint. Without a `top` it is the family's head, as in
                transformers; on a `top`, whose states have another width, it is a linear layer.
            outputs: the number of its outputs (classes, tags).
        """
        if self.top is None:
            head = self.model_settings.task_head(role, outputs)
        else:
            head = sequential(INITIALIZER_STD, out=nn.Linear(self.top.width, outputs))
        self.add_module(role, head)
        number_layers(self)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """Return name -> outputs of the head for a batch, from `self.states(batch)`."""
        raise NotImplementedError

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return term -> its SUMMED loss, from the result of `scores`."""
        raise NotImplementedError

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return name -> values for predictions with an entry per example: [E, ...], in 32 bits or more."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.losses(self.scores(batch), batch)

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the answers and, if the labels are known, the summed losses as `<term> lost`.

        One call returns both, because every call of a sharded network gathers its weights.
        """
        scores = self.scores(batch)
        lost = self.losses(scores, batch) if batch.labels is not None or self.by_marks else {}
        return self.answers(scores, batch) | {f"{term}{LOST}": value for term, value in lost.items()}

    def states(self, batch: Batch) -> Tensor:
        """Return the hidden states of all tokens, [B, T, D]."""
        every = self.top is not None and self.top.mixes
        layers = read(self.model, self.model_settings, batch, every=every, frozen=self.frozen)
        return self.top(layers, batch) if self.top is not None else layers[-1]

    def update_settings(self, settings: TaskSettings) -> None:
        """Apply settings that differ only in what may change after training (`LATER`)."""

    def freeze(self) -> None:
        """Train only the head: the network gets no gradient and no dropout."""
        self.frozen = True
        self.model.requires_grad_(False)
        self.model.eval()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        return Usage(PIPELINES[learned.role], "was fine-tuned", "`ordsmed predict` and `evaluate` open it.")

    def networks(self) -> dict[str, Network]:
        return {"": dataclasses.replace(super().networks()[""], labels=self.labels, number=self.number)}

    def flops(self, rows: int, length: int) -> float:
        passes = 1.0 if self.frozen else 3.0
        return passes * rows * length * float(self.model_settings.flops(length))


class Renewing(Generic[R]):
    """The additional interface of a task's settings if the model chooses training data during training."""

    def renewal(self, epoch: float) -> int | None:
        """Return the steps between two choices of data (0: choose once; None: never); `epoch`: steps of an epoch."""
        raise NotImplementedError

    def chosen(self, records: R, answers: Arrays, *key: object) -> Ints:
        """Choose training data from the model's answers for all examples; return it as integers, to be saved."""
        raise NotImplementedError

    def with_chosen(self, features: Features, chosen: Ints) -> Features:
        """Return the features with the chosen data added."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Files:
    """Base of the settings of every task."""

    train: str | tuple[str, ...] = ()
    """training files"""
    dev: str | tuple[str, ...] = ()
    """validation files, on which checkpoints are compared; without them, the last checkpoint is used"""
    top: Top = field(default_factory=Top)
    """layers between the network and the head"""

    UNREAD: ClassVar[tuple[str, ...]] = ("train", "dev", "top")  # settings that do not change features
    LATER: ClassVar[tuple[str, ...]] = ()  # settings that may change after training: how files are read and decoded
    VERBS: ClassVar[tuple[str, ...]] = ()  # commands for its models, in addition to predict and evaluate
    NARROW_SHARE: ClassVar[float] = 1.0  # factor of the family's learning rate for a narrow network on this task
    EXAMPLE: ClassVar[tuple[str, ...]] = ()  # example texts for those commands
    METHOD: ClassVar[str] = ""  # the usual method of `ordsmed.open(...)` for its models
    FORMAT: ClassVar[str] = ""  # usual export format of its models, if not transformers'
    MADE_UP: ClassVar[str] = ""  # name of the file that `synthetic` makes; empty: it makes none

    @property
    def method(self) -> str:
        return self.METHOD

    @classmethod
    def named(cls, name: str) -> dict[str, Any] | None:
        """Return the settings for a known dataset's name, such as squad-2.0; None for an unknown name."""
        return None

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        """Return the settings for the head of an imported model; None if the head belongs to another task."""
        return None

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        """Return a file of random examples for a benchmark, as text; example i has `sizes[i]` tokens."""
        return ""

    def rows(self, features: Features, packing: Packing, batch: int, *key: object) -> ExampleRows:
        """Return the rows of training, addressed by running number; `batch` is the number of examples of a step."""
        return ExampleRows(features, packing, *key)

    def fill_pool(self, usual: Literal["mean"] | None, head: object) -> Self:
        """Return the settings with a default for `pool`, if the task has this setting.

        Args:
            usual: the pooling of a new head.
            head: settings of the task whose head is trained further; None for a new head.
        """
        return self

    def losses(self, features: Features, answers: Arrays) -> dict[str, float]:
        """Return mean losses that can only be computed from the answers of all examples, term -> loss."""
        return {}

    def example_file(self, location: str, columns: Mapping[str, list[Any]]) -> tuple[str, str, dict[str, Any]]:
        """Write examples given as columns as a file; return its suffix, its text, and settings to read it.

        `location` names the examples in error messages.
        """
        rows = zip(*columns.values(), strict=True)
        try:
            lines = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows]
        except TypeError as error:
            raise RecipeError(
                location, f"a value that is neither text nor number ({error})", "texts and numbers"
            ) from None
        return "jsonl", "\n".join(lines) + "\n", {}

    def count_scored(self, records: Sized) -> int:
        """Return how many of the records are scored, because their right answer is known."""
        return len(records)

    def counted(self, train: Features, features: Features) -> object:
        """Return predictions by counting the words of each class, a second baseline; None if there is none."""
        return None

    def paths(self, split: str) -> tuple[str, ...]:
        named = getattr(self, split)
        return (named,) if isinstance(named, str) else tuple(named)


class TypedTask(Protocol[R, P]):
    """The interface of the settings in each file of tasks/, in addition to the fields of `Files`.

    Each task has separate types for records R and predictions P, which other code only passes on.
    """

    record: str  # the score by which checkpoints are compared; higher is better
    UNREAD: ClassVar[tuple[str, ...]]
    NARROW_SHARE: ClassVar[float]
    EXAMPLE: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]
    role: str  # its head's role: classify, tag, span or joint
    length: int  # maximum tokens of an example

    def paths(self, split: str) -> tuple[str, ...]:
        """Return the files of `train` or `dev`."""

    def rows(self, features: Features, packing: Packing, batch: int, *key: object) -> ExampleRows:
        """Return the rows of training; see `Files`."""

    def losses(self, features: Features, answers: Arrays) -> dict[str, float]:
        """Return mean losses that need the answers of all examples; see `Files`."""

    def example_file(self, location: str, columns: Mapping[str, list[Any]]) -> tuple[str, str, dict[str, Any]]:
        """Write examples given as columns as a file; see `Files`."""

    def count_scored(self, records: R) -> int:
        """Return how many of the records are scored; see `Files`."""

    def counted(self, train: Features, features: Features) -> P | None:
        """Return predictions by counting words; see `Files`."""

    def records(self, paths: Sequence[str], *, learning: bool = False) -> R:
        """Read files; report problems in one line per file. The result has a length.

        With `learning`, leave out examples that cannot be learned because their right answer is not known.
        """

    def complete(self, records: R) -> Self:
        """Return these settings with what the training data determine, such as the labels; formerly `settled`."""

    def features(self, records: R, reader: TextReader) -> Features:
        """Return the network's input, with the right answers (labels, marks) if they are known."""

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Task:
        """Return the network with its head, for these model settings."""

    def predictions(self, records: R, features: Features, answers: Arrays) -> P:
        """Return a prediction for each record, from the `answers` of all examples."""

    def score(self, records: R, predictions: P) -> dict[str, float]:
        """Return the official scores, in per cent; empty if the right answers are not known."""

    def fitted(self, records: R, features: Features, answers: Arrays) -> Self:
        """Return these settings with values that are fitted to the dev set, such as a threshold."""

    def guesses(self, train: R, records: R) -> P:
        """Return the baseline: predictions by frequency in the training data; None if there is none."""

    def write(self, folder: Path, records: R, predictions: P) -> list[Path]:
        """Write predictions in the official formats into an existing folder; return the files."""

    def read(self, path: Path, records: R) -> P:
        """Read predictions for these records from a file in the official format."""

    def details(self, records: R, predictions: P) -> list[tuple[str, list[str], list[list[Any]]]]:
        """Return tables for a report (scores by class, by length of question...): title, head and rows of each."""


TaskSettings = TypedTask[Any, Any]  # settings of any task


def check_labels(labels: Sequence[str], class_weights: ClassWeights) -> None:
    """Raise an error for duplicate labels, for a single label, and for weights of 0 or less."""
    if labels and len(set(labels)) < max(2, len(labels)):
        raise ValueError(f"labels: found {as_toml(labels)}; wanted two or more different ones")
    if isinstance(class_weights, dict) and min(class_weights.values(), default=0) <= 0:
        raise ValueError(f"class_weights: found {as_toml(class_weights)}; wanted numbers above 0")


def label_weights(
    class_weights: ClassWeights, labels: Sequence[str], seen: Mapping[str, int]
) -> dict[str, float] | None:
    """Return the weight of each label in the loss; `seen` counts the labels of the training data.

    With "balanced", each label that occurs has the same total weight.
    """
    if class_weights == "balanced":
        present = [label for label in labels if seen[label]]
        total = sum(seen[label] for label in present)
        return {label: total / (len(present) * seen[label]) for label in present}
    for label in class_weights or ():
        if label not in labels:
            raise RecipeError("task.class_weights", f"found `{label}`", "labels", nearest(label, labels))
    return class_weights


class LabelWeights:
    """The weight of each label in the loss, copied to a device only once because a copy synchronizes the GPU."""

    def __init__(self, weights: Mapping[str, float], labels: Sequence[str]) -> None:
        self.numbers = [weights.get(label, 1.0) for label in labels]
        self.tensors: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        if device not in self.tensors:
            self.tensors[device] = torch.tensor(self.numbers, device="cpu").to(device)
        return self.tensors[device]


NO_SCORES = ("step", "phase", "examples", "guessing", "word_counts", "verdict")  # keys of scores.json without a score
MIN_IMPROVEMENT = 0.1  # share of the baseline's errors that a useful model avoids at least


def no_better(
    record: str,
    scores: Mapping[str, float],
    guessing: Mapping[str, float],
    counted: Mapping[str, float] | None = None,
    pool: str | None = None,
) -> str:
    """Return a warning that a model is hardly better than a baseline, with a remedy; "" if it is clearly better.

    Args:
        record: the name of the score to compare.
        scores: the model's scores.
        guessing: scores of guessing the most frequent answer.
        counted: scores of counting the words of each class, if they are known.
        pool: the pooling of the model's head; `mean` is not suggested if the head already uses it.
    """
    remedy = "try more `epochs`, another `learning_rate`, or a model that was pretrained longer or on similar texts"
    score, guess, words = (table.get(record, math.nan) for table in (scores, guessing, counted or {}))
    if score <= guess < 100:
        problem = f"is no better than guessing by frequency ({guess:.2f})"
    elif score - guess < MIN_IMPROVEMENT * (100 - guess):
        problem = f"is hardly better than guessing by frequency ({guess:.2f})"
    elif score < words:
        problem = f"is below a baseline that counts the words of each class ({words:.2f}): pretraining did not help"
        remedy = remedy if pool == "mean" else remedy.replace("try", "try `task.pool=mean`,")
    else:
        return ""
    return f"{record} {score:.2f} {problem}; {remedy}; `fresh=true out=...` trains from random weights to compare"


def packing(tokenizer: Tokenizer, model: ModelSettings) -> Packing:
    return Packing(pad=tokenizer.pad or 0, alone=bool(model.capabilities.state))


def reader(tokenizer: Tokenizer, model: ModelSettings) -> TextReader:
    return TextReader(tokenizer, types=getattr(model, "types", 0) > 1, causal=model.capabilities.causal)


def by_example(values: Tensor, batch: Batch, fill: float = 0.0) -> Tensor:
    """Arrange the values of all tokens, [B, T, ...], by example, [E, L, ...], padded with `fill`."""
    begin, size, longest = batch.examples()
    inside = torch.arange(longest, device=size.device)
    tokens = values.flatten(0, 1)[begin + inside.clamp(max=size - 1)]
    return tokens.masked_fill((inside >= size)[(...,) + (None,) * (values.ndim - 2)], fill)

"""What a task offers: an objective over labeled examples that also predicts, so that fine-tuning is the same loop.

files -> records -> features -> Batch -> scores -> summed losses     (learning)
                                                -> answers -> predictions -> official scores, files people expect
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
from ordsmed.nn.heads import in_turn
from ordsmed.nn.model import PIPELINES, ModelSettings, TaskKind
from ordsmed.text.tokenizer import Tokenizer

INITIALIZER_STD = 0.02  # of a fresh head's weights
LOST = " lost"  # behind a term: its summed loss, among what is told of examples
Arrays = dict[str, NDArray[Any]]
ClassWeights = dict[str, float] | Literal["balanced"] | None
R = TypeVar("R")
P = TypeVar("P")


@dataclass(frozen=True)
class TextVectors:
    """How the vector of a text is made by a network that was trained for it, and how vectors are compared."""

    pool: Literal["mean", "first", "last", "max"]
    normalize: bool
    prompts: Mapping[str, str]  # what is written before a text, by what the text is: query, passage
    length: int  # tokens of the longest text; longer ones are cut
    widths: tuple[int, ...] = ()  # fronts of it that are vectors as well
    sparse: bool = False  # is it a weight for each piece of the vocabulary?
    compared: Literal["cosine", "dot"] | None = None  # None: by the cosine where they are of length 1, else the product

    @property
    def similarity(self) -> Literal["cosine", "dot"]:
        """How they are compared."""
        return self.compared or ("cosine" if self.normalize else "dot")


class Embedding:
    """What a task offers beside that teaches vectors of texts."""

    vectors: TextVectors
    vector_width: int  # D

    def embed(self, batch: Batch) -> Tensor:
        """The vector of each text, [E, D]."""
        raise NotImplementedError


@dataclass(frozen=True)
class TokenVectors:
    """How the tokens of a text get vectors by a network that was trained for it, and which of them count."""

    width: int  # numbers of each
    prompts: Mapping[str, str]  # what is written before a text, by what the text is: query, passage
    length: int  # tokens of the longest text; longer ones are cut
    query_length: int  # of the longest question
    expand: int = 0  # a shorter question is filled up to so many tokens; 0: it is not
    filler: int = 0  # by this one
    skipped: tuple[int, ...] = ()  # tokens of a passage that get no vector
    widths: tuple[int, ...] = ()  # fronts of a vector that are vectors as well


class LateInteraction:
    """What a task offers beside that teaches a vector for each token of a text."""

    tokens: TokenVectors

    def token_vectors(self, batch: Batch) -> Tensor:
        """Of each text one a token, [E, L, W]; zeros where there is no token, or one that does not count."""
        raise NotImplementedError


class Reranking:
    """What a task offers beside whose models score two texts that are read together."""

    share: bool  # is the score a share, from 0 to 1?


class Task(Objective):
    """A network, layers that may be put on it, and one head, which a task adds under its role (`add_head`)."""

    labels: tuple[str, ...] = ()  # names of classes or tags
    number: bool = False  # is a number predicted?
    frozen: bool = False  # does the network below stay as it is?
    by_marks: bool = False  # are the right answers in the features' marks, one a token?
    by_token: tuple[str, ...] = ()  # keys of `answers` with an entry a token: [E, L, ...]
    end_to_end: tuple[str, ...] = ()  # and those of which tokens are kept as features have them, without padding

    def __init__(self, top: Top, model: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.model_settings, self.state = model, {}
        self.model = model.build(vocabulary)
        top = top.for_family(model)
        self.top = None if top.plain else Upper(top, model)

    def add_head(self, role: TaskKind, outputs: int) -> None:
        """Add the head; call it last, because it numbers the dropout layers.

        Args:
            role: the kind of head: classify, tag, span or joint. It is the family's own, as in Hugging Face's class;
                on a top, whose states have another width, a linear layer.
            outputs: the number of its outputs (classes, tags).
        """
        if self.top is None:
            head = self.model_settings.task_head(role, outputs)
        else:
            head = in_turn(INITIALIZER_STD, out=nn.Linear(self.top.width, outputs))
        self.add_module(role, head)
        number_layers(self)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """Name -> outputs of the head for a batch, from `self.states(batch)`."""
        raise NotImplementedError

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Term -> its SUMMED loss, from what `scores` gives."""
        raise NotImplementedError

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Name -> what predictions are made from, an entry an example: [E, ...], in 32 bits or more."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.losses(self.scores(batch), batch)

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """The answers; where the right ones are known, also the summed losses as `<term> lost`.

        In one call: networks whose weights are split over ranks gather them for as long as it takes.
        """
        scores = self.scores(batch)
        lost = self.losses(scores, batch) if batch.labels is not None or self.by_marks else {}
        return self.answers(scores, batch) | {f"{term}{LOST}": value for term, value in lost.items()}

    def states(self, batch: Batch) -> Tensor:
        """Hidden states of all tokens, [B, T, D]."""
        every = self.top is not None and self.top.mixes
        layers = read(self.model, self.model_settings, batch, every=every, frozen=self.frozen)
        return self.top(layers, batch) if self.top is not None else layers[-1]

    def update_settings(self, settings: TaskSettings) -> None:
        """Take other settings, which differ in what may change after training (`LATER`)."""

    def freeze(self) -> None:
        """Train the head alone: the network gets no gradient and no dropout."""
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
    """What a task's settings offer beside where the model in training chooses what it learns from next."""

    def renewal(self, epoch: float) -> int | None:
        """After how many steps of so many an epoch it chooses anew; 0: never again; None: it chooses nothing."""
        raise NotImplementedError

    def chosen(self, records: R, answers: Arrays, *key: object) -> Ints:
        """What is learned from until then, by what the model tells of every example: numbers that a file keeps."""
        raise NotImplementedError

    def with_chosen(self, features: Features, chosen: Ints) -> Features:
        """What rows are made of then."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Files:
    """What the settings of every task begin with."""

    train: str | tuple[str, ...] = ()
    """files to learn from"""
    dev: str | tuple[str, ...] = ()
    """validation files, by which checkpoints are compared; none: the last checkpoint is taken"""
    top: Top = field(default_factory=Top)
    """layers between the network and the head"""

    UNREAD: ClassVar[tuple[str, ...]] = ("train", "dev", "top")  # what changes no feature
    LATER: ClassVar[tuple[str, ...]] = ()  # settings that may change after training: how files are read and decoded
    VERBS: ClassVar[tuple[str, ...]] = ()  # commands that open its models, in addition to predict and evaluate
    NARROW_SHARE: ClassVar[float] = 1.0  # of the family's rate for a narrow network, at which it learns this task
    EXAMPLE: ClassVar[tuple[str, ...]] = ()  # texts to try those commands with
    METHOD: ClassVar[str] = ""  # the usual method of `ordsmed.open(...)` for its models
    FORMAT: ClassVar[str] = ""  # in which its models are handed on, where that is not transformers'
    MADE_UP: ClassVar[str] = ""  # name of the file that `synthetic` makes; empty: it makes none

    @property
    def method(self) -> str:
        """The method of `ordsmed.open(...)` for a model with these settings."""
        return self.METHOD

    @classmethod
    def named(cls, name: str) -> dict[str, Any] | None:
        """Settings for a known data set's name, such as squad-2.0; None: not known."""
        return None

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        """Settings for an imported model's head; None: it is not a head of this task."""
        return None

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        """Text of a file of random examples with these numbers of tokens, for a bench."""
        return ""

    def rows(self, features: Features, packing: Packing, batch: int, *key: object) -> ExampleRows:
        """Batches of examples by running numbers; `batch`: of a step."""
        return ExampleRows(features, packing, *key)

    def fill_pool(self, usual: Literal["mean"] | None, head: object) -> Self:
        """Return the settings with the state that the head reads, where a task has a choice and leaves it open.

        `usual`: that of a new head; `head`: the settings of the task whose head learns on, None if the head is new.
        """
        return self

    def losses(self, features: Features, answers: Arrays) -> dict[str, float]:
        """Mean losses that are told by all answers together; those that batches tell of their examples are known."""
        return {}

    def example_file(self, place: str, columns: Mapping[str, list[Any]]) -> tuple[str, str, dict[str, Any]]:
        """Return examples that a program holds as columns as a file: its ending, its text, and settings to read it by.

        `place` names the examples in error messages.
        """
        rows = zip(*columns.values(), strict=True)
        try:
            lines = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows]
        except TypeError as error:
            raise RecipeError(place, f"a value that is no text and no number ({error})", "texts and numbers") from None
        return "jsonl", "\n".join(lines) + "\n", {}

    def count_scored(self, records: Sized) -> int:
        """Return how many of the records have a right answer that they are scored by."""
        return len(records)

    def counted(self, train: Features, features: Features) -> object:
        """Return predictions by counting the words of each class, a second baseline; None if there is none."""
        return None

    def paths(self, split: str) -> tuple[str, ...]:
        """The files of `train` or `dev`."""
        named = getattr(self, split)
        return (named,) if isinstance(named, str) else tuple(named)


class TypedTask(Protocol[R, P]):
    """What every file in tasks/ offers, besides the fields of `Files` and `length`, the longest example's tokens.

    Records R and predictions P are of the task's own types; everything else only passes them on.
    """

    record: str  # the score by which checkpoints are compared; more is better
    UNREAD: ClassVar[tuple[str, ...]]
    NARROW_SHARE: ClassVar[float]
    EXAMPLE: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]
    role: str  # its head's role: classify, tag, span or joint
    length: int

    def paths(self, split: str) -> tuple[str, ...]:
        """The files of `train` or `dev`."""

    def rows(self, features: Features, packing: Packing, batch: int, *key: object) -> ExampleRows:
        """Batches of examples by running numbers, as `Files` has them."""

    def losses(self, features: Features, answers: Arrays) -> dict[str, float]:
        """Mean losses that only all answers together tell, as `Files` has them: none."""

    def example_file(self, place: str, columns: Mapping[str, list[Any]]) -> tuple[str, str, dict[str, Any]]:
        """Return examples that a program holds as a file, as `Files` has it."""

    def count_scored(self, records: R) -> int:
        """Return how many records are scored, as `Files` has it."""

    def counted(self, train: Features, features: Features) -> P | None:
        """Return predictions by counting words, as `Files` has them: none."""

    def records(self, paths: Sequence[str], *, learning: bool = False) -> R:
        """Read files; what is wrong in them is said in a line a file.

        Args:
            paths: the files.
            learning: for training: leave out examples without a right answer.

        Returns:
            The records, of any type with a length.
        """

    def complete(self, records: R) -> Self:
        """These settings, completed from the training data: the labels. It was called `settled` before."""

    def features(self, records: R, reader: TextReader) -> Features:
        """Columns that the network reads, with the right answers (labels, marks) where they are known."""

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Task:
        """The network with its head, for these model settings."""

    def predictions(self, records: R, features: Features, answers: Arrays) -> P:
        """A prediction for each record, from the `answers` of all examples."""

    def score(self, records: R, predictions: P) -> dict[str, float]:
        """The official scores, in per cent; empty where the right answers are not known."""

    def fitted(self, records: R, features: Features, answers: Arrays) -> Self:
        """These settings with what is chosen on the dev set, such as a threshold."""

    def guesses(self, train: R, records: R) -> P:
        """The baseline: predictions by frequency in the training data; None: there is none."""

    def write(self, folder: Path, records: R, predictions: P) -> list[Path]:
        """Write predictions in the official formats into an existing folder; returns the files."""

    def read(self, path: Path, records: R) -> P:
        """Read predictions for these records from a file in the official format."""

    def details(self, records: R, predictions: P) -> list[tuple[str, list[str], list[list[Any]]]]:
        """Tables for a person: title, head, rows (scores by class, by length of question...)."""


TaskSettings = TypedTask[Any, Any]  # of some task


def check_labels(labels: Sequence[str], class_weights: ClassWeights) -> None:
    """Refuse labels and weights of them that no task can have."""
    if labels and len(set(labels)) < max(2, len(labels)):
        raise ValueError(f"labels: found {as_toml(labels)}; wanted two or more different ones")
    if isinstance(class_weights, dict) and min(class_weights.values(), default=0) <= 0:
        raise ValueError(f"class_weights: found {as_toml(class_weights)}; wanted numbers above 0")


def label_weights(
    class_weights: ClassWeights, labels: Sequence[str], seen: Mapping[str, int]
) -> dict[str, float] | None:
    """How much the loss of each label counts; balanced: those that were `seen` all alike, however often that was."""
    if class_weights == "balanced":
        present = [label for label in labels if seen[label]]
        total = sum(seen[label] for label in present)
        return {label: total / (len(present) * seen[label]) for label in present}
    for label in class_weights or ():
        if label not in labels:
            raise RecipeError("task.class_weights", f"found `{label}`", "labels", nearest(label, labels))
    return class_weights


class LabelWeights:
    """How much the loss of each label counts, made once a device: handing it over, a GPU is waited for."""

    def __init__(self, weights: Mapping[str, float], labels: Sequence[str]) -> None:
        self.numbers = [weights.get(label, 1.0) for label in labels]
        self.tensors: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        """A number a label."""
        if device not in self.tensors:
            self.tensors[device] = torch.tensor(self.numbers, device="cpu").to(device)
        return self.tensors[device]


NO_SCORES = ("step", "phase", "examples", "guessing", "word_counts", "verdict")  # what scores.json has next to scores
NEAR = 0.1  # of guessing's errors: a model that avoids no more of them has learned next to nothing


def no_better(
    record: str,
    scores: Mapping[str, float],
    guessing: Mapping[str, float],
    counted: Mapping[str, float] | None = None,
    pool: str | None = None,
) -> str:
    """Return a line that says that a model is not clearly better than a baseline, and the remedy; empty if it is.

    Args:
        record: the score that counts.
        scores: those of the model.
        guessing: those of guessing by what is frequent.
        counted: those of counting the words of each class, where they are known.
        pool: the state that the model's head reads; `mean` is not suggested to one that reads it.
    """
    remedy = "try more `epochs`, another `rate`, or a model that was pretrained longer or on such texts"
    score, guess, words = (table.get(record, math.nan) for table in (scores, guessing, counted or {}))
    if score <= guess < 100:
        lost = f"is no better than guessing by what is frequent ({guess:.2f})"
    elif score - guess < NEAR * (100 - guess):
        lost = f"is near guessing by what is frequent ({guess:.2f})"
    elif score < words:
        lost = f"is below counting the words of each class ({words:.2f}): pretraining brought nothing"
        remedy = remedy if pool == "mean" else remedy.replace("try", "try `task.pool=mean`,")
    else:
        return ""
    return f"{record} {score:.2f} {lost}; {remedy}; `fresh=true out=...` shows what a random start gets"


def packing(tokenizer: Tokenizer, model: ModelSettings) -> Packing:
    """How a family's examples become rows."""
    return Packing(pad=tokenizer.pad or 0, alone=bool(model.capabilities.state))


def reader(tokenizer: Tokenizer, model: ModelSettings) -> TextReader:
    """How a family reads texts."""
    return TextReader(tokenizer, types=getattr(model, "types", 0) > 1, causal=model.capabilities.causal)


def by_example(values: Tensor, batch: Batch, fill: float = 0.0) -> Tensor:
    """Of every token, [B, T, ...] -> of every example's tokens, [E, L, ...], L the longest one's length."""
    begin, size, longest = batch.examples()
    inside = torch.arange(longest, device=size.device)
    tokens = values.flatten(0, 1)[begin + inside.clamp(max=size - 1)]
    return tokens.masked_fill((inside >= size)[(...,) + (None,) * (values.ndim - 2)], fill)

"""What a task offers: an objective over labeled examples that also predicts, so that fine-tuning is the same loop.

files -> records -> features -> Batch -> scores -> summed losses     (learning)
                                                -> answers -> predictions -> official scores, files people expect
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ordsmed.base.errors import RecipeError, nearest
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Packing
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


class Task(Objective):
    """A network, what may stand on it, and one head, which a task adds under its role."""

    labels: tuple[str, ...] = ()  # names of classes or tags
    number: bool = False  # is a number predicted?
    frozen: bool = False  # does the network below stay as it is?
    by_marks: bool = False  # does what is right stand in the features' marks, token by token?
    by_token: tuple[str, ...] = ()  # what it tells of every token of an example, not of the example: [E, L, ...]

    def __init__(self, top: Top, model: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.model_settings, self.state = model, {}
        self.model = model.build(vocabulary)
        top = top.for_family(model)
        self.top = None if top.plain else Upper(top, model)

    def add_head(self, role: TaskKind, outputs: int) -> None:
        """The family's own head, as others know it; on a top, whose states have another width, a plain one.

        Call it last: dropout layers are numbered then.
        """
        if self.top is None:
            head = self.model_settings.task_head(role, outputs)
        else:
            head = in_turn(INITIALIZER_STD, out=nn.Linear(self.top.width, outputs))
        self.add_module(role, head)
        number_layers(self)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """What the head makes of a batch."""
        raise NotImplementedError

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The summed losses, one a term."""
        raise NotImplementedError

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """What predictions are read from, an entry an example: [E, ...], as numbers of 32 bits and more."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.losses(self.scores(batch), batch)

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """What predictions are read from; where it is known what is right, the summed losses as `<term> lost`.

        In one call: networks whose weights are split over ranks gather them for as long as it takes.
        """
        scores = self.scores(batch)
        lost = self.losses(scores, batch) if batch.labels is not None or self.by_marks else {}
        return self.answers(scores, batch) | {f"{term}{LOST}": value for term, value in lost.items()}

    def states(self, batch: Batch) -> Tensor:
        """The states of all tokens, [B, T, D]."""
        every = self.top is not None and self.top.mixes
        layers = read(self.model, self.model_settings, batch, every=every, frozen=self.frozen)
        return self.top(layers, batch) if self.top is not None else layers[-1]

    def update_settings(self, settings: TaskSettings) -> None:
        """Work by these settings from now on, which differ from its own in what may change later."""

    def freeze(self) -> None:
        """From now on the network below learns nothing."""
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
        whole = super().networks()[""]
        return {"": dataclasses.replace(whole, labels=self.labels, number=self.number)}

    def flops(self, rows: int, length: int) -> float:
        passes = 1.0 if self.frozen else 3.0
        return passes * rows * length * float(self.model_settings.flops(length))


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
    LATER: ClassVar[tuple[str, ...]] = ()  # what may be changed once it has learned: how files are read and decoded
    VERBS: ClassVar[tuple[str, ...]] = ()  # verbs that open its models, beside predict and evaluate
    METHOD: ClassVar[str] = ""  # of a model that Python opens: by which it is asked
    MADE_UP: ClassVar[str] = ""  # the name of a file of examples that `synthetic` makes; none: it makes none

    @classmethod
    def named(cls, name: str) -> dict[str, Any] | None:
        """The settings that a name of a data set stands for, such as squad-2.0; None: it is of no such name."""
        return None

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        """The settings that a head of others comes with, as far as they are told or needed; None: it is of no such."""
        return None

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        """A file of examples of so many tokens each, out of so many words; what a bench reads."""
        return ""

    def paths(self, split: str) -> tuple[str, ...]:
        """The files of `train` or `dev`."""
        named = getattr(self, split)
        return (named,) if isinstance(named, str) else tuple(named)


class TypedTask(Protocol[R, P]):
    """What every file in tasks/ offers, beside the fields of `Files` and `length`, the longest example's tokens.

    Records R and predictions P are its own; machines pass them on as they are.
    """

    record: str  # the score by which checkpoints are compared; more is better
    UNREAD: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]
    role: str  # its head's role: classify, tag, span or joint
    length: int

    def paths(self, split: str) -> tuple[str, ...]:
        """The files of `train` or `dev`."""

    def records(self, paths: Sequence[str], *, learning: bool = False) -> R:
        """What files hold, something with a length; `learning`: only what can be learned from.

        Right answers may be lacking where nothing is learned. What is wrong in the files is told, in a line a file.
        """

    def complete(self, records: R) -> Self:
        """These settings with what the training data say: the labels. Once called `settled`."""

    def features(self, records: R, reader: TextReader) -> Features:
        """What the network reads; right answers (labels, marks) stand in them where they are known."""

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Task:
        """The network with its head, for these model settings."""

    def predictions(self, records: R, features: Features, answers: Arrays) -> P:
        """What the network says of each record, from what the task told of each example."""

    def score(self, records: R, predictions: P) -> dict[str, float]:
        """The official numbers, in per cent; empty where the right answers are not known."""

    def fitted(self, records: R, features: Features, answers: Arrays) -> Self:
        """These settings with what is chosen on the dev set, such as a threshold."""

    def guesses(self, train: R, records: R) -> P:
        """Predictions of who knows only how often what is right in the training data; None: there are none."""

    def write(self, folder: Path, records: R, predictions: P) -> list[Path]:
        """The files that people expect, into a folder that stands."""

    def read(self, path: Path, records: R) -> P:
        """Predictions from such a file, of anybody's, for records that it is about."""

    def details(self, records: R, predictions: P) -> list[tuple[str, list[str], list[list[Any]]]]:
        """Tables for a person: title, head, rows (scores by class, by length of question...)."""


TaskSettings = TypedTask[Any, Any]  # of some task


def check_labels(labels: Sequence[str], class_weights: ClassWeights) -> None:
    """Refuse labels and weights of them that no task can have."""
    if labels and len(set(labels)) < max(2, len(labels)):
        raise ValueError(f"labels: found {list(labels)}; wanted two or more different ones")
    if isinstance(class_weights, dict) and min(class_weights.values(), default=0) <= 0:
        raise ValueError(f"class_weights: found {class_weights}; wanted numbers above 0")


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

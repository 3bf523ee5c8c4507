"""The interface of an objective: it owns its networks and returns sums; the training loop divides by global counts.

rows(...)  on the CPU, numpy: row numbers -> Batch     build(...)  networks, on the device: Batch -> {term: summed loss}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.offers import check_finished, page
from ordsmed.base.say import with_article
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.pairs import PairRows
from ordsmed.data.rows import PackedRows, Rows, Span, StreamRows, see
from ordsmed.data.sentences import LineRows
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.teacher import Teacher, taught_loss
from ordsmed.learn.usage import Usage, filling, generation
from ordsmed.nn.dropout import Dropout, number_layers
from ordsmed.nn.loss import token_hits, token_loss
from ordsmed.nn.model import TASK_CLASSES, Model, ModelSettings, TokenHead, own_tensors
from ordsmed.text.tokenizer import Tokenizer

SIGNS = {"start": "[CLS]", "stop": "[SEP]", "mask": "[MASK]", "pad": "[PAD]", "unknown": "[UNK]"}
# roles of the modules of a network
ROLES = ("model", "head", "pair", "detect", "top", *TASK_CLASSES, "joint", "projection")
WHILE_LEARNING = ("ahead.",)  # prefixes of weights used only in training; a model folder may not have them
LossInputs = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, int]
RENAMED = {"judge": "validate", "told": "describe", "heed": "update_settings"}  # old name of a method -> new name


@dataclass(frozen=True)
class Network:
    """One network of an objective with its heads; it is exported to and loaded from one folder."""

    settings: ModelSettings
    modules: dict[str, nn.Module]  # by role
    labels: tuple[str, ...] = ()  # of a task: the names of the classes or tags
    number: bool = False  # of a task: the head predicts a number, not a class

    def tensors(self) -> dict[str, Any]:
        """Return the tensors by `role.name`; a shared tensor is returned once."""
        return own_tensors(nn.ModuleDict(self.modules))


class Objective(nn.Module):
    """A training objective: its networks, and a loss that is a weighted sum of terms.

    `weights`, `count(batch)` and `forward(batch)` have the same keys, the terms. A term's loss is its sum over the
    complete step divided by its count over the complete step. The loss is the sum of the terms times their weights.
    """

    model: Model  # the main network, which is exported, fine-tuned and served
    model_settings: ModelSettings
    weights: dict[str, float]  # term -> its factor in the loss
    state: dict[str, Tensor]  # tensors that a checkpoint needs next to parameters; usually empty
    one_way: bool = False  # are rows read from left to right by a bidirectional network?
    shifted: bool = False  # is a masked token predicted from the state of the position before it?
    guesses: str = ""  # the term whose loss is compared with guessing tokens by frequency
    compares: bool = (
        False  # does an example's loss depend on the others of the step? Then `view` and `compare` are called
    )

    def __init__(self) -> None:
        super().__init__()
        self.state = {}

    def count(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of predictions of each term in a batch, computed without the network.

        Args:
            batch: the rows of one micro-batch, on the CPU.

        Returns:
            Term -> the number, a scalar.
        """
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the summed loss of each term in a batch.

        Args:
            batch: the rows of one micro-batch, on the device.

        Returns:
            Term -> the SUM of the losses of its predictions, a scalar with a gradient; not the mean.
        """
        raise NotImplementedError

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return sums for validation, computed without gradients; by default only the losses.

        Args:
            batch: the rows of one micro-batch, on the device.

        Returns:
            Term -> the summed loss, as `forward`; `<term>_right` -> the number of right predictions, if it is known.
            Any other `<name>` -> a sum, together with `<name>_count`, the number that it is divided by.
        """
        losses: dict[str, Tensor] = self(batch)
        return losses

    measures: tuple[str, ...] = ()  # the keys of `derived`

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        """Return measures that are computed from a validation's means, such as a perplexity.

        Args:
            means: the keys of `validate` -> means over the validation; `validation` -> the weighted loss.

        Returns:
            Measure -> its value, for each name in `measures`.
        """
        return {}

    def guessing(self, means: dict[str, float], loss: float, right: float) -> dict[str, float]:
        """Return the scores of the baseline that guesses by token frequency.

        Args:
            means: the validation's means.
            loss: the mean loss of predicting each token by its frequency.
            right: the share of right predictions of always predicting the most frequent token.

        Returns:
            Scores of guessing, keyed like the validation's means; keys that have no baseline are left out.
        """
        total = {"validation": loss} if len(self.weights) == 1 else {}
        return {**total, self.guesses: loss, f"{self.guesses}_right": right} if self.guesses else {}

    def flops(self, rows: int, length: int) -> float:
        """Return the FLOPs of one training step: 2 x multiply-adds, forward and backward (twice the forward pass).

        Args:
            rows: rows of the step.
            length: tokens of a row.

        Returns:
            By default the FLOPs of `model` and, if there is one, of `head` at every position.
        """
        settings = self.model_settings
        head = settings.head_flops(self.model.words.num_embeddings) if hasattr(self, "head") else 0.0
        return 3.0 * rows * length * float(settings.flops(length) + head)

    def begin(self, first: int, count: int) -> None:
        """Prepare `state` for this process's rows; called at the start of each phase.

        Args:
            first: this process's first row of each step.
            count: this process's number of rows of each step.
        """

    def take_settings(self, like: Objective) -> None:
        """Copy the settings of an objective with the same networks: modules, weights of terms, rates of dropout."""
        modules = dict(self.named_modules())
        for name, module in like.named_modules():
            if isinstance(module, Dropout):
                modules[name].rate = module.rate
            for key in [key for key in vars(module) if key.endswith("settings")]:
                setattr(modules[name], key, vars(module)[key])
        self.weights = dict(like.weights)

    def describe(self, device: str, precision: str) -> list[str]:
        """Return lines for the log on how the loss is computed on this device, such as which kernels are used."""
        return []

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        """Return the usage example for the model card.

        Args:
            name: the model's folder.
            tokenizer: the model's tokenizer.
            learned: the objective's settings, as in the recipe.
        """
        if self.model_settings.capabilities.causal:
            return generation(name)
        return filling(name, tokenizer.piece(tokenizer.mask) if tokenizer.mask is not None else SIGNS["mask"])

    def networks(self) -> dict[str, Network]:
        """Return the networks: "" -> the main network, other names -> further networks (a generator)."""
        modules = dict(self.named_children())
        return {"": Network(self.model_settings, {role: modules[role] for role in ROLES if role in modules})}

    def exported(self) -> dict[str, Network]:
        """Return the folders of an export -> their networks; by default one folder for each of `networks`."""
        return self.networks()


class Comparing:
    """The additional interface of an objective whose losses compare the examples of a complete step."""

    def view(self, batch: Batch) -> dict[str, Tensor]:
        """Return what the other examples of the step are compared with, computed without gradients.

        Args:
            batch: the rows of one micro-batch, on the device.

        Returns:
            Name -> a tensor with a row per example, in 32 bits or more.
        """
        raise NotImplementedError

    def compare(self, views: dict[str, Tensor], micro_batches: Sequence[slice]) -> None:
        """Receive the views of the complete step; then `forward` is called for each micro-batch of this process.

        Args:
            views: rows of all examples of the step, over micro-batches and processes, in the order of their numbers.
            micro_batches: the rows of each micro-batch of this process.
        """
        raise NotImplementedError


class CorruptedRows:
    """Base of rows that mask or replace tokens of the rows `plain`."""

    plain: PackedRows | LineRows | PairRows

    def __len__(self) -> int:
        return len(self.plain)

    def spans(self, numbers: Ints) -> list[Span]:
        return self.plain.spans(numbers)


class CausalRows(StreamRows):
    """Rows of running text, with the same text shifted by one token as targets."""

    def __init__(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        end: int,
        phase: Phase,
        *key: object,
        separate: bool = True,
        one_way: bool = False,
    ) -> None:
        """`one_way`: the network is bidirectional, so batches say that their rows are read from left to right."""
        super().__init__(stores, weights, phase.length, end, *key, pack=phase.pack)
        self.separate, self.one_way = separate, one_way

    def batch(self, numbers: Ints) -> Batch:
        rows = self.assembled(numbers)
        weights = rows.inner[:, 1:].astype(np.float32)
        documents, positions = rows.documents[:, :-1].copy(), rows.positions[:, :-1].copy()
        if not self.separate:
            documents = np.minimum(documents, 1)
            positions[:] = np.arange(positions.shape[1])
        return batch_of(
            numbers=numbers,
            tokens=rows.tokens[:, :-1].copy(),
            positions=positions,
            documents=documents if self.one_way else see(documents),
            targets=rows.tokens[:, 1:].copy(),
            weights=weights,
            causal=np.ones(len(numbers), dtype=bool) if self.one_way else None,
        )


class OneTerm(Objective):
    """An objective with a network, its token head, and one term: the loss of the predicted tokens."""

    teacher: Teacher | None = None  # learn its scores too; validation uses the loss of the tokens only
    _teaching: tuple[OneTerm, ...] = ()  # a tuple hides its networks from torch: they are not trained or saved

    def __init__(self, term: str, model: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.model_settings, self.vocabulary = model, vocabulary
        self.model = model.build(vocabulary)
        self.head = model.token_head(self.model)
        self.term, self.weights, self.guesses = term, {term: 1.0}, term
        number_layers(self)

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: predictions(batch)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: self._loss(self._loss_inputs(batch), batch)}

    def _loss(self, inputs: tuple[Any, ...], batch: Batch) -> Tensor:
        """Return the loss of the tokens, mixed with the distance to the teacher's scores if there is a teacher."""
        if self.teacher is None:
            return token_loss(*inputs)
        with torch.no_grad():
            teaching = self._teaching[0]._loss_inputs(batch)
        return taught_loss(self.teacher, inputs, teaching)

    def learn_from(self, networks: Objective, location: str) -> None:
        """Freeze the networks of a teacher and learn from them; raise an error if their objective is another."""
        if not isinstance(networks, OneTerm) or networks.term != self.term:
            raise RecipeError(location, f"found a model of {type(networks).__name__}", f"one of {self.term}")
        self._teaching = (networks.requires_grad_(False).eval(),)

    def scored(self, length: int) -> int:
        """Return how many tokens of a row of this length the head scores."""
        return length

    def teaching_flops(self, rows: int, length: int) -> float:
        cost = 0.0
        for network in self._teaching:
            settings = network.model_settings
            cost += length * settings.flops(length) + self.scored(length) * settings.head_flops(self.vocabulary)
        return rows * cost

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        inputs = self._loss_inputs(batch)
        return {self.term: token_loss(*inputs), f"{self.term}_right": token_hits(*inputs)}

    def _loss_inputs(self, batch: Batch) -> tuple[Any, ...]:
        """Return the arguments of `nn.loss.token_loss`."""
        raise NotImplementedError


O_co = TypeVar("O_co", bound=Objective, covariant=True)
O = TypeVar("O", bound=Objective)  # noqa: E741


class Buildable(Protocol[O_co]):
    """Settings of an objective or a task."""

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> O_co:
        """Return the networks for these model settings."""


def fresh(objective: ObjectiveSettings, model: ModelSettings, tokenizer: Tokenizer, seed: int) -> Objective:
    """Return the networks of a recipe before the first step, the same for the same seed and version of torch."""
    torch.manual_seed(chance.key("weights", seed) >> 1)
    return built(objective, model, tokenizer)


def built(settings: Buildable[O], model: ModelSettings, tokenizer: Tokenizer) -> O:
    """Return the networks of an objective or task; raise an error if the class is incomplete."""
    objective, location = settings.build(model, tokenizer), f"`{kind_of(settings)}`"
    if not isinstance(objective, Objective):
        problem = f"build() gives {with_article(type(objective).__name__)}"
        raise RecipeError(location, problem, "an ordsmed.learn.objective.Objective", page("objectives"))
    kind = type(objective).__name__
    check_finished("objectives", type(objective), kind, location)
    for old, now in RENAMED.items():
        if hasattr(objective, old):  # a user's class: the old method would never be called
            raise RecipeError(location, f"{kind} has `{old}`", f"`{now}`, as it is called now", page("objectives"))
    for name in ("model", "model_settings", "weights"):
        if getattr(objective, name, None) in (None, {}):
            raise RecipeError(location, f"{kind} has no `self.{name}`", "it, set in __init__", page("objectives"))
    for part in map(type, objective.children()):
        check_finished("models", part, part.__name__, f"`{part.__module__}`")
    number_layers(objective)
    return objective


class ObjectiveSettings(Protocol):
    """The interface of the settings in each file of objectives/.

    Optional class attributes: VERBS, the commands that apply its models to a text (fill, generate). CHANGES, the
    settings that a phase may change; the rows read them, or the networks read them from `settings` during training.
    `unfinished`, the name of a setting with which no run can end, or "". COMPARABLE = False: validation losses of two
    steps cannot be compared, because the task changes as the networks learn.
    """

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> Rows:
        """Return the rows of a phase, addressed by their numbers.

        Args:
            stores: tokenized corpora.
            weights: how often rows are drawn from each store, relative to each other.
            tokenizer: the stores' tokenizer.
            phase: length, packing and batch of the rows.
            key: the key of the random numbers; pass it on to everything that draws.
            stretch: the part of the run that the phase covers, for settings that change over the run.

        Returns:
            An object with `len()`, `batch(numbers)` and `spans(numbers)`.
        """

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Objective:
        """Return the networks, with fresh weights.

        Args:
            model: settings of the network, from the recipe's [model].
            tokenizer: its vocabulary and special tokens.

        An objective with further networks also offers `others(model)`, their settings. An objective whose rows need
        special tokens offers `check_tokenizer(tokenizer)`, which raises an error early if one is missing.
        """


def need(tokenizer: Tokenizer, *roles: str, by: str) -> None:
    """Raise an error if a special token that an objective needs is missing; `by` is the name of the objective."""
    for role in roles:
        if getattr(tokenizer, role) is None:
            wanted = f"{' '.join(SIGNS[r] for r in roles)}, as {by} needs"
            raise RecipeError("tokenizer", f"has no {role} token", wanted)


def end_sign(tokenizer: Tokenizer, *, by: str) -> int:
    """Return the token between documents; raise an error if there is none. `by` is the name of the objective."""
    end = tokenizer.end if tokenizer.end is not None else tokenizer.stop
    if end is None:
        raise RecipeError("tokenizer", "has no end sign", f"<|endoftext|>, </s> or [SEP], as {by} needs")
    return end


def at_positions(hidden: Tensor, batch: Batch) -> Tensor:
    """Return the hidden states at the predicted positions, [B, T, D] -> [B * P, D]."""
    assert batch.predicted_positions is not None
    first = torch.arange(len(hidden), device=hidden.device)[:, None] * hidden.shape[1]
    return hidden.flatten(0, 1).index_select(0, (batch.predicted_positions + first).flatten())


def masked(head: TokenHead, hidden: Tensor, batch: Batch, vocabulary: int) -> LossInputs:
    """Return the arguments of `nn.loss.token_loss` for the predicted positions."""
    states = head.transform(at_positions(hidden, batch))
    return states, head.words.weight, head.bias, batch.targets, batch.weights, vocabulary


def counted(
    head: TokenHead, hidden: Tensor, targets: Tensor, weights: Tensor, vocabulary: int, *, at: Tensor | None = None
) -> tuple[Any, ...]:
    """Return the arguments of `nn.loss.token_loss` for the positions with a weight, so the head computes no others.

    `at`: these positions in the flattened batch, if the batch lists them.
    """
    at = torch.nonzero(weights.flatten() > 0).squeeze(1) if at is None else at
    states = head.transform(hidden.flatten(0, 1).index_select(0, at))
    return states, head.words.weight, head.bias, targets.flatten()[at], weights.flatten()[at], vocabulary


def predictions(batch: Batch) -> Tensor:
    """Return the sum of the weights: the number of predicted positions, if all weights are 0 or 1."""
    return batch.weights.sum(dtype=torch.float64)

"""What an objective offers: it owns its networks and returns sums; the loop divides once, by global counts.

rows(...)  CPU half, numpy: numbers -> Batch          build(...)  device half: Batch -> {term: summed loss}
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
# what a network of an objective is made of
ROLES = ("model", "head", "pair", "detect", "top", *TASK_CLASSES, "joint", "projection")
WHILE_LEARNING = ("ahead.",)  # weights that nothing needs but their own training: others begin without them
LossInputs = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, int]
RENAMED = {"judge": "validate", "told": "describe", "heed": "update_settings"}  # methods that had another name


@dataclass(frozen=True)
class Network:
    """One network of an objective with its heads: what is exported as a folder, and filled from one."""

    settings: ModelSettings
    modules: dict[str, nn.Module]  # by their roles
    labels: tuple[str, ...] = ()  # of a task: the names of the classes or tags
    number: bool = False  # of a task: a number is told, not a class

    def tensors(self) -> dict[str, Any]:
        """Its tensors by `role.name`, each once."""
        return own_tensors(nn.ModuleDict(self.modules))


class Objective(nn.Module):
    """What is learned: the networks, and the loss as a sum of weighted terms.

    `weights`, `count(batch)` and `forward(batch)` have the same keys, the terms. A term's loss is its sum over the
    whole step divided by its count over the whole step; the loss is the sum of the terms by their weights.
    """

    model: Model  # the network that is kept: exported, fine-tuned, served
    model_settings: ModelSettings
    weights: dict[str, float]  # term -> its factor in the loss
    state: dict[str, Tensor]  # what must survive a restart beside parameters; usually empty
    one_way: bool = False  # are rows read from left to right by a network that can see both sides?
    shifted: bool = False  # does it fill a gap from the state of the place before it?
    guesses: str = ""  # the term whose loss compares with guessing words by frequency
    compares: bool = (
        False  # does an example's loss depend on all others of the step? Then `view` and `compare` are asked
    )

    def __init__(self) -> None:
        super().__init__()
        self.state = {}

    def count(self, batch: Batch) -> dict[str, Tensor]:
        """The number of predictions of each term in a batch, computed without the network.

        Args:
            batch: the rows of one micro-batch, on the CPU.

        Returns:
            Term -> the number, a scalar.
        """
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The summed loss of each term in a batch.

        Args:
            batch: the rows of one micro-batch, on the device.

        Returns:
            Term -> the SUM of the losses of its predictions, a scalar with a gradient; not the mean.
        """
        raise NotImplementedError

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Sums for validation, computed without a gradient; by default the losses alone.

        Args:
            batch: the rows of one micro-batch, on the device.

        Returns:
            Term -> the summed loss, as `forward`; `<term>_right` -> the number of right predictions, where it is known.
            Any other `<name>` -> a sum, together with `<name>_count`, the number that it is divided by.
        """
        losses: dict[str, Tensor] = self(batch)
        return losses

    measures: tuple[str, ...] = ()  # the keys of `derived`

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        """Measures that are computed from a validation's means, such as a perplexity.

        Args:
            means: the keys of `validate` -> means over the validation; `validation` -> the weighted loss.

        Returns:
            Measure -> its value, for each name in `measures`.
        """
        return {}

    def guessing(self, means: dict[str, float], loss: float, right: float) -> dict[str, float]:
        """The baseline: scores of guessing by token frequency.

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
        """FLOPs of one training step: 2 x multiply-adds, forward and backward (twice the forward pass).

        Args:
            rows: rows of the step.
            length: tokens of a row.

        Returns:
            By default those of `model` and, if there is one, of `head` at every position.
        """
        settings = self.model_settings
        head = settings.head_flops(self.model.words.num_embeddings) if hasattr(self, "head") else 0.0
        return 3.0 * rows * length * float(settings.flops(length) + head)

    def begin(self, first: int, count: int) -> None:
        """Prepare `state` for this process's rows; called when a phase begins.

        Args:
            first: this process's first row of each step.
            count: this process's number of rows of each step.
        """

    def take_settings(self, like: Objective) -> None:
        """Be as an objective of the same networks is: settings of all its parts, weights of terms, rates of dropout."""
        modules = dict(self.named_modules())
        for name, module in like.named_modules():
            if isinstance(module, Dropout):
                modules[name].rate = module.rate
            for key in [key for key in vars(module) if key.endswith("settings")]:
                setattr(modules[name], key, vars(module)[key])
        self.weights = dict(like.weights)

    def describe(self, device: str, precision: str) -> list[str]:
        """Lines for the log on how it is computed on this device, such as a kernel that is used or not."""
        return []

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        """Usage example for the model card.

        Args:
            name: the model's folder.
            tokenizer: the model's tokenizer.
            learned: the objective's settings, as in the recipe.
        """
        if self.model_settings.capabilities.causal:
            return generation(name)
        return filling(name, tokenizer.piece(tokenizer.mask) if tokenizer.mask is not None else SIGNS["mask"])

    def networks(self) -> dict[str, Network]:
        """What is exported: "" -> the network that is kept, other names -> further networks (a generator)."""
        modules = dict(self.named_children())
        return {"": Network(self.model_settings, {role: modules[role] for role in ROLES if role in modules})}

    def exported(self) -> dict[str, Network]:
        """Folder of an export -> its network; by default the same as `networks`, one folder each."""
        return self.networks()


class Comparing:
    """What an objective offers beside whose losses compare the examples of a whole step with one another."""

    def view(self, batch: Batch) -> dict[str, Tensor]:
        """What others of the step are compared with, of one that `compares`; computed without a gradient.

        Args:
            batch: the rows of one micro-batch, on the device.

        Returns:
            Name -> a row an example, in 32 bits or more.
        """
        raise NotImplementedError

    def compare(self, views: dict[str, Tensor], micro_batches: Sequence[slice]) -> None:
        """See the whole step; then `forward` is asked for each micro-batch of this process in turn.

        Args:
            views: of all examples of the step, over micro-batches and processes, in the order of their numbers.
            micro_batches: which of them are those of each one of this process.
        """
        raise NotImplementedError


class CorruptedRows:
    """Rows that are `plain` ones until something in them is hidden or replaced."""

    plain: PackedRows | LineRows | PairRows

    def __len__(self) -> int:
        return len(self.plain)

    def spans(self, numbers: Ints) -> list[Span]:
        return self.plain.spans(numbers)


class CausalRows(StreamRows):
    """Rows of running text and the same text one token on."""

    def __init__(
        self, stores: Sequence[Store], weights: Sequence[float], end: int, phase: Phase, *key: object,
        separate: bool = True, one_way: bool = False,
    ) -> None:  # fmt: skip
        """`one_way`: the network could see both sides, so rows say that they are read from left to right."""
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
            numbers=numbers, tokens=rows.tokens[:, :-1].copy(), positions=positions,
            documents=documents if self.one_way else see(documents), targets=rows.tokens[:, 1:].copy(), weights=weights,
            causal=np.ones(len(numbers), dtype=bool) if self.one_way else None,
        )  # fmt: skip


class OneTerm(Objective):
    """A network and its token head, and one term: the loss of predicted tokens."""

    teacher: Teacher | None = None  # whose scores are learned too; a validation has the loss of the tokens alone
    _teaching: tuple[OneTerm, ...] = ()  # its networks, in a tuple: they neither learn nor are saved

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
        """That of the tokens, and of the distance to a teacher's scores, if there is one."""
        if self.teacher is None:
            return token_loss(*inputs)
        with torch.no_grad():
            teaching = self._teaching[0]._loss_inputs(batch)
        return taught_loss(self.teacher, inputs, teaching)

    def learn_from(self, networks: Objective, place: str) -> None:
        """Let the teacher's networks teach; refused are those of another objective."""
        if not isinstance(networks, OneTerm) or networks.term != self.term:
            raise RecipeError(place, f"found a model of {type(networks).__name__}", f"one of {self.term}")
        self._teaching = (networks.requires_grad_(False).eval(),)

    def scored(self, length: int) -> int:
        """How many tokens of a row of this length the head is asked about."""
        return length

    def teaching_flops(self, rows: int, length: int) -> float:
        """Of the teacher's forward pass in a step, if it is there."""
        cost = 0.0
        for network in self._teaching:
            settings = network.model_settings
            cost += length * settings.flops(length) + self.scored(length) * settings.head_flops(self.vocabulary)
        return rows * cost

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        inputs = self._loss_inputs(batch)
        return {self.term: token_loss(*inputs), f"{self.term}_right": token_hits(*inputs)}

    def _loss_inputs(self, batch: Batch) -> tuple[Any, ...]:
        """The arguments of `nn.loss.token_loss`."""
        raise NotImplementedError


O_co = TypeVar("O_co", bound=Objective, covariant=True)
O = TypeVar("O", bound=Objective)  # noqa: E741


class Buildable(Protocol[O_co]):
    """Settings of an objective or a task."""

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> O_co:
        """The networks, for these model settings."""


def fresh(objective: ObjectiveSettings, model: ModelSettings, tokenizer: Tokenizer, seed: int) -> Objective:
    """The networks of a recipe before their first step: the same for the same seed and version of torch."""
    torch.manual_seed(chance.key("weights", seed) >> 1)
    return built(objective, model, tokenizer)


def built(settings: Buildable[O], model: ModelSettings, tokenizer: Tokenizer) -> O:
    """The networks of an objective or task; one that has not said all it must is refused."""
    objective, place = settings.build(model, tokenizer), f"`{kind_of(settings)}`"
    if not isinstance(objective, Objective):
        problem = f"build() gives {with_article(type(objective).__name__)}"
        raise RecipeError(place, problem, "an ordsmed.learn.objective.Objective", page("objectives"))
    kind = type(objective).__name__
    check_finished("objectives", type(objective), kind, place)
    for old, now in RENAMED.items():
        if hasattr(objective, old):  # one of somebody's own, which nobody would call
            raise RecipeError(place, f"{kind} has `{old}`", f"`{now}`, as it is called now", page("objectives"))
    for name in ("model", "model_settings", "weights"):
        if getattr(objective, name, None) in (None, {}):
            raise RecipeError(place, f"{kind} has no `self.{name}`", "it, set in __init__", page("objectives"))
    for part in map(type, objective.children()):
        check_finished("models", part, part.__name__, f"`{part.__module__}`")
    number_layers(objective)
    return objective


class ObjectiveSettings(Protocol):
    """What every file in objectives/ offers.

    VERBS, where it says so, are the commands that ask its models about a text: fill, generate. CHANGES: the settings
    that a phase may change, which the rows read, or the networks from `settings` as they go.
    `unfinished`: the setting, if any, with which no run can end. COMPARABLE = False: validation losses of two steps
    cannot be compared, because the task changes as the networks learn.
    """

    def rows(
        self, stores: Sequence[Store], weights: Sequence[float], tokenizer: Tokenizer, phase: Phase, *key: object,
        stretch: Stretch = OVER,
    ) -> Rows:  # fmt: skip
        """The rows of a phase, by their numbers.

        Args:
            stores: tokenized corpora.
            weights: how often rows are drawn from each store, relative to each other.
            tokenizer: the stores' tokenizer.
            phase: length, packing and batch of the rows.
            key: what their randomness is keyed by: pass it on to what draws.
            stretch: which part of the run the phase is, for settings that change over the run.

        Returns:
            An object with `len()`, `batch(numbers)` and `spans(numbers)`.
        """

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Objective:
        """The networks, with fresh weights.

        Args:
            model: settings of the network, from the recipe's [model].
            tokenizer: its vocabulary and special tokens.

        An objective with more networks than the model also offers `others(model)`, the settings of those; one whose
        rows need signs `check_tokenizer(tokenizer)`, which refuses a tokenizer without them before anything is made.
        """


def need(tokenizer: Tokenizer, *roles: str, by: str) -> None:
    """Refuse a tokenizer without the special tokens that an objective puts into its rows; `by`: its name."""
    for role in roles:
        if getattr(tokenizer, role) is None:
            wanted = f"{' '.join(SIGNS[r] for r in roles)}, as {by} needs"
            raise RecipeError("tokenizer", f"has no {role} token", wanted)


def end_sign(tokenizer: Tokenizer, *, by: str) -> int:
    """What stands between documents; refused is a tokenizer without one; `by`: the name of the objective."""
    end = tokenizer.end if tokenizer.end is not None else tokenizer.stop
    if end is None:
        raise RecipeError("tokenizer", "has no end sign", f"<|endoftext|>, </s> or [SEP], as {by} needs")
    return end


def at_positions(hidden: Tensor, batch: Batch) -> Tensor:
    """The hidden states at the predicted positions, [B, T, D] -> [B * P, D]."""
    assert batch.predicted_positions is not None
    first = torch.arange(len(hidden), device=hidden.device)[:, None] * hidden.shape[1]
    return hidden.flatten(0, 1).index_select(0, (batch.predicted_positions + first).flatten())


def masked(head: TokenHead, hidden: Tensor, batch: Batch, vocabulary: int) -> LossInputs:
    """The arguments of `nn.loss.token_loss`, of the predicted positions."""
    states = head.transform(at_positions(hidden, batch))
    return states, head.words.weight, head.bias, batch.targets, batch.weights, vocabulary


def counted(
    head: TokenHead, hidden: Tensor, targets: Tensor, weights: Tensor, vocabulary: int, *, at: Tensor | None = None
) -> tuple[Any, ...]:
    """The arguments of `nn.loss.token_loss`, of the positions with a weight alone, so that the head computes no others.

    `at`: these positions, rows laid end to end, where the batch lists them.
    """
    at = torch.nonzero(weights.flatten() > 0).squeeze(1) if at is None else at
    states = head.transform(hidden.flatten(0, 1).index_select(0, at))
    return states, head.words.weight, head.bias, targets.flatten()[at], weights.flatten()[at], vocabulary


def predictions(batch: Batch) -> Tensor:
    """The number of positions of a batch that are predicted: those with a weight."""
    return batch.weights.sum(dtype=torch.float64)

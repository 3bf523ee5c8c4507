"""The interface of an objective: its networks, and summed losses, which the training loop divides by global counts.

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
from ordsmed.data.rows import Frame, PackedRows, Rows, Span, StreamRows, see
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
WHILE_LEARNING = ("ahead.",)  # prefixes of weights that only training uses; a model folder need not have them
LossInputs = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, int]
RENAMED = {"judge": "validate", "told": "describe", "heed": "update_settings"}  # old name of a method -> new name


@dataclass(frozen=True)
class Network:
    """A network of an objective with its heads, which is exported to and loaded from one folder."""

    settings: ModelSettings
    modules: dict[str, nn.Module]  # by role
    labels: tuple[str, ...] = ()  # of a task: the names of its classes or tags
    number: bool = False  # of a task: whether it predicts a number

    def tensors(self) -> dict[str, Any]:
        """Return the tensors by `role.name`; a shared tensor appears once."""
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
    one_way: bool = False  # whether a bidirectional network reads rows from left to right
    shifted: bool = False  # whether a masked token is predicted from the state of the position before it
    guesses: str = ""  # the term whose loss is compared with guessing tokens by frequency
    compares: bool = False  # whether losses compare the examples of a step (see `Comparing`)

    def __init__(self) -> None:
        super().__init__()
        self.state = {}

    def count(self, batch: Batch) -> dict[str, Tensor]:
        """Return term -> number of its predictions (a scalar) in a micro-batch on the CPU, without the network."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return term -> SUM (not mean) of the losses of its predictions in a micro-batch, a scalar with a gradient."""
        raise NotImplementedError

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return sums over a micro-batch for validation; by default only the losses. Called without gradients.

        Returns:
            Term -> the summed loss, as `forward`; optionally `<term>_right` -> the number of right predictions. Any
            other `<name>` -> a sum, together with `<name>_count`, the number that it is divided by.
        """
        losses: dict[str, Tensor] = self(batch)
        return losses

    measures: tuple[str, ...] = ()  # the keys of `derived`

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        """Return the `measures`, such as a perplexity, computed from a validation's means.

        Args:
            means: the keys of `validate` -> means over the validation; `validation` -> the weighted loss.
        """
        return {}

    def guessing(self, means: dict[str, float], loss: float, right: float) -> dict[str, float]:
        """Return the scores of the baseline that guesses by token frequency.

        Args:
            means: the validation's means.
            loss: the mean loss of predicting each token by its frequency.
            right: the accuracy of always predicting the most frequent token.

        Returns:
            Scores of guessing, keyed like the validation's means; keys that have no baseline are left out.
        """
        total = {"validation": loss} if len(self.weights) == 1 else {}
        return {**total, self.guesses: loss, f"{self.guesses}_right": right} if self.guesses else {}

    def flops(self, rows: int, length: int) -> float:
        """Return the FLOPs of a training step, 2 for a multiply-add: the forward and the backward pass (twice as many).

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
        """Prepare `state` at the start of a phase; this process reads `count` rows of each step, from row `first`."""

    def take_settings(self, like: Objective) -> None:
        """Copy the settings of an objective with the same networks: of modules, weights of terms, dropout."""
        modules = dict(self.named_modules())
        for name, module in like.named_modules():
            if isinstance(module, Dropout):
                modules[name].rate = module.rate
            for key in [key for key in vars(module) if key.endswith("settings")]:
                setattr(modules[name], key, vars(module)[key])
        self.weights = dict(like.weights)

    def describe(self, device: str, precision: str) -> list[str]:
        """Return lines for the log about how the loss is computed, such as which kernels are used."""
        return []

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        """Return the usage for the card of the model folder `name`; `learned` are the settings of the objective."""
        if self.model_settings.capabilities.causal:
            return generation(name)
        return filling(name, tokenizer.piece(tokenizer.mask) if tokenizer.mask is not None else SIGNS["mask"])

    def networks(self) -> dict[str, Network]:
        """Return the networks by name: "" is the main network, others are further ones such as a generator."""
        modules = dict(self.named_children())
        return {"": Network(self.model_settings, {role: modules[role] for role in ROLES if role in modules})}

    def exported(self) -> dict[str, Network]:
        """Return the networks that an export writes, by folder; by default one folder for each of `networks`."""
        return self.networks()


class Comparing:
    """The additional interface of an objective whose losses compare the examples of a complete step.

    In each step the training loop calls `view` for all micro-batches, `compare`, and then `forward` for each of them.
    """

    def view(self, batch: Batch) -> dict[str, Tensor]:
        """Return the tensors that examples are compared by, with a row per example, in 32 bits or more."""
        raise NotImplementedError

    def compare(self, views: dict[str, Tensor], micro_batches: Sequence[slice]) -> None:
        """Receive the views of all examples of the step, over all processes, in the order of their numbers.

        `micro_batches` are the rows of each micro-batch of this process.
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
        """Args:
        separate: hide a row's earlier documents from later ones.
        one_way: mark all rows as causal, for a bidirectional network.
        """
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

    teacher: Teacher | None = None  # distillation; not part of the validation loss
    _teaching: tuple[OneTerm, ...] = ()  # in a tuple, so that torch does not register, train or save the teacher

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
        """Freeze a teacher's networks and learn from them; raise an error if they have another objective."""
        if not isinstance(networks, OneTerm) or networks.term != self.term:
            raise RecipeError(location, f"found a model with {type(networks).__name__}", f"one trained by {self.term}")
        self._teaching = (networks.requires_grad_(False).eval(),)

    def scored(self, length: int) -> int:
        """Return the number of positions of a row that the head scores."""
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
    """Return a recipe's networks with initial weights, which depend only on the seed and the version of torch."""
    torch.manual_seed(chance.key("weights", seed) >> 1)
    return built(objective, model, tokenizer)


def built(settings: Buildable[O], model: ModelSettings, tokenizer: Tokenizer) -> O:
    """Return the networks of an objective or task; raise an error if the class is incomplete."""
    objective, location = settings.build(model, tokenizer), f"`{kind_of(settings)}`"
    if not isinstance(objective, Objective):
        problem = f"build() returns {with_article(type(objective).__name__)}"
        raise RecipeError(location, problem, "an ordsmed.learn.objective.Objective", page("objectives"))
    kind = type(objective).__name__
    check_finished("objectives", type(objective), kind, location)
    for old, now in RENAMED.items():
        if hasattr(objective, old):  # in a user's class, where it would never be called
            raise RecipeError(location, f"{kind} has `{old}`", f"its new name `{now}`", page("objectives"))
    for name in ("model", "model_settings", "weights"):
        if getattr(objective, name, None) in (None, {}):
            raise RecipeError(location, f"{kind} has no `self.{name}`", "one set in __init__", page("objectives"))
    for part in map(type, objective.children()):
        check_finished("models", part, part.__name__, f"`{part.__module__}`")
    number_layers(objective)
    return objective


class ObjectiveSettings(Protocol):
    """The interface of the settings in each file of objectives/.

    Optional attributes:
        VERBS: the commands that apply its models to a text (fill, generate).
        CHANGES: the settings that a phase may change; rows and networks read them from `settings`.
        COMPARABLE: False if validation losses of different steps cannot be compared, because the task changes.
        unfinished: the name of a setting with which the last phase of a run is refused, or "".
        others(model): the settings of further networks.
        check_tokenizer(tokenizer): raises an error if a special token is missing.
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
            key: the key of all random numbers.
            stretch: the part of the run that the phase covers, for settings that change over the run.

        Returns:
            An object with `len()`, `batch(numbers)` and `spans(numbers)`.
        """

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> Objective:
        """Return the networks with initial weights; `model` are the settings from the recipe's [model]."""


def need(tokenizer: Tokenizer, *roles: str, by: str) -> None:
    """Raise an error if the tokenizer has no special token for one of `roles`, which the objective `by` needs."""
    for role in roles:
        if getattr(tokenizer, role) is None:
            wanted = f"{' '.join(SIGNS[r] for r in roles)}, as {by} needs"
            raise RecipeError("tokenizer", f"has no {role} token", wanted)


def frame_of(phase: Phase, tokenizer: Tokenizer) -> Frame:
    """Return the length and special tokens of a phase's rows; raise an error if there is no room for text."""
    frame = Frame(phase.length, tokenizer.start, tokenizer.stop, tokenizer.pad or 0)
    if phase.length <= frame.joint:
        problem = f"found {phase.length}, of which {frame.joint} are special tokens"
        raise RecipeError("phase.length", problem, f"{frame.joint + 1} or more")
    return frame


def end_token(tokenizer: Tokenizer, *, by: str) -> int:
    """Return the token between documents; raise an error, which names the objective `by`, if there is none."""
    end = tokenizer.end if tokenizer.end is not None else tokenizer.stop
    if end is None:
        raise RecipeError("tokenizer", "has no end token", f"<|endoftext|>, </s> or [SEP], as {by} needs")
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
    """Return the arguments of `nn.loss.token_loss` for the positions with a weight; the head computes only these.

    `at`: these positions in the flattened batch, if they are known.
    """
    at = torch.nonzero(weights.flatten() > 0).squeeze(1) if at is None else at
    states = head.transform(hidden.flatten(0, 1).index_select(0, at))
    return states, head.words.weight, head.bias, targets.flatten()[at], weights.flatten()[at], vocabulary


def predictions(batch: Batch) -> Tensor:
    """Return the sum of the weights: the number of predicted positions, if all weights are 0 or 1."""
    return batch.weights.sum(dtype=torch.float64)

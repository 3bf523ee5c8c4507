"""Initial weights for a model with another vocabulary: word tables are matched token by token, all else is copied.

    old table [V, E] -> rows of tokens in both | means of the old tokens that spell a new one | random rows -> [W, E]

The tensors with a row for each token are found by building the networks with one more token. This also covers tied and
separate tables, biases, generators and user-defined families.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import say
from ordsmed.learn.objective import Objective, built
from ordsmed.nn.model import ModelSettings, own_tensors
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.text.surfaces import Descent, descent
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import foreign, weights
from ordsmed.weights.origin import Origin

Vocabulary = Literal["same", "transplant", "fresh"]


@dataclass(frozen=True)
class Beginning:
    """Where the initial weights of a training come from."""

    checkpoint: tuple[Path, dict[str, Any]] | None = None  # its optimizer moments are used as well
    descent: Descent | None = None  # how the new vocabulary maps to the old one
    fresh: dict[str, Tensor] = field(default_factory=dict)  # random tables that the mapped ones replaced


def begin(
    objective: Objective,
    origin: Origin,
    learned: Any,
    network: ModelSettings,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    seed: int,
) -> Beginning:
    """Load the weights of a model into new networks, as the recipe's `vocabulary` says."""
    if vocabulary == "same":
        return Beginning(origin.load_into(objective, tokenizer))
    if not origin.is_run and foreign.tokenizer_of(origin.folder) is None:
        problem = f"found {vocabulary}, but {origin.name} reads characters and has no tokens"
        raise RecipeError("vocabulary", problem, "same", "leave it out: such a model reads any word")
    old = origin.tokenizer()
    with torch.random.fork_rng(devices=[]):
        source = built(learned, network, _with_size(tokenizer, old.vocabulary))
    origin.load_into(source, old)
    stored, tensors = own_tensors(source), own_tensors(objective)
    tables = tables_of(learned, network, tokenizer)
    fresh = {name: tensors[name].detach().clone() for name in tables}
    sizes = f"vocabulary: {old.vocabulary:,} tokens became {tokenizer.vocabulary:,}"
    if vocabulary == "fresh":
        weights.fill(tensors, {**stored, **fresh}, origin.folder)
        say(f"{sizes}: all rows start from random weights")
        return Beginning(None, Descent({}, {}, list(range(tokenizer.vocabulary))))
    moved = descent(old, tokenizer)
    rows = {name: _table(stored[name].detach(), moved, chance.key("vocabulary", name, seed)) for name in tables}
    weights.fill(tensors, {**stored, **rows}, origin.folder)
    say(f"{sizes}: {moved.describe()}")
    return Beginning(None, moved, fresh)


def tables_of(learned: Any, network: ModelSettings, tokenizer: Tokenizer) -> list[str]:
    """Return the names of the tensors with a row for each token: those that grow with one more token."""
    with unfilled():
        plain, more = (
            own_tensors(built(learned, network, _with_size(tokenizer, tokenizer.vocabulary + n))) for n in (0, 1)
        )
    names = [name for name, tensor in plain.items() if tensor.shape != more[name].shape]
    for name in names:
        if more[name].shape != (len(plain[name]) + 1, *plain[name].shape[1:]):
            raise RecipeError(
                "vocabulary",
                f"{name} does not have a row for each token",
                "rows along its first dimension",
                "such a network cannot be moved to another vocabulary",
            )
    return names


def _with_size(tokenizer: Tokenizer, pieces: int) -> Tokenizer:
    sized = copy.copy(tokenizer)
    sized.vocabulary = pieces
    return sized


def _table(old: Tensor, moved: Descent, key: int) -> Tensor:
    """Return a table or bias for the new vocabulary, made from the old one.

    Rows of unrelated tokens are drawn from a normal distribution with the mean and deviation of the old rows.
    """
    rows = old.reshape(len(old), -1)
    count = len(moved.kept) + len(moved.spelled) + len(moved.new)
    table = rows.new_empty(count, rows.shape[1])
    if moved.kept:
        table[list(moved.kept)] = rows[list(moved.kept.values())]
    if moved.spelled:
        flat = [piece for pieces in moved.spelled.values() for piece in pieces]
        starts = torch.tensor([0, *(len(pieces) for pieces in moved.spelled.values())]).cumsum(0)[:-1]
        table[list(moved.spelled)] = torch.nn.functional.embedding_bag(torch.tensor(flat), rows, starts, mode="mean")
    if moved.new:
        draw = torch.randn(len(moved.new), rows.shape[1], generator=torch.Generator().manual_seed(key >> 1))
        table[moved.new] = rows.mean(0) + draw * rows.std(0, correction=0)
    return table.reshape(count, *old.shape[1:])

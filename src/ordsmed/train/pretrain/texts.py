"""Texts: the encoded text that a pretraining trains on, part of it held out for validation."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.data.encode import Encoded
from ordsmed.data.long_documents import LongDocuments
from ordsmed.data.rows import Rows
from ordsmed.data.store import Store
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.score.metrics import in_words, unigram_cross_entropy
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.job import Job
from ordsmed.train.mesh.precision import autocast
from ordsmed.train.pretrain.recipe import Pretraining

Stores = Sequence[Store | LongDocuments]
VALIDATION_ROWS = 32  # rows of a validation batch


@dataclass
class TextData:
    recipe: Pretraining
    encoded: list[Encoded]
    tokenizer: Tokenizer
    held_out: dict[int, Rows | None] = field(default_factory=dict)  # cache, by phase

    @staticmethod
    def of(recipe: Pretraining, encoded: list[Encoded]) -> TextData:
        return TextData(recipe, encoded, _tokenizer(recipe, encoded))

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.recipe.phase

    def read_in(self, index: int) -> dict[str, Encoded]:
        by_name = dict(zip(self.recipe.sources, self.encoded, strict=True))
        return {name: by_name[name] for name in self.recipe.data_of(index)}

    def stores(self, index: int) -> list[Store | LongDocuments]:
        """Return the training splits of a phase's data, restricted to long documents if the phase says so."""
        least = self.phases[index].min_length
        stores = [encoded.train for encoded in self.read_in(index).values()]
        return [LongDocuments.of(store, least) if least else store for store in stores]

    def tokens(self, index: int) -> dict[str, int]:
        """Return the available tokens of each of a phase's data; raise if one has none."""
        least = self.phases[index].min_length
        tokens = {name: store.token_count for name, store in zip(self.read_in(index), self.stores(index), strict=True)}
        if empty := [name for name, count in tokens.items() if not count]:
            more = f", and {many(len(empty) - 1, 'other')}" if empty[1:] else ""
            if not least:
                location = "data" if self.phases[index].data is None else f"phase[{index + 1}].data"
                raise RecipeError(location, f"found {empty[0]}{more}, without text", "stores with text", "leave it out")
            problem = f"found {least:,}, but {empty[0]} has no document of so many tokens{more}"
            remedy = "a smaller number, or name `data` of this phase without it"
            raise RecipeError(f"phase[{index + 1}].min_length", problem, "", remedy)
        return tokens

    def long_documents(self, index: int) -> str:
        least, encoded, stores = self.phases[index].min_length, self.read_in(index).values(), self.stores(index)
        documents, tokens = (sum(getattr(s.train, f"{noun}_count") for s in encoded) for noun in ("document", "token"))
        left = sum(store.document_count for store in stores), sum(store.token_count for store in stores)
        return (
            f"phase {index + 1}: {left[0]:,} of {many(documents, 'document')} have {least:,} tokens or more; they are "
            f"{left[1]:,} of {tokens:,} tokens"
        )

    def rows(self, index: int, before: int = 0) -> Rows:
        key, stretch = (self.recipe.seed, index + before), Stretch.of(self.phases, index)
        shares = list(self.recipe.data_of(index).values())
        return self._rows(index, self.stores(index), shares, self.phases[index], *key, stretch=stretch)

    def renew(self, job: Job, folder: Path, index: int, inner: int) -> int:
        return self.phases[index].steps

    def row_length(self, index: int) -> int:
        return self.phases[index].length

    def validation(self, index: int) -> Rows | None:
        """Return the held-out rows of a phase; they and their masks are the same every time."""
        if index not in self.held_out:
            self.held_out[index] = self._validation(index)
        return self.held_out[index]

    def validate(self, job: Job, index: int) -> dict[str, float]:
        rows = self.validation(index)
        return {} if rows is None else validate(job, rows, min(self.recipe.validation_rows, len(rows)))

    def validation_seconds(self, job: Job) -> float:
        rows = self.validation(len(job.phases) - 1)
        if rows is None:
            return 0.0
        count = min(self.recipe.validation_rows, len(rows))
        some = min(count, VALIDATION_ROWS)
        validate(job, rows, some)  # the first validation is slower
        began = time.perf_counter()
        validate(job, rows, some)
        return (time.perf_counter() - began) * count / some

    def describe(self, job: Job, scores: dict[str, float]) -> str:
        right = [f"{k.removesuffix('_right')} {v:.1%} right" for k, v in scores.items() if k.endswith("_right")]
        right += [f"{k} {in_words(k, v)}" for k, v in scores.items() if k in job.objective.measures]
        return f"validation loss {scores['validation']:.4f}" + (f" ({', '.join(right)})" if right else "")

    def facts(self) -> dict[str, Any]:
        return {name: source.facts for name, source in zip(self.recipe.sources, self.encoded, strict=True)}

    def unigram(self, index: int) -> tuple[float, float]:
        """Return the cross-entropy and the accuracy of guessing validation targets by token frequency.

        Frequencies are those of the training split; the accuracy is that of always guessing the most frequent token.
        """
        rows = self.validation(index)
        assert rows is not None
        encoded = self.read_in(index).values()
        counts = np.asarray(sum(np.asarray(source.train.counts) for source in encoded))
        batch = rows.batch(np.arange(min(self.recipe.validation_rows, len(rows))))
        targets = batch.targets[batch.weights > 0].numpy()
        if batch.words is not None:  # every sentence ends with a special token, one for each direction
            start, stop = self.tokenizer.start, self.tokenizer.stop
            counts[stop] += sum(source.train.sequence_count for source in encoded)
            targets[targets == start] = stop
        return unigram_cross_entropy(counts, targets), float((targets == counts.argmax()).mean())

    def _validation(self, index: int) -> Rows | None:
        encoded, weights = self.read_in(index).values(), self.recipe.data_of(index).values()
        pairs = [(e.validation, w) for e, w in zip(encoded, weights, strict=True)]
        held_out = [(store, w) for store, w in pairs if store is not None and store.token_count]
        if not held_out:
            return None
        phase = dataclasses.replace(self.phases[index], batch=VALIDATION_ROWS)
        return self._rows(index, [s for s, _ in held_out], [w for _, w in held_out], phase, "validation")

    def _rows(
        self, index: int, stores: Stores, shares: Sequence[float], phase: Phase, *key: object, stretch: Stretch = OVER
    ) -> Rows:
        objective = self.recipe.objective_of(index)
        like_stores = cast("Sequence[Store]", stores)  # long documents have the same interface
        return objective.rows(like_stores, shares, self.tokenizer, phase, *key, stretch=stretch)


def validate(job: Job, rows: Rows, count: int) -> dict[str, float]:
    """Return mean losses and accuracies over the first `count` rows, without dropout. Ranks share the batches."""
    ranks = job.ranks
    found: dict[str, Tensor] = {}
    job.objective.eval()
    with torch.no_grad(), autocast(job.recipe.layout, ranks.device):
        for numbers, mine in _validation_batches(job, count):
            batch = rows.batch(numbers)
            counts = {f"{term}_count": value for term, value in job.objective.count(batch).items()}
            sums = job.objective.validate(batch.to(ranks.device))
            for name, value in (*sums.items(), *counts.items()):
                own = value.double() * mine  # stays on the device, so nothing waits for it
                found[name] = found[name] + own if name in found else own
    job.objective.train()
    totals = ranks.total(torch.stack([value.cpu() for value in found.values()])).tolist()
    whole = dict(zip(found, totals, strict=True))
    counts_of = {name.removesuffix("_count"): whole.pop(name) for name in list(whole) if name.endswith("_count")}
    terms = job.objective.weights
    means = {}
    for name, value in whole.items():
        of = counts_of[name.removesuffix("_right")]
        if of or name in terms:  # a term without predictions has no mean
            means[name] = value / max(of, 1.0)
    validation = sum(weight * means[term] for term, weight in terms.items())
    return {"validation": validation, **means, **job.objective.derived(means)}


def _validation_batches(job: Job, count: int) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """Yield the row numbers of each batch, and whether they count: a rank without rows still joins collectives."""
    rank, world, firsts = job.ranks.data_rank, job.ranks.data_world, range(0, count, VALIDATION_ROWS)
    if job.objective.state:  # rows continue the rows before them: each rank follows its own
        numbers = np.array_split(np.arange(VALIDATION_ROWS), world)[rank]
        for first in firsts:
            yield first + (numbers if len(numbers) else np.zeros(1, np.int64)), len(numbers) > 0
        return
    for turn in range(rank, rank + len(firsts), world):
        first = firsts[min(turn, len(firsts) - 1)]
        yield np.arange(first, min(first + VALIDATION_ROWS, count)), turn < len(firsts)


def _tokenizer(recipe: Pretraining, data: Sequence[Encoded]) -> Tokenizer:
    tokenizer = data[0].tokenizer
    for name, encoded in zip(recipe.sources, data, strict=True):
        if encoded.facts["tokenizer"] != tokenizer.fingerprint:
            phase = next(index for index in range(len(recipe.phase)) if name in recipe.data_of(index))
            key = "data" if recipe.phase[phase].data is None else f"phase[{phase + 1}].data"
            problem = f"{encoded.folder} was encoded with another tokenizer"
            remedy = f"encode it again with `tokenizer={data[0].folder}`"
            raise RecipeError(key, problem, f"that of {data[0].folder}", remedy)
        encoded.tokenizer = tokenizer
    if recipe.tokenizer is not None:
        named = read_tokenizer(recipe.tokenizer)
        if named.fingerprint != tokenizer.fingerprint:
            problem = f"was encoded with tokenizer {tokenizer.fingerprint}, but the recipe names {named.fingerprint}"
            raise RecipeError(data[0].folder, problem, "", "encode again or change `tokenizer`")
    return tokenizer

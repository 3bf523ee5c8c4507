"""Features of pairs: every different text once, and batches of complete records.

    record 7: anchor 3, positive 19, negative 4  ->  texts 3, 19, 4 in rows, with the role of each in `labels`

If there are several data sets, all records of a step are from one of them: texts of other sets are too different to be
useful negatives. The sets alternate, so that up to any step each had its proportion of steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.data.batch import Batch
from ordsmed.data.examples import examples
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.data.order import draw
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.data.rows import Span
from ordsmed.data.windows import run
from ordsmed.learn.embedding.records import PairRecords

Loss = Literal["infonce", "cosent", "cosine_mse", "margin_mse", "kl"]
OF_SCORES: tuple[Loss, ...] = ("cosent", "cosine_mse", "margin_mse", "kl")
BY_SIMILARITY: tuple[Loss, ...] = ("cosent", "cosine_mse")  # the score is of a pair, so negatives are not read
ANCHOR, POSITIVE, NEGATIVE = 0, 1, 2  # role of a text in a batch: the first number of its label
COLUMNS = ("first", "members", "scores", "sets")  # fields of the records that features keep


def features(records: PairRecords, reader: TextReader, length: int, query: str, passage: str) -> Features:
    prompts = [query] * records.queries + [passage] * (len(records.texts) - records.queries)
    texts = [prompt + text for prompt, text in zip(prompts, records.texts, strict=True)]
    more = {name: getattr(records, name) for name in COLUMNS}
    return dataclasses.replace(examples([texts], length, reader, "text"), more=more)


def check_scores(records: PairRecords, loss: str) -> None:
    """Raise an error for records that a loss of scores cannot learn from; report negatives that it does not read."""
    gold = records.gold
    absent, largest = np.isnan(gold), int(np.abs(np.nan_to_num(gold)).argmax())
    bare = np.diff(records.first) < 3  # without negatives
    if absent.any():
        problem = f"{many(int(absent.sum()), 'pair')} without a score, this one first"
        wanted = f"a score for each, as {loss} learns"
        raise DataError(records.place(int(absent.argmax())), problem, wanted, "task.loss=infonce learns without")
    if loss == "cosine_mse" and abs(gold[largest]) > 1:
        problem, wanted = f"a score of {gold[largest]:g}", "scores from -1 to 1, as cosines are"
        raise DataError(records.place(largest), problem, wanted, "task.loss=cosent uses only their order")
    if loss in BY_SIMILARITY:
        if records.negatives:
            unused = many(records.negatives, "negative", "is", "are")
            say(f"{records.files[0]}: {unused} not used by {loss}, which learns only from pairs")
    elif bare.any():
        problem = f"{many(int(bare.sum()), 'pair')} without negatives, this one first"
        raise DataError(records.place(int(bare.argmax())), problem, f"negatives for each, as {loss} learns")
    elif loss == "kl" and np.isnan(np.delete(records.scores, records.first[:-1])).any():
        raise DataError(records.files[0], "one score for a positive and its negatives", "a list with the score of each")


class RecordRows(ExampleRows):
    """Batches of records by running numbers; the records of a step are all from one data set."""

    def __init__(
        self, features: Features, packing: Packing, *key: object, batch: int, proportions: Sequence[float] = ()
    ) -> None:
        super().__init__(features, packing, *key)
        self.first, self.members, self.scores, self.sets = (features.more[name] for name in COLUMNS)
        self.turns = Turns(np.diff(self.sets), batch, proportions)

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def tokens(self) -> float:
        return float(self.features.sizes[self.members].sum() / len(self))

    def batch(self, numbers: Ints) -> Batch:
        records = self._chosen(numbers)
        texts, labels = self.labels(records)
        sizes = self.first[records + 1] - self.first[records]
        batch = self.packing.batch(self.features, texts, np.repeat(numbers, sizes))
        steps = np.repeat(numbers // self.turns.batch, sizes)
        return dataclasses.replace(batch, labels=torch.from_numpy(np.column_stack([labels, steps])))

    def labels(self, records: Ints) -> tuple[Ints, NDArray[np.float64]]:
        """Return the texts of some records and, for each text, its role, its number and its score."""
        sizes = self.first[records + 1] - self.first[records]
        inside = run(sizes)
        at = np.repeat(self.first[records], sizes) + inside
        texts = self.members[at]
        return texts, np.stack([np.minimum(inside, NEGATIVE), texts, self.scores[at]], 1)

    def spans(self, numbers: Ints) -> list[Span]:
        chosen = self._chosen(numbers)
        sizes = np.add.reduceat(self.features.sizes[self.members], self.first[:-1])[chosen]
        return [Span(int(n), 0, int(e), 0, int(size)) for n, e, size in zip(numbers, chosen, sizes, strict=True)]

    def _chosen(self, numbers: Ints) -> Ints:
        chosen = np.empty_like(numbers)
        steps, inside = np.divmod(numbers, self.turns.batch)
        for step in np.unique(steps).tolist():
            here, (which, turn) = steps == step, self.turns.of(step)
            begin, end = self.sets[which : which + 2]
            key = (*self.key, which) if len(self.sets) > 2 else self.key
            chosen[here] = begin + draw(turn * self.turns.batch + inside[here], int(end - begin), *key)
        return chosen


class Turns:
    """The data set of each step, in proportion to `proportions` or to the sizes of the sets."""

    def __init__(self, sizes: Ints, batch: int, proportions: Sequence[float]) -> None:
        self.batch = batch
        shares: NDArray[np.float64] = np.asarray(proportions or sizes, np.float64)
        if len(shares) != len(sizes):
            wanted = f"{len(sizes)}, one for each data set (task.train)"
            raise RecipeError("task.proportions", f"found {many(len(shares), 'number')}", wanted)
        self.shares = shares / shares.sum()
        self.counts = np.zeros(len(sizes), np.int64)
        self.known: list[tuple[int, int]] = []

    def of(self, step: int) -> tuple[int, int]:
        """Return the data set of a step, the furthest below its proportion, and its number of earlier steps."""
        while len(self.known) <= step:
            which = int(np.argmax(self.shares * (len(self.known) + 1) - self.counts))
            self.known.append((which, int(self.counts[which])))
            self.counts[which] += 1
        return self.known[step]

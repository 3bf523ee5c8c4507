"""Windows: a text of any length as items that a model can read, every token scored once.

window 8, overlap of 3 tokens      0 1 2 3 4 5 6 7 8          the first window scores all of its tokens
                                         3 4 5 6 7 8 9 a b    the next ones score their last 3, from longer context
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from ordsmed.base.checks import or_more
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many
from ordsmed.measure.likelihood.items import Ints, Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import AnyRecord, Example, Finding, PairedExample, Record, perplexity, ratio_error

LONGEST = 1_024  # default tokens per window, as in GPT-2


@dataclass(frozen=True)
class Cutting:
    window: int
    step: int  # tokens scored by each window but the first
    by_line: bool = False  # does every window end with its line?
    last_full: bool = False  # is the last window extended to the left to full length?

    @staticmethod
    def of(scorer: Scorer, window: int, overlap: int, location: str) -> Cutting:
        """Return windows of the requested size, or the default; raise an error if the model cannot read them."""
        if scorer.by_line:
            if overlap:
                wanted = f"0, as `{scorer.way}` reads every line separately"
                raise RecipeError(f"{location}.overlap", f"found {overlap:,}", wanted)
            limit = scorer.max_tokens
        elif scorer.start_tokens is None or not scorer.chained:
            wrong = f"is read the way `{scorer.way}`, whose scores do not multiply to the probability of a text"
            raise RecipeError(location, wrong, "a causal model", _instead(scorer.way))
        else:
            limit = (
                scorer.max_tokens - 1 + len(scorer.start_tokens)
            )  # the last token of a window is predicted, not read
        if window > limit:
            raise RecipeError(f"{location}.window", f"found {window:,}", f"at most {limit:,}, the model's positions")
        chosen = window or min(limit, LONGEST)
        if overlap > chosen:
            raise RecipeError(f"{location}.overlap", f"found {overlap:,}", f"at most the window, {chosen:,}")
        return Cutting(chosen, overlap or chosen, scorer.by_line)

    def items(self, blocks: Iterable[Ints]) -> Iterator[Item]:
        """Yield the windows of a long text that comes in blocks; every token but the first is scored once."""
        buffer, done, size = np.zeros(0, np.int64), 0, self.window  # `done`: tokens scored
        for block in blocks:
            buffer = np.concatenate([buffer, block])
            while done + size < len(buffer):
                yield Item(
                    buffer[done + size - self.window : done + size + 1], first=self.window - size + 1, sign=False
                )
                done, size = done + size, self.step
                if (drop := done + size - (2 if self.last_full else 1) * self.window) > 0:
                    buffer, done = buffer[drop:], done - drop
        if done + 1 < len(buffer):
            begin = max(len(buffer) - 1 - self.window if self.last_full else done + size - self.window, 0)
            yield Item(buffer[begin:], first=done - begin + 1, sign=False)

    def __str__(self) -> str:
        if self.by_line:
            return f"line by line, of at most {self.window:,} words; words outside its vocabulary count as <UNK>"
        options = "consecutive within each page, the last one full" if self.last_full else ""
        options = options or "consecutive" if self.step == self.window else f"each {many(self.step, 'token')} further"
        return f"windows of {self.window:,} tokens, {options}"


@dataclass(frozen=True)
class ScoredWindow(Record):
    """Base class of records of a window: a subclass adds counts of the text, which are stored before the scores."""

    nats: float = field(default=0.0, kw_only=True)
    targets: int = field(default=0, kw_only=True)  # scored tokens

    def to_list(self) -> list[Any]:
        nats, targets, *counts = super().to_list()
        return [*counts, nats, targets]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Self:
        *counts, nats, targets = values
        return cls(*counts, nats=nats, targets=targets)


W = TypeVar("W", bound=ScoredWindow)


class WindowProbe:
    """Base class of probes whose records are windows."""

    window: int
    best: ClassVar[bool] = False
    by_windows: ClassVar[bool] = True  # compare only models whose tokenizers split texts the same way
    LEAST: ClassVar[dict[str, int]] = {"window": 0}

    def __post_init__(self) -> None:
        or_more(self, **self.LEAST)

    def as_line(self, record: ScoredWindow) -> dict[str, Any]:
        return {"nats": record.nats, "targets": record.targets}

    def compared(self, records: Sequence[ScoredWindow]) -> list[PairedExample]:
        """Return windows as paired examples, identified by their number and their count of scored tokens."""
        return [
            PairedExample(f"{number}:{row.targets}", "", {"nats_per_token": row.nats}, row.targets)
            for number, row in enumerate(records)
        ]


class WindowedProbe(WindowProbe):
    """Base class of probes that score running text from left to right."""

    overlap: int
    prefers: ClassVar[tuple[str, ...]] = ("causal",)
    LEAST: ClassVar[dict[str, int]] = {"overlap": 0, "window": 0}

    def cutting(self, scorer: Scorer, location: str = "") -> Cutting:
        return Cutting.of(scorer, self.window, self.overlap, location or kind_of(self))

    def fits(self, scorer: Scorer, location: str) -> str:
        return str(self.cutting(scorer, location))

    def record(self, example: Example, scores: list[Scores]) -> AnyRecord:
        return with_scores(example.about, scores)


def with_scores(counts: W, scores: Sequence[Scores]) -> W:
    nats, targets = -math.fsum(score.total for score in scores), sum(len(score.logs) for score in scores)
    return replace(counts, nats=nats, targets=targets)


def examples(cutting: Cutting, ids: Ints, location: str, counts: ScoredWindow) -> Iterator[Example]:
    """Yield the windows of a text; the first one's record holds the text's counts, the others' only zeros."""
    if len(ids) < 2:
        raise DataError(location, f"has {many(len(ids), 'token')}", "two or more, so that one is predicted")
    for number, item in enumerate(cutting.items([ids])):
        yield Example((item,), counts if number == 0 else type(counts).from_list([0] * len(counts.to_list())))


def _instead(way: str) -> str:
    if way in ("masked", "word"):
        return "`pseudo_perplexity` and `perplexity_bound` are for masked models"
    return "`minimal_pairs` works with models of every family"


def summed(records: Sequence[W]) -> W:
    columns = zip(*(record.to_list() for record in records), strict=True)
    return type(records[0]).from_list([math.fsum(column) for column in columns])


def perplexities(
    records: Sequence[ScoredWindow], units: dict[str, float], words: int, extra_nats: float = 0.0
) -> Finding:
    """Return the perplexity per token and per unit, and bits per byte, with bootstrap errors over windows.

    `units` holds the number of words or bytes, `words` the size of the vocabulary, and `extra_nats` the nats of unknown
    words, which no token accounts for.
    """
    nats, targets = [row.nats for row in records], [row.targets for row in records]
    total, count = math.fsum(nats), int(sum(targets))
    error = ratio_error(nats, targets)
    facts: dict[str, Any] = {"perplexity": perplexity(total / count)}
    errors = {"perplexity": facts["perplexity"] * error}
    for name, number in units.items():
        if name == "byte":
            facts["bits_per_byte"] = (total + extra_nats) / math.log(2) / number
            errors["bits_per_byte"] = error * count / math.log(2) / number
        else:
            facts[f"{name}_perplexity"] = perplexity((total + extra_nats) / number)
            errors[f"{name}_perplexity"] = facts[f"{name}_perplexity"] * error * count / number
    return Finding(facts | {"scored": count}, errors, guessing(count, total, units, words))


def guessing(count: int, total: float, units: dict[str, float], words: int) -> dict[str, float]:
    loss = math.log(words) * count
    even = {"perplexity": float(words)}
    return even | ({"bits_per_byte": loss / math.log(2) / units["byte"]} if "byte" in units else {})

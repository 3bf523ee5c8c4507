"""Windows: a text of any length as items that a model can read, every token scored once.

window 8, overlap of 3 tokens      0 1 2 3 4 5 6 7 8          the first scores all it holds
                                         3 4 5 6 7 8 9 a b    the next the last 3, behind what they overlap
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many
from ordsmed.measure.likelihood.items import Ints, Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, PairedExample, Record, perplexity, ratio_error

LONGEST = 1_024  # tokens of a window where none is asked for, as GPT-2's


@dataclass(frozen=True)
class Cutting:
    """How long texts are cut."""

    window: int
    step: int  # tokens that each window but the first scores
    by_line: bool = False  # does no window reach beyond a line?
    last_full: bool = False  # is the last one as long as the others, what it has read before scored no more?

    @staticmethod
    def of(scorer: Scorer, window: int, overlap: int, place: str) -> Cutting:
        """What is asked for, where this model can read it."""
        if scorer.by_line:
            if overlap:
                wanted = f"0: read the way `{scorer.way}`, every line of a text stands by itself"
                raise RecipeError(f"{place}.overlap", f"found {overlap:,}", wanted)
            most = scorer.room
        elif scorer.lead is None or not scorer.chained:
            wrong = f"is read the way `{scorer.way}`, whose scores do not multiply to the probability of a text"
            raise RecipeError(place, wrong, "a causal model", _instead(scorer.way))
        else:
            most = scorer.room - 1 + len(scorer.lead)  # the last token of a window is not read
        if window > most:
            raise RecipeError(f"{place}.window", f"found {window:,}", f"at most {most:,}, the model's positions")
        chosen = window or min(most, LONGEST)
        if overlap > chosen:
            raise RecipeError(f"{place}.overlap", f"found {overlap:,}", f"at most the window, {chosen:,}")
        return Cutting(chosen, overlap or chosen, scorer.by_line)

    def items(self, blocks: Iterable[Ints]) -> Iterator[Item]:
        """Of a long text that comes in blocks; all of its tokens but the first are scored, each once."""
        buffer, done, size = np.zeros(0, np.int64), 0, self.window  # `done` are scored, behind the first
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
            return f"line by line, of at most {self.window:,} words; what its lexicon does not know counts as <UNK>"
        how = "of each page, end to end, the last one full" if self.last_full else ""
        how = how or "end to end" if self.step == self.window else f"each {many(self.step, 'token')} further"
        return f"windows of {self.window:,} tokens, {how}"


class WindowedProbe:
    """What probes of running text have in common: it is cut into windows, and nats and targets of each are kept."""

    overlap: int
    window: int
    best: ClassVar[bool] = False
    by_windows: ClassVar[bool] = True  # of tokens: they are the same of models whose texts are cut alike
    prefers: ClassVar[tuple[str, ...]] = ("causal",)
    LEAST: ClassVar[dict[str, int]] = {"overlap": 0, "window": 0}

    def __post_init__(self) -> None:
        for name, least in self.LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted {least} or more")

    def cutting(self, scorer: Scorer, place: str = "") -> Cutting:
        """How long texts are cut for this model; a complaint where it cannot read them so."""
        return Cutting.of(scorer, self.window, self.overlap, place or kind_of(self))

    def fits(self, scorer: Scorer, place: str) -> str:
        """How texts are cut, in a line."""
        return str(self.cutting(scorer, place))

    def record(self, example: Example, scores: list[Scores]) -> Record:
        """What the first has that its text has, then nats and targets."""
        return [*example.about, -math.fsum(score.total for score in scores), sum(len(score.logs) for score in scores)]

    def as_line(self, record: Record) -> dict[str, Any]:
        """Of a window, for --each."""
        return {"nats": record[-2], "targets": record[-1]}

    def compared(self, records: list[Record]) -> list[PairedExample]:
        """What two models of one tokenizer are compared by: windows of the same tokens."""
        return paired_windows(records)


def paired_windows(records: Sequence[Record]) -> list[PairedExample]:
    """Windows by their numbers and how many tokens are scored in each."""
    return [
        PairedExample(f"{number}:{row[-1]}", "", {"nats_per_token": row[-2]}, row[-1])
        for number, row in enumerate(records)
    ]


def examples(cutting: Cutting, ids: Ints, place: str, *counts: Any) -> Iterator[Example]:
    """Windows of a text; the first one's record begins with the counts of the whole, the others' with zeros."""
    if len(ids) < 2:
        raise DataError(place, f"has {many(len(ids), 'token')}", "two or more, so that one is predicted")
    for number, item in enumerate(cutting.items([ids])):
        yield Example((item,), [*(counts if number == 0 else [0] * len(counts))])


def _instead(way: str) -> str:
    """What tells something of whole texts where scores do not multiply."""
    if way in ("masked", "word"):
        return "`pseudo_perplexity` and `perplexity_bound` are for masked models"
    return "`minimal_pairs` asks models of every family"


def sums(records: Sequence[Record]) -> list[float]:
    return [math.fsum(column) for column in zip(*records, strict=True)]


def perplexities(records: Sequence[Record], units: dict[str, float], words: int, extra_nats: float = 0.0) -> Finding:
    """Of a token, and of each unit of which there are so many; bits a byte; with errors by drawing windows again.

    `beside`: nats of units that no token has.
    """
    nats, targets = ([row[n] for row in records] for n in (-2, -1))
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
    """What who gives every token of the vocabulary the same share gets."""
    loss = math.log(words) * count
    even = {"perplexity": float(words)}
    return even | ({"bits_per_byte": loss / math.log(2) / units["byte"]} if "byte" in units else {})

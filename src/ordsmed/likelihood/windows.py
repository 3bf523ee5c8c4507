"""Windows: a text of any length as items that a model can read, every token scored once.

window 8, overlap of 3 tokens      0 1 2 3 4 5 6 7 8          the first scores all it holds
                                         3 4 5 6 7 8 9 a b    the next the last 3, behind what they overlap
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many
from ordsmed.likelihood.items import Ints, Item, Scorer, Scores
from ordsmed.likelihood.probe import Example, Finding, Record, limited, ratio_error

LONGEST = 1_024  # tokens of a window where none is asked for, as GPT-2's


@dataclass(frozen=True)
class Cutting:
    """How long texts are cut."""

    window: int
    step: int  # tokens that each window but the first scores

    @staticmethod
    def of(scorer: Scorer, window: int, overlap: int, place: str) -> Cutting:
        """What is asked for, where this model can read it."""
        if scorer.lead is None or not scorer.chained:
            scored = "do not multiply to the probability of a text"
            if scorer.chained:
                scored = "are of its words, not of text: what it does not know counts as <UNK>"
            wrong = f"is read the way `{scorer.way}`, whose scores {scored}"
            raise RecipeError(place, wrong, "a causal model", "`minimal_pairs` asks models of every family")
        most = scorer.room - 1 + len(scorer.lead)  # the last token of a window is not read
        if window > most:
            raise RecipeError(f"{place}.window", f"found {window:,}", f"at most {most:,}, the model's positions")
        chosen = window or min(most, LONGEST)
        if overlap > chosen:
            raise RecipeError(f"{place}.overlap", f"found {overlap:,}", f"at most the window, {chosen:,}")
        return Cutting(chosen, overlap or chosen)

    def items(self, ids: Ints) -> Iterator[Item]:
        """Of a long text, all of whose tokens but the first are scored, each once."""
        targets = len(ids) - 1
        yield Item(ids[: min(self.window, targets) + 1], first=1, sign=False)
        for done in range(self.window, targets, self.step):
            begin, end = done + self.step - self.window, min(done + self.step, targets)
            yield Item(ids[begin : end + 1], first=done - begin + 1, sign=False)

    def __str__(self) -> str:
        how = "end to end" if self.step == self.window else f"each {many(self.step, 'token')} further"
        return f"windows of {self.window:,} tokens, {how}"


class WindowedProbe:
    """What probes of running text have in common: it is cut into windows, and nats and targets of each are kept."""

    overlap: int
    window: int
    best: ClassVar[bool] = False
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
        return [*example.about, -scores[0].total, len(scores[0].logs)]

    def told(self, record: Record) -> dict[str, Any]:
        """Of a window, for --each."""
        return {"nats": record[-2], "targets": record[-1]}


def framed(scorer: Scorer, text: str) -> Ints:
    """A text's tokens behind the sign that texts begin with, where the model has one: then all are scored."""
    assert scorer.lead is not None
    return np.concatenate([scorer.lead, scorer.cut([text])[0].pieces])


def examples(cutting: Cutting, ids: Ints, place: str, *counts: Any) -> Iterator[Example]:
    """Windows of a text; the first one's record begins with the counts of the whole, the others' with zeros."""
    if len(ids) < 2:
        raise DataError(place, f"has {many(len(ids), 'token')}", "two or more, so that one is predicted")
    for number, item in enumerate(cutting.items(ids)):
        yield Example((item,), [*(counts if number == 0 else [0] * len(counts))])


def sums(records: Sequence[Record]) -> list[float]:
    """Each column's."""
    return [math.fsum(column) for column in zip(*records, strict=True)]


def perplexities(records: Sequence[Record], units: dict[str, float], words: int) -> Finding:
    """Of a token, and of each unit of which there are so many; bits a byte; with errors by drawing windows again."""
    nats, targets = ([row[n] for row in records] for n in (-2, -1))
    total, count = math.fsum(nats), int(sum(targets))
    spread = ratio_error(nats, targets)
    facts: dict[str, Any] = {"perplexity": limited(total / count)}
    errors = {"perplexity": facts["perplexity"] * spread}
    for name, number in units.items():
        if name == "byte":
            facts["bits_per_byte"] = total / math.log(2) / number
            errors["bits_per_byte"] = spread * count / math.log(2) / number
        else:
            facts[f"{name}_perplexity"] = limited(total / number)
            errors[f"{name}_perplexity"] = facts[f"{name}_perplexity"] * spread * count / number
    return Finding(facts | {"scored": count}, errors, guessing(count, total, units, words))


def guessing(count: int, total: float, units: dict[str, float], words: int) -> dict[str, float]:
    """What who gives every token of the vocabulary the same share gets."""
    loss = math.log(words) * count
    even = {"perplexity": float(words)}
    return even | ({"bits_per_byte": loss / math.log(2) / units["byte"]} if "byte" in units else {})

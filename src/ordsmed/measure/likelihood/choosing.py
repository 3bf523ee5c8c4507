"""Choosing: which of several endings is the likeliest behind its context; what probes of choices have in common.

"The newt" + " swam" | " swims in"   ->   items whose endings are scored, equal ones once   ->   a score each choice
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from ordsmed.base.say import many
from ordsmed.learn.score.paired import clustered
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import (
    TOGETHER,
    Example,
    Finding,
    PairedExample,
    Record,
    fits,
    room_of,
    share,
    valid,
)


@dataclass(frozen=True)
class ChoiceQuestion:
    """A context and an ending for each choice; the context may be empty."""

    place: str
    choices: Sequence[tuple[str, str]]
    about: Record


class ChoiceProbe:
    """A record begins with the group of its example and its place; `marks` are what is right of it."""

    start: bool = True  # does the sign that texts begin with stand before contexts? Before what has none it always does
    best: ClassVar[bool] = False
    prefers: ClassVar[tuple[str, ...]] = ()
    COUNTED: ClassVar[tuple[str, str]] = ("examples", "group")  # what examples and their groups are called

    def fits(self, scorer: Scorer, place: str) -> str:
        """Every model can be asked."""
        return ""

    def questions(self) -> Iterator[ChoiceQuestion]:
        """What is asked, in an order that does not change."""
        raise NotImplementedError

    def marks(self, record: Record) -> dict[str, bool]:
        """By each metric: is the right choice the likeliest?"""
        raise NotImplementedError

    def guess(self, record: Record) -> float:
        """How often who guesses is right."""
        raise NotImplementedError

    def facts(self, records: list[Record]) -> dict[str, Any]:
        return {}

    def how(self, records: list[Record]) -> str:
        """What is to be known of the examples, in a line, or nothing."""
        return ""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        """Of each question its different choices; `about` begins with which of them each choice is."""
        questions = self.questions()
        while group := list(islice(questions, TOGETHER)):
            texts: dict[str, str] = {}
            for question in group:
                for context, ending in question.choices:
                    texts |= dict.fromkeys((context.rstrip(), context + ending), question.place)
            texts.pop("", None)
            for text, place in texts.items():
                valid(text, place)
            cuts = dict(zip(texts, scorer.cut([*texts]), strict=True))
            for question in group:
                pairs = list(dict.fromkeys(question.choices))
                items = [_item(cuts, scorer, *pair, self.start) for pair in pairs]
                shown = [shortened(scorer, item) for item in items]
                for item, pair in zip(shown, pairs, strict=True):
                    fits(scorer, item, question.place, "".join(pair))
                dropped = max(len(a) - len(b) for a, b in zip(items, shown, strict=True))
                which = [pairs.index(pair) for pair in question.choices]
                yield Example(tuple(shown), [which, dropped, *question.about])

    def finding(self, records: list[Record]) -> Finding:
        """The share of right ones by each metric; errors know that those of a group are much alike."""
        compared, (unit, group) = self.compared(records), self.COUNTED
        groups = [result.group for result in compared]
        over = {
            metric: clustered([result.values[metric] for result in compared], [1.0] * len(compared), groups)
            for metric in compared[0].values
        }
        first = next(iter(over))
        by: dict[str, list[bool]] = defaultdict(list)
        for record in records:
            by[record[0]].append(self.marks(record)[first])
        shares = {name: share(sum(marks), len(marks)) for name, marks in by.items()}
        rows: list[list[Any]] = [[name, len(by[name]), *shares[name]] for name in by]
        facts = {metric: result.mean for metric, result in over.items()} | {unit: len(records)} | self.facts(records)
        errors = {metric: result.error for metric, result in over.items()}
        chance = 100 * sum(self.guess(record) for record in records) / len(records)
        tables = []
        if len(rows) > 1:
            mean = clustered([mean for mean, _ in shares.values()], [1.0] * len(rows), [""] * len(rows))
            facts |= {f"{group}s": len(rows), f"{group}_mean": mean.mean}
            errors |= {f"{group}_mean": mean.error}
            tables = [(f"by {group}", ["", unit, first, "error"], rows)]
        return Finding(facts, errors, dict.fromkeys(over, chance), tables, self.how(records))

    def compared(self, records: list[Record]) -> list[PairedExample]:
        """What two models are compared by."""
        several = len({record[0] for record in records}) > 1  # of one group each example is by itself
        return [
            PairedExample(
                record[1], record[0] if several else "", {k: 100.0 * v for k, v in self.marks(record).items()}
            )
            for record in records
        ]


def scores_by_choice(example: Example, scores: list[Scores]) -> list[Scores]:
    """Of every choice, the same where tokens are the same."""
    known: dict[tuple[int, ...], Scores] = {}
    for item, result in zip(example.items, scores, strict=True):
        known.setdefault((item.first, *item.pieces.tolist()), result)
    items = [example.items[number] for number in example.about[0]]
    return [known[item.first, *item.pieces.tolist()] for item in items]


def _item(cuts: dict[str, Item], scorer: Scorer, context: str, ending: str, start: bool) -> Item:
    """The whole, cut together; white space between both belongs to the ending."""
    whole, before = cuts[context + ending], context.rstrip()
    first = max(len(cuts[before]) if before else 0, whole.first)
    return replace(whole, first=min(first, len(whole)), sign=start or not before)


def shortened(scorer: Scorer, item: Item) -> Item:
    """An item as the model can read it: of one that is too long its end, without the sign that texts begin with."""
    if len(item) <= room_of(scorer, sign=item.sign) or not item.first:
        return item
    drop = min(max(len(item) - room_of(scorer, sign=False), 0), item.first - 1)
    return replace(item, pieces=item.pieces[drop:], words=item.words[drop:], first=item.first - drop, sign=False)


def cut_off(dropped: Sequence[int]) -> str:
    """How many passages were cut, and by how much, in a line; or nothing."""
    cut = list(filter(None, dropped))
    if not cut:
        return ""
    longer = f"{many(len(cut), 'passage')} of {len(dropped):,} longer than the model's window"
    return f"{longer}: read without what stands furthest before, {many(sum(cut), 'token')} in all"

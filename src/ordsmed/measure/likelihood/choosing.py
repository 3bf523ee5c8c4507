"""Base class of probes with multiple-choice questions: which of several endings is the likeliest after a context.

"The newt" + " swam" | " swims in"   ->   items whose endings are scored, equal ones once   ->   a score per choice
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from ordsmed.base.say import many
from ordsmed.learn.score.paired_tests import clustered
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import (
    TOGETHER,
    AnyRecord,
    Example,
    Finding,
    PairedExample,
    fits,
    max_tokens_of,
    share,
    valid,
)


@dataclass(frozen=True)
class ChoiceQuestion:
    place: str
    choices: Sequence[tuple[str, str]]
    about: list[Any]  # group, place, and what else the probe's `record` needs


class ChoiceProbe:
    """Base class of the probe. Its records have a `group` and a `place`, or are lists that begin with them."""

    start: bool = True  # put the start token before contexts? It always precedes an ending without context
    best: ClassVar[bool] = False
    prefers: ClassVar[tuple[str, ...]] = ()
    COUNTED: ClassVar[tuple[str, str]] = ("examples", "group")  # names of examples and of their groups in results

    def fits(self, scorer: Scorer, location: str) -> str:
        return ""

    def questions(self) -> Iterator[ChoiceQuestion]:
        raise NotImplementedError

    def marks(self, record: AnyRecord) -> dict[str, bool]:
        """Return for each metric whether the right choice is the likeliest."""
        raise NotImplementedError

    def guess(self, record: AnyRecord) -> float:
        raise NotImplementedError

    def facts(self, records: list[Any]) -> dict[str, Any]:
        return {}

    def note(self, records: list[Any]) -> str:
        return ""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        """Yield the distinct choices of each question; `about` begins with the item number of every choice."""
        questions = self.questions()
        while group := list(islice(questions, TOGETHER)):
            texts: dict[str, str] = {}
            for question in group:
                for context, ending in question.choices:
                    texts |= dict.fromkeys((context.rstrip(), context + ending), question.place)
            texts.pop("", None)
            for text, location in texts.items():
                valid(text, location)
            cuts = dict(zip(texts, scorer.cut([*texts]), strict=True))
            for question in group:
                pairs = list(dict.fromkeys(question.choices))
                items = [_item(cuts, scorer, *pair, self.start) for pair in pairs]
                shown = [shorten(scorer, item) for item in items]
                for item, pair in zip(shown, pairs, strict=True):
                    fits(scorer, item, question.place, "".join(pair))
                dropped = max(len(a) - len(b) for a, b in zip(items, shown, strict=True))
                item_numbers = [pairs.index(pair) for pair in question.choices]
                yield Example(tuple(shown), [item_numbers, dropped, *question.about])

    def finding(self, records: list[Any]) -> Finding:
        """Return the accuracy by each metric, with errors clustered by group, as examples of a group correlate."""
        compared, (unit, group) = self.compared(records), self.COUNTED
        groups = [result.group for result in compared]
        over = {
            metric: clustered([result.values[metric] for result in compared], [1.0] * len(compared), groups)
            for metric in compared[0].values
        }
        first = next(iter(over))
        by: dict[str, list[bool]] = defaultdict(list)
        for record in records:
            by[_group_and_place(record)[0]].append(self.marks(record)[first])
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
        return Finding(facts, errors, dict.fromkeys(over, chance), tables, self.note(records))

    def compared(self, records: list[Any]) -> list[PairedExample]:
        groups, locations = zip(*map(_group_and_place, records), strict=True)
        several = len(set(groups)) > 1  # in a single group, examples are independent
        return [
            PairedExample(place, group if several else "", {k: 100.0 * v for k, v in self.marks(record).items()})
            for record, group, place in zip(records, groups, locations, strict=True)
        ]


def _group_and_place(record: AnyRecord) -> tuple[str, str]:
    """Return group and place of a record; a list holds them as its first two values."""
    return (record[0], record[1]) if isinstance(record, list) else (record.group, record.place)


def scores_by_choice(example: Example, scores: list[Scores]) -> list[Scores]:
    """Return the scores of every choice. Choices with the same tokens were scored once and share their scores."""
    known: dict[tuple[int, ...], Scores] = {}
    for item, result in zip(example.items, scores, strict=True):
        known.setdefault((item.first, *item.pieces.tolist()), result)
    items = [example.items[number] for number in example.about[0]]
    return [known[item.first, *item.pieces.tolist()] for item in items]


def _item(cuts: dict[str, Item], scorer: Scorer, context: str, ending: str, start: bool) -> Item:
    whole, stripped_context = cuts[context + ending], context.rstrip()
    first = max(len(cuts[stripped_context]) if stripped_context else 0, whole.first)
    return replace(whole, first=min(first, len(whole)), sign=start or not stripped_context)


def shorten(scorer: Scorer, item: Item) -> Item:
    """Shorten an item that is too long for the model: keep its end, without the start token."""
    if len(item) <= max_tokens_of(scorer, sign=item.sign) or not item.first:
        return item
    drop = min(max(len(item) - max_tokens_of(scorer, sign=False), 0), item.first - 1)
    return replace(item, pieces=item.pieces[drop:], words=item.words[drop:], first=item.first - drop, sign=False)


def cut_off(dropped: Sequence[int]) -> str:
    """Return a note of how many passages were truncated, and by how much, or an empty text."""
    cut = list(filter(None, dropped))
    if not cut:
        return ""
    longer = f"{many(len(cut), 'passage')} of {len(dropped):,} longer than the model's window"
    return f"{longer}: their beginning was left out, {many(sum(cut), 'token')} in total"

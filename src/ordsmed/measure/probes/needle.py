"""Needle: does a model fill in a fact that was inserted into a long text, at several distances?

The secret word is stone. + 1,000 tokens of text + The secret word is [MASK].     is `stone` the likeliest word?
The secret word is river. + the same text        + The secret word is [MASK].     is `stone` likelier above than here?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ordsmed.base import chance
from ordsmed.base.checks import or_more
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood.documents import documents, text_parts
from ordsmed.measure.likelihood.items import Ints, Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, PairedExample, Record, share

WORD = "{word}"
WORDS = 64  # candidates for insertion: the most frequent longer words of the text


@dataclass(frozen=True)
class NeedleRecord(Record):
    distance: int
    number: int
    filled: bool  # is the inserted word the likeliest?
    log: float  # its natural log-probability
    log_without: float  # the same if another word was inserted

    @property
    def likelier(self) -> bool:
        return self.log > self.log_without


@dataclass(frozen=True)
class Needle(Choice):
    """Accuracy by distance: the inserted word is the likeliest, or it is likelier than without the insertion."""

    files: tuple[str, ...] = ()
    """text files or JSON lines that fill the distance, compressed or not"""
    way: str = ""
    """masked, causal; empty: masked if the model supports it"""
    key: str = "text"
    """key of the text in JSON lines"""
    fact: str = "The secret word is {word}."
    """sentence with {word}, inserted at the start and repeated at the end"""
    distances: tuple[int, ...] = (64, 256, 1024, 4096)
    """tokens of text in between; distances beyond the model's positions are left out, with a note"""
    count: int = 100
    """examples per distance"""

    RECORD: ClassVar = NeedleRecord
    best: ClassVar[bool] = True
    prefers: ClassVar[tuple[str, ...]] = ("masked",)

    def __post_init__(self) -> None:
        or_more(self, count=1)
        if self.fact.count(WORD) != 1:
            raise ValueError(f"fact: found {self.fact}; wanted a sentence with {WORD} in it, once")
        if not self.distances or min(self.distances) < 1:
            raise ValueError(f"distances: found {list(self.distances)}; wanted one or more, each 1 or more")

    def fits(self, scorer: Scorer, location: str) -> str:
        if scorer.way not in ("masked", "causal"):
            raise RecipeError(location, f"is read the way `{scorer.way}`", "masked or causal")
        possible = self._distances(scorer)
        if not possible:
            problem = f"found {list(self.distances)}, for a model of {scorer.max_tokens:,} positions"
            raise RecipeError(f"{location}.distances", problem, "at least one that it has room for")
        impossible = [distance for distance in self.distances if distance not in possible]
        note = f"; no room for {', '.join(map(str, impossible))}" if impossible else ""
        return f"distances of {', '.join(f'{distance:,}' for distance in possible)} tokens{note}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        text = self._text(scorer)
        words = self._words(scorer, text)
        prefix, suffix = (scorer.cut([part])[0].pieces for part in self.fact.split(WORD))
        for distance in self._distances(scorer):
            for number in range(self.count):
                draws = chance.bits(chance.key("needle", distance, number), np.arange(3)).astype(object)
                right, wrong = int(draws[0] % len(words)), int(draws[1] % (len(words) - 1))
                wrong += wrong >= right
                start = int(draws[2] % (len(text) - distance + 1))
                between = text[start : start + distance]
                question = [between, prefix, [words[right]], suffix]
                items = [
                    self._item(scorer, np.concatenate([prefix, [words[planted]], suffix, *question]), len(suffix))
                    for planted in (right, wrong)
                ]
                yield Example(tuple(items), [distance, number])

    def record(self, example: Example, scores: list[Scores]) -> NeedleRecord:
        planted, absent = scores
        distance, number = example.about
        return NeedleRecord(distance, number, bool(planted.best[0]), float(planted.logs[0]), float(absent.logs[0]))

    def finding(self, records: list[NeedleRecord]) -> Finding:
        facts, errors, guessing = dict[str, Any](), dict[str, float](), dict[str, float]()
        for distance in dict.fromkeys(record.distance for record in records):
            rows = [record for record in records if record.distance == distance]
            for name in ("filled", "likelier"):
                right = sum(getattr(row, name) for row in rows)
                facts[f"{name}_{distance}"], errors[f"{name}_{distance}"] = share(right, len(rows))
            guessing |= {f"filled_{distance}": 100.0 / WORDS, f"likelier_{distance}": 50.0}
        return Finding({**facts, "examples": len(records)}, errors, guessing)

    def as_line(self, record: NeedleRecord) -> dict[str, Any]:
        return dict(vars(record))

    def compared(self, records: list[NeedleRecord]) -> list[PairedExample]:
        return [
            PairedExample(
                f"{row.distance}:{row.number}", "", {"filled": 100.0 * row.filled, "likelier": 100.0 * row.likelier}
            )
            for row in records
        ]

    def _distances(self, scorer: Scorer) -> list[int]:
        fact = 2 * (sum(len(scorer.cut([part])[0]) for part in self.fact.split(WORD)) + 1)
        return [distance for distance in self.distances if distance + fact <= scorer.max_tokens]

    def _item(self, scorer: Scorer, pieces: Ints, behind: int) -> Item:
        """Mask the word before the last `behind` tokens; a causal model reads up to it."""
        position = len(pieces) - behind - 1
        if scorer.way == "causal":
            return Item(pieces[: position + 1], first=position)
        return Item(pieces, hidden=np.asarray([position]))

    def _text(self, scorer: Scorer) -> Ints:
        texts = documents(self.files, self.key)
        parts = [
            scorer.cut([part])[0].pieces for location, blocks in texts for part in text_parts(scorer, blocks, location)
        ]
        text, longest = np.concatenate(parts), max(self._distances(scorer))
        if len(text) < longest:
            raise DataError(self.files[0], f"has {len(text):,} tokens", f"{longest:,} or more, as the longest distance")
        return text

    def _words(self, scorer: Scorer, text: Ints) -> list[int]:
        words = list[int]()
        for token, _ in Counter(text.tolist()).most_common():
            word = scorer.tokenizer.decode([token]).strip()
            if (
                len(word) > 3
                and word.isalpha()
                and word.islower()
                and scorer.cut([f" {word}"])[0].pieces.tolist() == [token]
            ):
                words.append(token)
            if len(words) == WORDS:
                return words
        raise DataError(self.files[0], f"has {len(words)} words of one token", f"{WORDS}, longer text")

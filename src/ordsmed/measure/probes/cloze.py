"""Cloze: predict the last word of a passage, which requires the whole passage (LAMBADA, Paperno et al. 2016).

{"text": "... I don't care about signs"}  ->  is the last token the likeliest? are all tokens of ` signs`?
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood.choosing import cut_off, shorten
from ordsmed.measure.likelihood.items import Ints, Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import (
    TOGETHER,
    Example,
    Finding,
    PairedExample,
    Record,
    fits,
    paths_of,
    perplexity,
    records,
    share,
    text_of,
)

CHOOSE = ("causal", "masked", "word")


@dataclass(frozen=True)
class ClozeRecord(Record):
    place: str
    last_token: bool  # is the last token the likeliest?
    word: bool  # are all tokens of the last word the likeliest?
    log: float  # natural log-probability of the last word
    dropped: int = 0  # tokens cut off because the passage was too long


@dataclass(frozen=True)
class Cloze(Choice):
    """Accuracy on the last token and on the whole last word."""

    files: tuple[str, ...] = ()
    """JSON lines"""
    way: str = ""
    """causal, masked, word; empty: the model's default"""
    key: str = "text"
    """key of the passage in each line"""
    start: bool = False
    """causal models: put the start token before each passage, as lm-evaluation-harness does if the tokenizer adds it;
    false: as in lm-evaluation-harness with GPT-2's tokenizer, and in Megatron"""

    RECORD: ClassVar = ClozeRecord
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("start",)

    best: ClassVar[bool] = True
    prefers: ClassVar[tuple[str, ...]] = ("causal", "word")  # both mask the later tokens of the word

    def fits(self, scorer: Scorer, location: str) -> str:
        if scorer.way not in CHOOSE:
            reason = "which ranks no words"
            if scorer.by_line:
                reason = "whose unknown words are all `<UNK>`, so that predicting `<UNK>` would count as right"
            wrong = f"is read the way `{scorer.way}`, {reason}"
            raise RecipeError(location, wrong, " or ".join(CHOOSE), "`minimal_pairs` works with models of every family")
        return ""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        passages = self._passages()
        while group := list(islice(passages, TOGETHER)):
            items = iter(scorer.cut([text for _, texts in group for text in texts]))
            for location, texts in group:
                yield self._example(scorer, location, *(next(items).pieces for _ in texts))

    def _passages(self) -> Iterator[tuple[str, tuple[str, str, str]]]:
        for path in paths_of(self.files):
            for location, row in records(path):
                text = text_of(row, self.key, location)
                word = text.split()[-1]
                context = text[: text.rfind(word)].strip()
                if not context:
                    raise DataError(location, "is one word", "a passage before its last word")
                yield location, (text, context, f" {word}")

    def _example(self, scorer: Scorer, location: str, whole: Ints, context: Ints, word: Ints) -> Example:
        """Build two items: the passage's last token, and its last word, tokenized separately."""
        if len(whole) < 2:
            raise DataError(location, "is one token", "a passage before its last token")
        last = Item(whole, first=len(whole) - 1, sign=self.start)
        strict = Item(np.concatenate([context, word]), first=len(context), sign=self.start)
        shown = [shorten(scorer, item) for item in (last, strict)]
        for item in shown:
            fits(scorer, item, location, "the passage")
        return Example(tuple(shown), [location, max(len(strict) - len(shown[1]), len(last) - len(shown[0]))])

    def record(self, example: Example, scores: list[Scores]) -> ClozeRecord:
        last, word = scores
        location, dropped = example.about
        return ClozeRecord(location, bool(last.best[-1]), bool(word.best.all()), word.total, dropped)

    def finding(self, records: list[ClozeRecord]) -> Finding:
        count = len(records)
        last, last_error = share(sum(row.last_token for row in records), count)
        word, word_error = share(sum(row.word for row in records), count)
        logs = np.asarray([row.log for row in records])
        loss = -float(logs.mean())
        error = float(logs.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
        facts = {"last_token": last, "word": word, "word_perplexity": perplexity(loss), "examples": count}
        errors = {"last_token": last_error, "word": word_error, "word_perplexity": perplexity(loss) * error}
        return Finding(facts, errors, {"last_token": 0.0, "word": 0.0}, note=cut_off([row.dropped for row in records]))

    def compared(self, records: list[ClozeRecord]) -> list[PairedExample]:
        return [
            PairedExample(row.place, "", {"last_token": 100.0 * row.last_token, "word": 100.0 * row.word})
            for row in records
        ]

    def as_line(self, record: ClozeRecord) -> dict[str, Any]:
        file, _, line = record.place.rpartition(":")
        scores = {name: getattr(record, name) for name in ("last_token", "word", "log")}
        return {"file": file, "line": int(line), **scores}

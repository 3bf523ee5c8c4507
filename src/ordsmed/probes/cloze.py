"""Cloze: the last word of a passage, which nobody guesses without having read all of it (LAMBADA, Paperno et al. 2016).

{"text": "... I don't care about signs"}  ->  is the last token the likeliest? are all tokens of ` signs`?
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.likelihood.items import Item, Scorer, Scores
from ordsmed.likelihood.probe import Example, Finding, Record, cut, fits, limited, paths_of, records, share, text_of

CHOOSE = ("causal", "masked", "word")


@dataclass(frozen=True)
class Settings:
    """Accuracy of the last token, and of the whole last word."""

    files: tuple[str, ...] = ()
    """JSON lines"""
    way: str = ""
    """causal, masked, word; empty: the model's usual one"""
    key: str = "text"
    """of each line's passage"""

    best: ClassVar[bool] = True
    prefers: ClassVar[tuple[str, ...]] = ("causal", "word")  # whose pieces right of the one asked about are hidden

    def fits(self, scorer: Scorer, place: str) -> str:
        if scorer.way not in CHOOSE:
            why = "which tells of no word whether it is the likeliest"
            if scorer.by_line:
                why = "whose lexicon lacks words: each is `<UNK>`, and to guess `<UNK>` would count as guessing it"
            wrong = f"is read the way `{scorer.way}`, {why}"
            raise RecipeError(place, wrong, " or ".join(CHOOSE), "`minimal_pairs` asks models of every family")
        return ""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        def placed() -> Iterator[tuple[str, list[str], Record]]:
            for path in paths_of(self.files):
                for place, row in records(path):
                    text = text_of(row, self.key, place)
                    word = text.split()[-1]
                    before = text[: text.rfind(word)].strip()
                    if not before:
                        raise DataError(place, "is one word", "a passage before its last word")
                    yield place, [text, before, f" {word}"], [place]

        for place, example in cut(scorer, placed(), whole=False):
            whole, before, word = (item.pieces for item in example.items)
            if len(whole) < 2:
                raise DataError(place, "is one token", "a passage before its last token")
            strict = Item(np.concatenate([before, word]), first=len(before), sign=False)
            last = Item(whole, first=len(whole) - 1, sign=False)
            for asked in (last, strict):
                fits(scorer, asked, place, "the passage")
            yield Example((last, strict), example.about)

    def record(self, example: Example, scores: list[Scores]) -> Record:
        last, word = scores
        return [*example.about, bool(last.best[-1]), bool(word.best.all()), word.total]

    def finding(self, records: list[Record]) -> Finding:
        count = len(records)
        (last, last_error), (word, word_error) = (share(sum(row[n] for row in records), count) for n in (1, 2))
        logs = np.asarray([row[3] for row in records])
        loss = -float(logs.mean())
        spread = float(logs.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
        facts = {"last_token": last, "word": word, "word_perplexity": limited(loss), "examples": count}
        errors = {"last_token": last_error, "word": word_error, "word_perplexity": limited(loss) * spread}
        return Finding(facts, errors, {"last_token": 0.0, "word": 0.0})

    def told(self, record: Record) -> dict[str, Any]:
        file, _, line = record[0].rpartition(":")
        return {"file": file, "line": int(line), "last_token": record[1], "word": record[2], "log": record[3]}

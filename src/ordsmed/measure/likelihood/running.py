"""Running text: documents of any length as windows, with counts of the text read since the previous window.

words  bytes  documents  vocabulary  unknown  spelled | nats  targets      a record; columns add up over all records

An unknown token does not encode the characters of its word. In nats per word and per byte, these characters count in
full, 8 bits per byte, so that a small vocabulary is no advantage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.measure.likelihood.documents import documents, lines, text_parts
from ordsmed.measure.likelihood.items import Ints, Item, Scorer
from ordsmed.measure.likelihood.probe import TOGETHER, Example, Finding, Record
from ordsmed.measure.likelihood.windows import Cutting, perplexities, sums

Counts = list[int]
COLUMNS = 6
Cut = Callable[[Iterable[Ints]], Iterator[Item]]  # token blocks -> windows


def examples(scorer: Scorer, cutting: Cutting, files: Sequence[str], key: str) -> Iterator[Example]:
    """Yield all tokens of every document, after the start token if the model has one."""
    for location, blocks in documents(files, key):
        yield from of_text(scorer, cutting, location, blocks)


def of_text(scorer: Scorer, cutting: Cutting, location: str, blocks: Iterable[str]) -> Iterator[Example]:
    if cutting.by_line:
        return _by_line(scorer, cutting.window, location, blocks)
    return cut(scorer, cutting.items, location, blocks)


def cut(scorer: Scorer, windows: Cut, location: str, blocks: Iterable[str]) -> Iterator[Example]:
    counts = _counts(scorer)

    def ids() -> Iterator[Ints]:
        if scorer.lead is not None:
            yield scorer.lead
        for part in text_parts(scorer, blocks, location):
            item = scorer.cut([part])[0]
            _add(counts, scorer, part, item)
            yield item.pieces

    last: Example | None = None
    for window in windows(ids()):
        if last is not None:
            yield last
        last = Example((window,), [*counts])
        counts[:] = [0] * COLUMNS
    if last is None:
        raise DataError(location, "has too few tokens", "two or more, so that one is predicted")
    yield Example(last.items, [a + b for a, b in zip(last.about, counts, strict=True)])


def _by_line(scorer: Scorer, window: int, location: str, blocks: Iterable[str]) -> Iterator[Example]:
    counts, items, size = _counts(scorer), list[Item](), 0
    rows = lines(blocks)
    while group := list(islice(rows, TOGETHER)):
        for text, item in zip(group, scorer.cut(group), strict=True):
            _add(counts, scorer, text, item)
            for at in range(0, len(item), window):
                items.append(Item(item.pieces[at : at + window], words=item.words[at : at + window]))
            size += len(item)
            if size >= window:
                yield Example(tuple(items), [*counts])
                counts, items, size = [0] * COLUMNS, [], 0
    if items:
        yield Example(tuple(items), counts)
    elif counts[2]:
        raise DataError(location, "has no word", "a text")


def _counts(scorer: Scorer) -> Counts:
    return [0, 0, 1, scorer.tokenizer.vocabulary, 0, 0]


def _add(counts: Counts, scorer: Scorer, text: str, item: Item) -> None:
    unknown = int((item.pieces == scorer.tokenizer.unknown).sum()) if scorer.tokenizer.unknown is not None else 0
    added = (len(text.split()), len(text.encode()), 0, 0, unknown, scorer.spelled(text, item) if unknown else 0)
    counts[:] = [a + b for a, b in zip(counts, added, strict=True)]


def finding(records: Sequence[Record], first: str = "perplexity", named: str = "{}") -> Finding:
    """Return the scores per token, word and byte, `first` first, with names formatted by `named`."""
    words, size, texts, vocabulary, unknown, spelled, _, targets = sums(records)
    units = {"word": words, "byte": size} if size else {}
    plain = perplexities(records, units, int(vocabulary / texts), spelled * math.log(256))
    scores = sorted(plain.facts, key=lambda name: name != first)
    rename = {name: named.format(name) if name != "scored" else name for name in scores}
    facts: dict[str, Any] = {rename[name]: plain.facts[name] for name in scores}
    if unknown:
        facts |= {"unknown": 100 * unknown / targets, "unknown_tokens": int(unknown)}
    if size:
        facts |= {"documents": int(texts), "words": int(words), "bytes": int(size)}
    errors, guessing = ({rename[n]: value for n, value in of.items()} for of in (plain.errors, plain.guessing))
    return replace(plain, facts=facts | {"windows": len(records)}, errors=errors, guessing=guessing)

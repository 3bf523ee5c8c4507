"""Running text: documents of any length as windows, with counts of the text read since the previous window.

An unknown token does not encode the characters of its word. In nats per word and per byte, these characters count in
full, 8 bits per byte, so that a small vocabulary is no advantage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.measure.likelihood.documents import documents, lines, text_parts
from ordsmed.measure.likelihood.items import Ints, Item, Scorer
from ordsmed.measure.likelihood.probe import TOGETHER, Example, Finding
from ordsmed.measure.likelihood.windows import Cutting, ScoredWindow, perplexities, summed

Cut = Callable[[Iterable[Ints]], Iterator[Item]]  # token blocks -> windows


@dataclass(frozen=True)
class TextWindow(ScoredWindow):
    """Counts of the text read since the previous window; their sums over all records describe the whole text."""

    words: int = 0
    bytes: int = 0
    documents: int = 0  # documents that start in the window
    vocabulary: int = 0  # size of the vocabulary, once per document
    unknown: int = 0  # unknown tokens
    unknown_bytes: int = 0  # bytes of the text that unknown tokens cover

    def __add__(self, second: TextWindow) -> TextWindow:
        return TextWindow.from_list([a + b for a, b in zip(self.to_list(), second.to_list(), strict=True)])


def examples(scorer: Scorer, cutting: Cutting, files: Sequence[str], key: str) -> Iterator[Example]:
    """Yield all tokens of every document, after the start token if the model has one."""
    for location, blocks in documents(files, key):
        yield from of_text(scorer, cutting, location, blocks)


def of_text(scorer: Scorer, cutting: Cutting, location: str, blocks: Iterable[str]) -> Iterator[Example]:
    if cutting.by_line:
        return _by_line(scorer, cutting.window, location, blocks)
    return cut(scorer, cutting.items, location, blocks)


def cut(scorer: Scorer, windows: Cut, location: str, blocks: Iterable[str]) -> Iterator[Example]:
    counts = document_start(scorer)

    def ids() -> Iterator[Ints]:
        nonlocal counts
        if scorer.start_tokens is not None:
            yield scorer.start_tokens
        for part in text_parts(scorer, blocks, location):
            item = scorer.cut([part])[0]
            counts += _counted(scorer, part, item)
            yield item.pieces

    last: Example | None = None
    for window in windows(ids()):
        if last is not None:
            yield last
        last, counts = Example((window,), counts), TextWindow()
    if last is None:
        raise DataError(location, "has too few tokens", "two or more, so that one is predicted")
    yield Example(last.items, last.about + counts)


def _by_line(scorer: Scorer, window: int, location: str, blocks: Iterable[str]) -> Iterator[Example]:
    counts, items, size = document_start(scorer), list[Item](), 0
    rows = lines(blocks)
    while group := list(islice(rows, TOGETHER)):
        for text, item in zip(group, scorer.cut(group), strict=True):
            counts += _counted(scorer, text, item)
            for at in range(0, len(item), window):
                items.append(Item(item.pieces[at : at + window], words=item.words[at : at + window]))
            size += len(item)
            if size >= window:
                yield Example(tuple(items), counts)
                counts, items, size = TextWindow(), [], 0
    if items:
        yield Example(tuple(items), counts)
    elif counts.documents:
        raise DataError(location, "has no word", "a text")


def document_start(scorer: Scorer) -> TextWindow:
    return TextWindow(documents=1, vocabulary=scorer.tokenizer.vocabulary)


def _counted(scorer: Scorer, text: str, item: Item) -> TextWindow:
    unknown = int((item.pieces == scorer.tokenizer.unknown).sum()) if scorer.tokenizer.unknown is not None else 0
    unknown_bytes = scorer.spelled(text, item) if unknown else 0
    return TextWindow(len(text.split()), len(text.encode()), unknown=unknown, unknown_bytes=unknown_bytes)


def finding(records: Sequence[TextWindow], first: str = "perplexity", named: str = "{}") -> Finding:
    """Return the scores per token, word and byte, `first` first, with names formatted by `named`."""
    total = summed(records)
    units: dict[str, float] = {"word": total.words, "byte": total.bytes} if total.bytes else {}
    extra_nats = total.unknown_bytes * math.log(256)
    plain = perplexities(records, units, int(total.vocabulary / total.documents), extra_nats)
    scores = sorted(plain.facts, key=lambda name: name != first)
    rename = {name: named.format(name) if name != "scored" else name for name in scores}
    facts: dict[str, Any] = {rename[name]: plain.facts[name] for name in scores}
    if total.unknown:
        facts |= {"unknown": 100 * total.unknown / total.targets, "unknown_tokens": int(total.unknown)}
    if total.bytes:
        facts |= {name: int(getattr(total, name)) for name in ("documents", "words", "bytes")}
    errors, guessing = ({rename[n]: value for n, value in of.items()} for of in (plain.errors, plain.guessing))
    return replace(plain, facts=facts | {"windows": len(records)}, errors=errors, guessing=guessing)

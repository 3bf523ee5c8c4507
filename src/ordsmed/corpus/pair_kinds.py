"""Kinds of text pairs that can be drawn from unlabeled documents.

    title       its title - its first passage              cloze      a sentence - the passage it is taken from
    paragraphs  a paragraph - the next one                 crops      two random parts of a passage
    questions   a question, or a heading that is one - the text after it

A document is split into passages between sentences, and each passage gives one pair. Its kind is drawn by the shares of
the kinds that the passage can give. So no two positives of a document overlap, and rare kinds are used where they are
possible. Cloze: Lee et al. 2019; in one of ten pairs the sentence stays in its passage. Crops: Izacard et al. 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ordsmed.base import chance
from ordsmed.text.counting import words
from ordsmed.text.document import Document
from ordsmed.text.sentences import rules

LEFT_IN = 0.1  # probability that a sentence of cloze stays in its passage
CROP = (0.1, 0.5)  # range of a crop's share of the passage's words
ASKING = 3  # least words of a question
MARKS = ("?", "？", "؟")
DRAWS = 8  # random numbers per passage


@dataclass(frozen=True)
class PassageSentence:
    text: str
    words: int
    opens: bool  # whether it begins a paragraph


Passage = Sequence[PassageSentence]


@dataclass(frozen=True)
class DrawnPair:
    """Two texts that belong together."""

    anchor: str
    positive: str
    source: str  # the kind
    document: str
    passages: int = field(default=1, compare=False)  # number of passages used


@dataclass(frozen=True)
class PairSource:
    """A passage of a document, and the other data from which pairs are made."""

    passage: Passage
    title: str  # title of the document if this is its first passage
    behind: Passage  # the next passage
    shortest: int  # least words of each side
    draws: list[float]  # random numbers in [0, 1)


def pairs_of(
    document: Document, name: str, shares: dict[str, float], length: int, shortest: int, seed: int
) -> Iterator[DrawnPair | None]:
    """Yield a pair for each passage, or None if it is too short for all kinds with a share."""
    passages = _passages([*_sentences(document, length)], length)
    title, at = str(document.meta.get("title") or "").strip(), 0
    while at < len(passages):
        behind = passages[at + 1] if at + 1 < len(passages) else ()
        draws = chance.unit(chance.key("pairs", seed, name, at), np.arange(DRAWS + len(KINDS))).tolist()
        spot = PairSource(passages[at], title if not at else "", behind, shortest, draws[:DRAWS])
        pair = _drawn(spot, name, shares, draws[DRAWS:])
        yield pair
        at += pair.passages if pair else 1


def _drawn(spot: PairSource, name: str, shares: dict[str, float], draws: Sequence[float]) -> DrawnPair | None:
    """Return a pair of the first possible kind, in a random order weighted by shares (Efraimidis and Spirakis 2006)."""
    keys = {kind: draw ** (1 / shares[kind]) for kind, draw in zip(KINDS, draws, strict=True) if shares.get(kind)}
    for kind in sorted(keys, key=lambda kind: -keys[kind]):
        if sides := KINDS[kind](spot):
            anchor, positive, passages = sides
            return DrawnPair(anchor, positive, kind, name, passages)
    return None


# ---- kinds: anchor, positive and number of passages used


Sides = tuple[str, str, int] | None


def _title(spot: PairSource) -> Sides:
    text = _text(spot.passage)
    return (spot.title, text, 1) if spot.title and text.casefold() != spot.title.casefold() else None


def _paragraphs(spot: PairSource) -> Sides:
    """Return two consecutive paragraphs of the passage, or the passage and the next one if it is a single paragraph."""
    inner = _cut(spot.passage)
    sides = inner if len(inner) > 1 else [spot.passage, spot.behind]
    rows = [n for n in range(len(sides) - 1) if min(_size(sides[n]), _size(sides[n + 1])) >= spot.shortest]
    if not rows:
        return None
    first = rows[int(spot.draws[0] * len(rows))]
    return _text(sides[first]), _text(sides[first + 1]), 1 if len(inner) > 1 else 2


def _cloze(spot: PairSource) -> Sides:
    passage = spot.passage
    rows = [n for n, sentence in enumerate(passage) if sentence.words >= spot.shortest]
    rows = [n for n in rows if _size(passage) - passage[n].words >= spot.shortest]
    if not rows:
        return None
    drawn = rows[int(spot.draws[0] * len(rows))]
    remainder = passage if spot.draws[1] < LEFT_IN else [*passage[:drawn], *passage[drawn + 1 :]]
    return passage[drawn].text, _text(remainder), 1


def _crops(spot: PairSource) -> Sides:
    text = _text(spot.passage)
    begins = [*words(text).tolist(), len(text)]
    count = len(begins) - 1
    if count < 2 * spot.shortest:
        return None
    crops = []
    for share, where in (spot.draws[:2], spot.draws[2:4]):
        size = max(spot.shortest, round(count * (CROP[0] + share * (CROP[1] - CROP[0]))))
        begin = int(where * (count - size + 1))
        crops.append(text[begins[begin] : begins[begin + size]].strip())
    return (crops[0], crops[1], 1) if crops[0] != crops[1] else None


def _questions(spot: PairSource) -> Sides:
    passage = spot.passage
    rows = [n for n, sentence in enumerate(passage) if sentence.text.endswith(MARKS) and sentence.words >= ASKING]
    rows = [n for n in rows if _size(passage[n + 1 :]) >= spot.shortest]
    if spot.title.endswith(MARKS):
        return _title(spot)
    if not rows:
        return None
    question = rows[int(spot.draws[0] * len(rows))]
    return passage[question].text, _text(passage[question + 1 :]), 1


KINDS: dict[str, Callable[[PairSource], Sides]] = {
    "title": _title,
    "paragraphs": _paragraphs,
    "cloze": _cloze,
    "crops": _crops,
    "questions": _questions,
}


# ---- passages


def _sentences(document: Document, length: int) -> Iterator[PassageSentence]:
    parts = (document if document.ends else Document(document.text, rules(document.text))).sentences()
    for number, part in enumerate(parts):
        text = " ".join(part.split())
        begins = [*words(text).tolist(), len(text)]
        opens = not number or "\n" in part[: len(part) - len(part.lstrip())]
        for first in range(0, len(begins) - 1, length):
            last = min(first + length, len(begins) - 1)
            yield PassageSentence(text[begins[first] : begins[last]].strip(), last - first, opens and not first)


def _passages(sentences: Passage, length: int) -> list[Passage]:
    """Group sentences into passages of at most `length` words. A paragraph that does not fit may begin one."""
    passages: list[list[PassageSentence]] = []
    room = 0
    for paragraph in _cut(sentences):
        size = _size(paragraph)
        if room < size and room <= length / 2:
            room = 0
        for sentence in paragraph:
            if not passages or room < sentence.words:
                passages.append([])
                room = length
            passages[-1].append(sentence)
            room -= sentence.words
    return list(passages)


def _cut(sentences: Passage) -> list[Passage]:
    begins = [n for n, sentence in enumerate(sentences) if sentence.opens or not n]
    return [sentences[a:b] for a, b in zip(begins, [*begins[1:], len(sentences)], strict=True)]


def _size(sentences: Passage) -> int:
    return sum(sentence.words for sentence in sentences)


def _text(sentences: Passage) -> str:
    return "\n".join(" ".join(sentence.text for sentence in paragraph) for paragraph in _cut(sentences))

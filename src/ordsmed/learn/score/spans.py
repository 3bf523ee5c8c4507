"""Spans of tags such as B-PER I-PER O, read as the usual scorer (conlleval) reads them, and their scores.

    B-PER I-PER O    B-PER E-PER O    B-PER L-PER O    I-PER I-PER O    ->    (PER, 0, 1): type, first and last word

The prefixes are B (begin), I (inside), E or L (end), S or U (single). A tag with I, E or L continues the span before it
if that has the same type and has not ended, and otherwise begins a span, so tags outside any scheme can be read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Literal

Scheme = Literal["IOB1", "IOB2", "IOBES", "BILOU"]
LETTERS: dict[Scheme, str] = {
    "IOB2": "BIIB",
    "IOB1": "IIII",
    "IOBES": "BIES",
    "BILOU": "BILU",
}  # prefixes of begin, inside, end, single
UNTYPED = "_"  # the type of a tag that is only a prefix
_TAG = re.compile(r"([BIESLU])(?:-(.+))?")


def is_spans(labels: Iterable[str]) -> bool:
    """Return whether labels are O and tags such as B-PER, or O and prefixes without a type."""
    tags = set(labels) - {"O"}
    typed = {"-" in label for label in tags}
    return len(typed) == 1 and all(_TAG.fullmatch(label) for label in tags)


def spans(tags: Iterable[str], strict: Scheme | None = None) -> list[tuple[str, int, int]]:
    """Return type, first and last word of each span.

    `strict`: only spans that are written exactly as in this scheme, as in seqeval.
    """
    if strict == "IOB1":
        return _iob1([_apart(tag) for tag in tags])
    if strict:
        tags = [tag if tag[0] in ("O", *LETTERS[strict]) else "O" for tag in tags]
    result, first, kind = [], -1, ""
    for at, tag in enumerate(chain(tags, "O")):
        if tag == "O" and first < 0:
            continue
        letter, this_kind = _apart(tag)
        if first >= 0 and (letter not in "IE" or this_kind != kind):
            if strict in (None, "IOB2"):
                result.append((kind, first, at - 1))
            first = -1
        if first < 0 and letter in ("BS" if strict else "BIES"):
            first, kind = at, this_kind
        if first >= 0 and letter in "ES":
            result.append((kind, first, at))
            first = -1
    return result


def _iob1(tags: Sequence[tuple[str, str]]) -> list[tuple[str, int, int]]:
    """Return the spans of IOB1 tags: a span begins with I, or with B directly after a span of the same type."""
    result, at, before = [], 0, ("O", UNTYPED)
    while at < len(tags):
        first, (letter, kind) = at, tags[at]
        at += 1
        if letter == "I" or (letter == "B" and before in (("I", kind), ("B", kind))):
            while at < len(tags) and tags[at] == ("I", kind):
                at += 1
            apart = at - first == 1 and letter == "B" and at < len(tags)  # a B of another type cannot follow a lone B
            if not (apart and tags[at][0] == "B" and tags[at][1] != kind):
                result.append((kind, first, at - 1))
        before = tags[at - 1]
    return result


def converted(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return tags of the same spans in a scheme; malformed sequences become well-formed."""
    begin, inside, end, single = tuple(LETTERS[scheme])
    written, before = ["O"] * len(tags), ("", -2)
    for kind, first, last in spans(tags):
        prefixes = [begin, *inside * (last - first - 1), end] if last > first else [single]
        if scheme == "IOB1" and before == (kind, first - 1):
            prefixes[0] = "B"
        written[first : last + 1] = prefixes if kind == UNTYPED else [f"{prefix}-{kind}" for prefix in prefixes]
        before = kind, last
    return written


def scheme(sentences: Sequence[Sequence[str]]) -> Scheme:
    """Return the first scheme that writes these tags exactly, or else the one that has their prefixes."""
    for name in LETTERS:
        if all(converted(tags, name) == list(tags) for tags in sentences):
            return name
    prefixes = {tag[0] for tag in chain.from_iterable(sentences)}
    return "BILOU" if prefixes & set("LU") else "IOBES" if prefixes & set("ES") else "IOB2"


def span_f1(
    gold: Sequence[Sequence[str | None]], predicted: Sequence[Sequence[str]], strict: Scheme | None = None
) -> dict[str, Any]:
    """Return precision, recall and F1 of all spans, and of each type under `types`; a missing gold tag counts as O."""
    right, guessed, wanted = Counter[str](), Counter[str](), Counter[str]()
    for true, tags in zip(gold, predicted, strict=True):
        golden = spans((tag or "O" for tag in true), strict)
        guesses = spans((tag if known else "O" for tag, known in zip(tags, true, strict=True)), strict)
        wanted.update(kind for kind, _, _ in golden)
        guessed.update(kind for kind, _, _ in guesses)
        right.update(kind for kind, _, _ in set(golden) & set(guesses))
    types = {kind: _rates(right[kind], guessed[kind], wanted[kind]) for kind in sorted(wanted | guessed)}
    return _rates(right.total(), guessed.total(), wanted.total()) | {"types": types}


def by_tag(gold: Sequence[Sequence[str | None]], predicted: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    pairs = [(t, p) for true, tags in zip(gold, predicted, strict=True) for t, p in zip(true, tags, strict=True) if t]
    wanted, guessed = Counter(t for t, _ in pairs), Counter(p for _, p in pairs)
    right = Counter(t for t, p in pairs if t == p)
    return {tag: _rates(right[tag], guessed[tag], wanted[tag]) for tag in sorted(wanted | guessed)}


def accuracy(gold: Sequence[Sequence[str | None]], predicted: Sequence[Sequence[str]]) -> float:
    known = [t == p for true, tags in zip(gold, predicted, strict=True) for t, p in zip(true, tags, strict=True) if t]
    return sum(known) / max(1, len(known))


@cache
def _apart(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "O", UNTYPED
    if not (match := _TAG.fullmatch(tag)):
        raise ValueError(f"tag: found {tag!r}; wanted O, or B, I, E, S, L, U with a type after it, such as B-PER")
    return {"L": "E", "U": "S"}.get(match[1], match[1]), match[2] or UNTYPED


def _rates(right: int, predicted: int, gold: int) -> dict[str, float]:
    precision, recall = right / max(1, predicted), right / max(1, gold)
    f1 = 2 * right / max(1, predicted + gold)
    return {"precision": precision, "recall": recall, "f1": f1, "gold": gold, "predicted": predicted, "right": right}

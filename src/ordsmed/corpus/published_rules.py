"""Rules of papers for documents: their thresholds, set by hand or from the corpus, and words as these papers count
them.

    "It's John's (well-known) U.S. shop."  ->  It 's John 's ( well - known ) U.S. shop .

The code of these papers counts words with spaCy's English tokenizer. This one uses the same kinds of rules without its
word lists: prefixes and suffixes of symbols, clitics, infixes between letters, abbreviations. In scripts without spaces
every ideograph is a word.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from ordsmed.base.checks import at_least
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many, say
from ordsmed.text.document import Document
from ordsmed.text.read import tally

FEWEST = 100  # least documents of a language from which thresholds are set
UNTOLD = "und"  # language of a document without a language
LONGEST = 200  # characters without white space to which all rules apply
DIGITS = 4  # decimals of a threshold

_SIGN = r"[^\w\s]|_"
_OPENS = re.compile(rf"\.\.+|…+|(?:{_SIGN})")
_CLOSES = re.compile(rf"(?:\.\.+|…+|['’](?:s|S)|(?![.]){_SIGN}|(?<=[^\W_A-Z])\.|(?<=[A-Z][A-Z])\.|(?<=[^\w\s.])\.)\Z")
_CLITIC = re.compile(r"(?<=[^\W\d_])(?:n['’]t|['’](?:ll|re|ve|d|m))\Z", re.IGNORECASE)
_UNIT = re.compile(r"(?<=\d)(?:km|m|cm|mm|kg|g|mg|lb|oz|ft|in|kb|mb|gb|tb|hz|k|ha|h|pm|am|%|\$|€|£)\Z", re.IGNORECASE)
_BETWEEN = re.compile(
    r"(\.\.+|…+|(?<=[^\W\d_])(?:--+|[,—–])(?=[^\W\d_])|(?<=[^\W_])[-~](?=[^\W\d_])|(?<=[^\W_])[:<>=/](?=[^\W\d_])"
    r"|(?<=\d)[-+*^](?=[\d-])|(?<=[^\W\d_A-Z])\.(?=[A-Z]))"
)
_ADDRESS = re.compile(
    r"(?:[a-z]+://|www\.)\S+\.[a-z]{2,}\S*|[\w.+-]+@[\w-]+\.[\w.-]+|(?:[\w-]+\.)+(?:com|org|net|edu|gov|no)",
    re.IGNORECASE,
)
_IDEOGRAPH = re.compile("[\u3005-\u3007\u3040-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_PLAIN = re.compile(rf"[^\W_]+|{_SIGN}")
_NAMED = """mr. mrs. ms. dr. st. jr. sr. prof. vs. e.g. i.e. a.m. p.m. jan. feb. mar. apr. jun. jul. aug. sep. sept.
    oct. nov. dec. co. corp. inc. ltd. gov. gen. rep. rev. mt. messrs. bros. adm. ph.d. ca. o'clock ma'am"""
_ABBREVIATIONS = frozenset(_NAMED.split())


def words(text: str) -> list[str]:
    return [word for run in text.split() for word in _parts(run)]


@functools.lru_cache(1 << 17)
def _parts(run: str) -> tuple[str, ...]:
    if run.isalpha() and not (_IDEOGRAPH.search(run) or run.lower() == "cannot"):
        return (run,)
    if len(run) > LONGEST:
        return tuple(_PLAIN.findall(run))
    prefixes, suffixes = list[str](), list[str]()
    while run and not _whole(run):
        if (run[0] not in "…." and (match := _OPENS.match(run))) or (match := re.match(r"\.\.+|…+|\.(?!\d)", run)):
            prefixes.append(match[0])
            run = run[match.end() :]
        elif match := _CLOSES.search(run) or _CLITIC.search(run) or _UNIT.search(run):
            suffixes.append(match[0])
            run = run[: match.start()]
        else:
            break
    inner = [run] if not run or _whole(run) else _inner(run)
    return tuple(part for part in (*prefixes, *inner, *reversed(suffixes)) if part)


def _whole(run: str) -> bool:
    return run.lower() in _ABBREVIATIONS or _ADDRESS.fullmatch(run) is not None


def _inner(run: str) -> list[str]:
    if run.lower() == "cannot":
        return [run[:3], run[3:]]
    if _IDEOGRAPH.search(run):
        run = _IDEOGRAPH.sub(lambda match: f" {match[0]} ", run)
        return [part for piece in run.split() for part in _BETWEEN.split(piece)]
    return _BETWEEN.split(run)


# Unicode's Sentence_Terminal
_TERMINALS = """21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e 1735-1736
    17d4-17d6 17d9-17da 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1b7d-1b7e 1c3b-1c3c 1c7e-1c7f 203c-203d
    2047-2049 2e2e 2e3c 2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1
    abeb fe52 fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143
    111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642
    1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c 11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38
    16b44 16e98 1bc9f 1da88"""


@functools.cache
def stops() -> tuple[str, ...]:
    """Return the characters of all scripts that end a sentence."""
    ranges = (code.partition("-") for code in _TERMINALS.split())
    return tuple(chr(code) for first, _, last in ranges for code in range(int(first, 16), int(last or first, 16) + 1))


def count_sentences(parts: Iterable[str]) -> int:
    """Count the sentences in words and symbols. A sentence begins with the first word after a separate stop."""
    count, ended = 0, True
    for part in parts:
        if len(part) == 1 and part in stops():
            count, ended = count or 1, True
        elif ended and (count == 0 or any(map(str.isalnum, part))):
            count, ended = count + 1, False
    return count


def is_sign(word: str) -> bool:
    return not any(char.isalnum() or not _is_punctuation(char) for char in word)


@functools.lru_cache(1 << 12)
def _is_punctuation(char: str) -> bool:
    import unicodedata

    return char.isascii() or unicodedata.category(char)[0] in "PC"


def repeated(parts: Sequence[str]) -> tuple[int, int]:
    """Return how many parts occurred before, and their characters."""
    seen, count, characters = set[str](), 0, 0
    for part in parts:
        if part in seen:
            count, characters = count + 1, characters + len(part)
        seen.add(part)
    return count, characters


@dataclass(frozen=True)
class PublishedRules:
    """Base class for the rules of a paper: thresholds, per language if needed, set by hand or on a sample."""

    tail: float = 0.0
    "set thresholds on a sample so that this share of a language's documents breaks each; 0: use the given thresholds"
    rules: tuple[str, ...] = ()
    "rules whose thresholds `tail` sets; default: all"
    sample: int = 5000
    "number of documents in that sample"
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    'other thresholds for a language (meta["language"]): limits.nb.new_lines = 0.4'

    LEAST: ClassVar[frozenset[str]] = frozenset()  # rules with a lower bound; the others have an upper bound
    RULES: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        at_least(self, "at least {}", sample=1, **dict.fromkeys(self.RULES, 0))
        if not 0 <= self.tail < 1:
            raise ValueError(f"tail: found {self.tail}; wanted a share of at least 0 and below 1")
        if self.tail and self.sample < FEWEST:
            raise ValueError(f"sample: found {self.sample}, too few to set thresholds; wanted {FEWEST} or more")
        named = [("rules", rule, rule) for rule in self.rules]
        named += [("limits", f"{name}.{rule}", rule) for name, limits in self.limits.items() for rule in limits]
        for location, written, rule in named:
            if rule not in self.RULES:
                raise ValueError(f"{location}: found {written}; wanted one of {', '.join(self.RULES)}")

    def measures(self, text: str, language: str) -> Iterator[tuple[str, float]]:
        """Yield rules and their values for a text, in order."""
        raise NotImplementedError

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        return self.bounded(self.prepared(text), meta)

    def bounded(self, text: str, meta: dict[str, Any]) -> str | None:
        """Return the text if it keeps all rules. Otherwise count the first broken rule and return None."""
        language = language_of(meta)
        limits = self.limits.get(language, {})
        for rule, value in self.measures(text, language):
            limit = limits.get(rule, getattr(self, rule))
            if value < limit if rule in self.LEAST else value > limit:
                tally().left_out[f"{kind_of(self)}: {rule.replace('_', ' ')}"] += 1
                return None
        return text

    def prepared(self, text: str) -> str:
        return text

    def sampled(self) -> int:
        return self.sample if self.tail else 0

    def fitted(self, documents: Sequence[Document]) -> Self:
        """Return a copy with thresholds that the share `tail` of the documents of each language breaks."""
        limits = dict(self.limits)
        for language, texts in by_language(documents).items():
            if len(texts) < FEWEST:
                say(f"{kind_of(self)}: {language}: {many(len(texts), 'document')} in a sample are too few")
            else:
                limits[language] = self._of_language(texts, language) | self.limits.get(language, {})
        return replace(self, tail=0.0, limits=limits)

    def _of_language(self, texts: Sequence[str], language: str) -> dict[str, float]:
        import numpy as np

        values = defaultdict[str, list[float]](list)
        for text in texts:
            for rule, value in self.measures(self.prepared(text), language):
                values[rule].append(value)
        return {
            rule: round(float(np.quantile(of_rule, self.tail if rule in self.LEAST else 1 - self.tail)), DIGITS)
            for rule, of_rule in values.items()
            if rule in (self.rules or self.RULES)
        }


def language_of(meta: Mapping[str, Any]) -> str:
    return str(meta.get("language", UNTOLD))


def by_language(documents: Iterable[Document]) -> dict[str, list[str]]:
    texts = defaultdict[str, list[str]](list)
    for document in documents:
        texts[language_of(document.meta)].append(document.text)
    return dict(sorted(texts.items()))


def frequent(texts: Iterable[str], least: float, fewest: int) -> list[str]:
    """Return the words with a share of at least `least`, or the `fewest` most frequent ones if these are more."""
    counts = Counter(word.lower() for text in texts for word in words(text) if word.isalpha())
    total = sum(counts.values())
    order = sorted(counts, key=lambda word: (-counts[word], word))
    return order[: max(fewest, sum(count >= least * total for count in counts.values()))]

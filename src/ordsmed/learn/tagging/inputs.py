"""Features of sentences: tokens, in windows if sentences are long, and the token of each word.

A word's tag is learned and predicted at its first token, or at its last token by a causal network. A long sentence is
read in windows that overlap, and each word is predicted in the window in which it has the most context.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.data.features import NOT_ASKED, Features, Text, framed
from ordsmed.data.pieces import SPECIAL_WORDS, Ints, TextReader
from ordsmed.data.question_windows import Limits, QuestionWindows, windows
from ordsmed.learn.score import spans
from ordsmed.learn.tagging.tags import OTHER_COLUMN, check_spans, in_scheme
from ordsmed.text.labelled.conll import TaggedSentences

AT_ONCE = 1 << 20  # tokens of windows that are compared at a time


def features(
    records: TaggedSentences,
    reader: TextReader,
    length: int,
    stride: int | None,
    labels: Sequence[str],
    scheme: spans.Scheme | None,
) -> Features:
    """Return sentences in rows of at most `length` tokens; without a stride, windows share half of their tokens."""
    cut = _cut(records.words, reader)
    special = reader.frame.joint(two=False)
    stride = stride or max(1, (length - special) // 2)
    nothing = np.zeros(len(records), np.int64)
    parts = windows(nothing, np.diff(cut.starts), Limits(length, stride, longest_question=1), special)
    begin = cut.starts[parts.question]
    text = Text(cut.ids, begin + parts.first, begin + parts.last + 1)
    starts, ids, types, [front] = framed(reader.frame, text)
    example = _best_windows(parts, cut.starts)[cut.words]
    location = cut.words - text.first[example] + front[example]
    marks = None
    if any(tag is not None for tag in chain.from_iterable(records.tags)):
        marks = np.full(len(ids), NOT_ASKED, np.int32)
        marks[starts[example] + location] = _codes(records, labels, scheme)
    characters, words = reader.listed() or (None, None)
    more = {"example": example.astype(np.int32), "place": location.astype(np.int32)}
    known = types if reader.types else None
    return Features(starts, ids.astype(np.int32), known, marks, characters=characters, words=words, more=more)


def _codes(records: TaggedSentences, labels: Sequence[str], scheme: spans.Scheme | None) -> NDArray[np.int32]:
    """Return the number of each word's label; NOT_ASKED for words without a tag or with a tag that is not learned."""
    if spans.is_spans(labels):
        check_spans(records, records.tags)
    known = {label: number for number, label in enumerate(labels)}
    strange: Counter[str] = Counter()
    codes = np.empty(sum(map(len, records.words)), np.int32)
    for at, tag in enumerate(chain.from_iterable(in_scheme(tags, scheme) for tags in records.tags)):
        codes[at] = known.get(tag, NOT_ASKED) if tag is not None else NOT_ASKED
        if tag is not None and tag not in known:
            strange[tag] += 1
    if strange:
        listed = ", ".join(f"{tag} ({count:,})" for tag, count in strange.most_common(5))
        rest = f" and {many(len(strange) - 5, 'other')}" if len(strange) > 5 else ""
        if not (codes != NOT_ASKED).any():
            files = ", ".join(str(source.path) for source in records.sources)
            problem = f"none of its {many(strange.total(), 'tag')} is known to the model: {listed}{rest}"
            raise DataError(files, problem, f"tags such as {', '.join(labels[:5])}", OTHER_COLUMN)
        count = many(strange.total(), "word", "has", "have")
        say(f"{records.starts[0]}: {count} tags that are not learned: {listed}{rest}")
    return codes


@dataclass(frozen=True)
class _Tokens:
    """The tokens of sentences, end to end; every word has a token."""

    starts: Ints  # [S + 1]
    ids: Ints
    words: Ints  # [W]  the token of each word at which its tag is predicted


def _cut(sentences: Sequence[Sequence[str]], reader: TextReader) -> _Tokens:
    """Assign tokens to words: a token belongs to the first word of which it covers a character.

    A word without a token gets the unknown token.
    """
    cuts = reader.pieces([" ".join(words) for words in sentences])
    sizes = np.fromiter(map(len, chain.from_iterable(sentences)), np.int64)
    ends = np.cumsum(sizes + 1) - 1  # ends of words in the joined text, with a space after each
    begins = ends - sizes
    after = np.cumsum(np.fromiter(map(len, sentences), np.int64))  # the end of each sentence, in words
    first = np.concatenate([[0], after])
    counts = np.diff(cuts.starts)
    before = np.repeat(begins[first[:-1]], counts)
    left, right = cuts.left + before, cuts.right + before
    spelled = np.flatnonzero(sizes)
    owner = np.append(spelled, len(sizes))[np.searchsorted(ends[spelled], left, "right")]
    owner = np.maximum.accumulate(np.minimum(owner, np.repeat(after - 1, counts)))
    covers = np.flatnonzero(np.maximum(left, begins[owner]) < np.minimum(right, ends[owner]))
    words = np.full(len(sizes), -1, np.int64)
    covers = covers if reader.causal else covers[::-1]  # of several tokens of a word, the last assignment remains
    words[owner[covers]] = covers
    tokens = _Tokens(cuts.starts, cuts.ids, words)
    return _with_unknown(tokens, owner, first, list(chain.from_iterable(sentences)), reader)


def _with_unknown(cut: _Tokens, owner: Ints, first: Ints, spelled: list[str], reader: TextReader) -> _Tokens:
    """Insert the unknown token for each word that has no token.

    `first` is the first word of each sentence, `owner` the word of each token.
    """
    bare = np.flatnonzero(cut.words < 0)
    if not len(bare):
        return cut
    at = np.searchsorted(owner, bare, "right")
    words = cut.words + np.searchsorted(at, cut.words, "right")
    words[bare] = at + np.arange(len(bare))
    starts = cut.starts + np.searchsorted(bare, first)
    return _Tokens(starts, np.insert(cut.ids, at, [_unknown(spelled[word], reader) for word in bare]), words)


def _unknown(word: str, reader: TextReader) -> int:
    tokenizer = reader.tokenizer
    if tokenizer.whole_words:
        return reader.words.setdefault(word.encode(), len(SPECIAL_WORDS) + len(reader.words))
    for number in (tokenizer.unknown, tokenizer.mask, tokenizer.end):
        if number is not None:
            return number
    raise RecipeError("tokenizer", f"has no tokens for the word {word!r} and no unknown token", "an unknown token")


def _best_windows(cut: QuestionWindows, starts: Ints) -> Ints:
    """Return, for each token of all sentences, the window in which it has the most context."""
    counts = np.bincount(cut.question, minlength=len(starts) - 1)
    best = np.repeat(np.cumsum(counts) - counts, np.diff(starts))
    several = np.flatnonzero(counts[cut.question] > 1)
    width = int((cut.last - cut.first + 1)[several].max(initial=1))
    for chosen in np.array_split(several, -(-len(several) * width // AT_ONCE) or 1):
        window, location = np.nonzero(cut.positions(chosen, np.zeros(len(chosen), np.int64), width)[1])
        window = chosen[window]
        best[starts[cut.question[window]] + cut.first[window] + location] = window
    return best

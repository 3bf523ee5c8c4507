"""RoBERTa's rows: every sentence once an epoch with its sign, whole, as many as fit; against a plain loop."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.data import windows as module
from ordsmed.data.rows import Frame
from ordsmed.data.sentences import LineRows

START, PAD, STOP = 0, 1, 2
FIRST = 10  # the first id of a text: its tokens are FIRST, FIRST + 1, ... so that each is known by its id


@dataclass(frozen=True)
class Source:
    """A store in memory whose tokens are all different."""

    documents: list[list[int]]
    tokens: np.ndarray
    document_starts: np.ndarray
    starts: np.ndarray

    @staticmethod
    def of(documents: list[list[int]], first: int = FIRST) -> Source:
        ends = np.cumsum([0, *(sum(d) for d in documents)])
        starts = np.cumsum([0, *(s for d in documents for s in d)])
        return Source(documents, np.arange(first, first + ends[-1]), ends, starts)

    def sentences(self) -> list[list[list[int]]]:
        """The ids of every sentence of every document."""
        ids = iter(self.tokens.tolist())
        return [[[next(ids) for _ in range(size)] for size in document] for document in self.documents]


sizes = st.integers(1, 6) | st.integers(1, 40)
sources = st.lists(st.lists(sizes, min_size=1, max_size=6), min_size=1, max_size=8).map(Source.of)
lengths, crossings = st.integers(3, 24), st.booleans()


def rows_of(found: list[Source], length: int, *, cross: bool, weights: list[float] | None = None) -> LineRows:
    return LineRows(found, weights or [1.0] * len(found), Frame(length, START, STOP, PAD), 7, 0, cross=cross)


def in_order(rows: LineRows) -> list[list[int]]:
    """An epoch's rows without padding, in the order of the store."""
    found = rows.assembled(np.arange(len(rows)))
    made = [tokens[tokens != PAD].tolist() for tokens in found.tokens]
    place = rows.blend.place(np.arange(len(rows)))[1]
    return [made[n] for n in np.argsort(place)]


def by_hand(source: Source, length: int, *, cross: bool) -> list[list[int]]:
    """fairseq's loop over the lines of a file, an empty one between documents; a row of a sign alone is left out."""
    room, lines = length - 1, []
    for number, document in enumerate(source.sentences()):
        if number:
            lines.append([STOP])
        for sentence in document:
            parts = [sentence[a : a + room - 1] for a in range(0, len(sentence), room - 1)]
            lines += [[*part, STOP] for part in parts]
    rows: list[list[int]] = []
    current: list[int] = []
    for line in lines:
        border = line == [STOP] and not cross
        if current and (border or len(current) + len(line) > room):
            rows.append(current)
            current = []
        if not border:
            current = current + line
    rows.append(current)
    return [[START, *row] for row in rows if row != [STOP]]


@given(sources, lengths, crossings)
def test_against_a_plain_loop(source: Source, length: int, cross: bool) -> None:
    assert in_order(rows_of([source], length, cross=cross)) == by_hand(source, length, cross=cross)


@given(sources, lengths)
def test_one_sentence_a_row(source: Source, length: int) -> None:
    rows = LineRows([source], [1.0], Frame(length, START, STOP, PAD), 7, 0, cross=False, alone=True)
    room = length - 2
    sentences = [sentence for document in source.sentences() for sentence in document]
    parts = [one[a : a + room] for one in sentences for a in range(0, len(one), room)]
    assert in_order(rows) == [[START, *part, STOP] for part in parts]


def test_against_a_plain_loop_in_longer_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    for length in (12, 33, 128):
        source = Source.of([generator.integers(1, 45, generator.integers(1, 30)).tolist() for _ in range(60)])
        for cross in (True, False):
            wanted = by_hand(source, length, cross=cross)
            assert in_order(rows_of([source], length, cross=cross)) == wanted
            with monkeypatch.context() as patch:
                patch.setattr(module, "BLOCK", 1)
                assert in_order(rows_of([source], length, cross=cross)) == wanted, "blocks do not show"


@given(sources, lengths, crossings, st.integers(0, 2))
def test_what_rows_are(source: Source, length: int, cross: bool, epoch: int) -> None:
    rows = rows_of([source], length, cross=cross)
    found = rows.assembled(np.arange(len(rows)) + epoch * len(rows))
    assert np.sort(found.tokens[found.inner]).tolist() == source.tokens.tolist(), "every token once an epoch"
    real = found.documents > 0
    assert (found.documents == real).all(), "all tokens of a row see each other"
    assert (found.tokens[~real] == PAD).all()
    assert not found.positions[~real].any()
    assert (found.tokens[:, 0] == START).all()
    assert np.isin(found.tokens[real & ~found.inner], (START, STOP)).all()
    borders = source.document_starts[1:-1] + FIRST
    ends = source.starts[1:] + FIRST - 1
    for tokens, inner, positions, there in zip(found.tokens, found.inner, found.positions, real, strict=True):
        size = int(there.sum())
        assert there[:size].all(), "padding stands last"
        assert inner.any(), "no row without text"
        assert positions[:size].tolist() == list(range(size))
        assert tokens[size - 1] == STOP
        text = tokens[inner]
        assert text.tolist() == list(range(text[0], text[-1] + 1)), "in the store's order"
        for place in np.flatnonzero(inner):
            if tokens[place] in ends:
                assert tokens[place + 1] == STOP
            if tokens[place] in borders and tokens[place - 1] == STOP and place > 2:
                assert cross
                assert tokens[place - 2] == STOP, "one sign more between documents"
        assert cross or not set(borders) & set(text[1:].tolist())


@given(sources, lengths, crossings)
def test_the_next_sentence_would_not_have_fitted(source: Source, length: int, cross: bool) -> None:
    made, starts = in_order(rows_of([source], length, cross=cross)), source.starts + FIRST
    for row, after in itertools.pairwise(made):
        begin = next(t for t in after if t >= FIRST)
        if begin in source.document_starts + FIRST and not cross:
            continue
        number = int(np.searchsorted(starts, begin, "right"))
        assert len(row) + min(int(starts[number]) - begin, length - 2) + 1 > length


def test_by_hand() -> None:
    source = Source.of([[3, 2], [2], [7]])
    assert in_order(rows_of([source], 12, cross=True)) == [
        [START, 10, 11, 12, STOP, 13, 14, STOP, STOP, 15, 16, STOP],
        [START, STOP, 17, 18, 19, 20, 21, 22, 23, STOP],
    ]
    assert in_order(rows_of([source], 11, cross=True)) == [
        [START, 10, 11, 12, STOP, 13, 14, STOP, STOP],
        [START, 15, 16, STOP, STOP],
        [START, 17, 18, 19, 20, 21, 22, 23, STOP],
    ]
    assert in_order(rows_of([source], 11, cross=False)) == [
        [START, 10, 11, 12, STOP, 13, 14, STOP],
        [START, 15, 16, STOP],
        [START, 17, 18, 19, 20, 21, 22, 23, STOP],
    ]
    long = Source.of([[4], [2]])
    assert in_order(rows_of([long], 4, cross=True)) == [
        [START, 10, 11, STOP],
        [START, 12, 13, STOP],
        [START, 14, 15, STOP],
    ], "the sign between documents is no row by itself"


@given(st.lists(sources, min_size=1, max_size=3), lengths, crossings, st.data())
def test_a_row_is_the_same_in_any_batch(found: list[Source], length: int, cross: bool, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 1), min_size=len(found), max_size=len(found)))
    numbers = np.asarray(data.draw(st.lists(st.integers(0, 30_000), min_size=1, max_size=8)))
    rows = rows_of(found, length, cross=cross, weights=weights)
    together = rows.assembled(numbers)
    for index, number in enumerate(numbers):
        alone = rows.assembled(np.asarray([number]))
        for name in ("tokens", "documents", "positions", "inner"):
            assert np.array_equal(getattr(together, name)[index], getattr(alone, name)[0]), name


@given(st.lists(sources, min_size=1, max_size=2), lengths, crossings)
def test_spans_tell_what_rows_hold(found: list[Source], length: int, cross: bool) -> None:
    rows = rows_of(found, length, cross=cross)
    for number in range(6):
        row, spans = rows.assembled(np.asarray([number])), rows.spans(np.asarray([number]))
        told = [t for s in spans for t in found[s.source].tokens[s.start : s.stop].tolist()]
        assert told == row.tokens[row.inner].tolist()
        assert {s.number for s in spans} == {number}
        for span in spans:
            starts = found[span.source].document_starts
            assert starts[span.document] <= span.start < span.stop <= starts[span.document + 1]

"""Rows: every token once per epoch, computed from the row's number alone, whatever the batch."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.makers import Source
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.rows import PATTERN, Blend, Frame, PackedRows, Stream, StreamRows, assemble, see
from ordsmed.data.windows import DocumentPieces, windows

CLS, SEP, PAD, END = 1, 2, 0, 3
FIRST = 10  # the first id of a text: its tokens are FIRST, FIRST + 1, ... so that each is known by its id


sources = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=5), min_size=1, max_size=10).map(Source.of)


def packed(
    found: list[Source], length: int, *, pack: bool = True, sentences: bool = False, weights: list[float] | None = None
) -> PackedRows:
    frame = Frame(length, CLS, SEP, PAD)
    return PackedRows(
        found,
        weights or [1.0] * len(found),
        frame,
        lambda s: windows(s.document_starts, s.starts, room=length - 2, joint=2, pack=pack, sentences=sentences),
        7,
        0,
    )


def test_assemble_by_hand() -> None:
    source = Source.of([[3], [2], [4]])
    pieces = DocumentPieces(*(np.asarray(x) for x in ([0, 0, 1], [0, 1, 2], [1, 3, 5], [3, 5, 9])))
    found = assemble(source.tokens, pieces, 2, Frame(9, CLS, SEP, PAD))
    assert found.tokens.tolist() == [
        [CLS, 11, 12, SEP, CLS, 13, 14, SEP, PAD],
        [CLS, 15, 16, 17, 18, SEP, PAD, PAD, PAD],
    ]
    assert found.documents.tolist() == [[1, 1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 0, 0, 0]]
    assert found.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 5, 0, 0, 0]]
    assert found.inner.astype(int).tolist() == [[0, 1, 1, 0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0, 0, 0, 0]]


def test_assemble_with_other_frames() -> None:
    source = Source.of([[3], [2]])
    pieces = DocumentPieces(*(np.asarray(x) for x in ([0, 0], [0, 1], [0, 3], [3, 5])))
    assert assemble(source.tokens, pieces, 1, Frame(6, None, None, 9)).tokens.tolist() == [[10, 11, 12, 13, 14, 9]]
    after = assemble(source.tokens, pieces, 1, Frame(8, None, SEP, PAD))
    assert after.tokens.tolist() == [[10, 11, 12, SEP, 13, 14, SEP, PAD]]
    assert (Frame(8, None, SEP, PAD).joint, Frame(8, CLS, SEP, PAD).joint, Frame(8, None, None, PAD).joint) == (1, 2, 0)


def test_see() -> None:
    assert see(np.ones((2, 3), np.int32)) is None
    mixed = np.asarray([[1, 1, 1], [1, 1, 0]], np.int32)
    assert see(mixed) is mixed


@given(sources, st.integers(5, 40), st.booleans(), st.booleans(), st.integers(0, 2))
def test_every_token_once_an_epoch(source: Source, length: int, pack: bool, sentences: bool, epoch: int) -> None:
    rows = packed([source], length, pack=pack, sentences=sentences)
    found = rows.assembled(np.arange(len(rows)) + epoch * len(rows))
    assert np.sort(found.tokens[found.inner]).tolist() == source.tokens.tolist()
    owner = np.repeat(np.arange(len(source.document_starts) - 1), np.diff(source.document_starts))
    for tokens, documents, positions, inner in zip(
        found.tokens, found.documents, found.positions, found.inner, strict=True
    ):
        for number in range(1, documents.max() + 1):
            at = np.flatnonzero(documents == number)
            assert np.array_equal(at, np.arange(at[0], at[-1] + 1))
            assert positions[at].tolist() == list(range(len(at)))
            assert (tokens[at[0]], tokens[at[-1]]) == (CLS, SEP)
            text = tokens[at[1:-1]]
            assert inner[at[1:-1]].all()
            assert np.array_equal(text, np.arange(text[0], text[0] + len(text))) if len(text) else True
            assert len(np.unique(owner[text - FIRST])) <= 1
        assert (tokens[documents == 0] == PAD).all()
        assert not inner[documents == 0].any()
        assert pack or documents.max() == 1


@given(sources, st.integers(2, 24), st.booleans(), st.integers(0, 2))
def test_a_stream_asks_for_every_token_once(source: Source, length: int, pack: bool, epoch: int) -> None:
    rows = StreamRows([source], [1.0], length, END, 7, 0, pack=pack)
    found = rows.assembled(np.arange(len(rows)) + epoch * len(rows))
    assert found.tokens.shape == (len(rows), length + 1)
    asked = found.inner[:, 1:]
    before, after = found.tokens[:, :-1][asked], found.tokens[:, 1:][asked]
    documents = [
        source.tokens[a:b].tolist() for a, b in zip(source.document_starts, source.document_starts[1:], strict=False)
    ]
    pairs = [pair for d in documents for pair in zip([END, *d], [*d, END], strict=True)]
    assert Counter(zip(before.tolist(), after.tolist(), strict=True)) == Counter(pairs)
    assert (found.tokens[~found.inner] == END).all()
    assert not found.documents[~found.inner].any()
    assert (np.diff(found.inner.astype(int), axis=1) <= 0).all(), "what is over is over"
    for tokens, numbers, positions, inner in zip(
        found.tokens, found.documents, found.positions, found.inner, strict=True
    ):
        assert numbers[0] == 1
        changes = np.flatnonzero(np.diff(numbers[inner])) + 1
        assert (tokens[changes] == END).all(), "a document begins with the end of the one before"
        for number in np.unique(numbers[inner]):
            at = np.flatnonzero((numbers == number) & inner)
            assert positions[at].tolist() == list(range(len(at)))
            if number > 1:
                assert tokens[at[0]] == END
        assert pack or (np.flatnonzero(tokens[inner][1:] == END) == inner.sum() - 2).all()


def test_a_stream_by_hand() -> None:
    """Documents 10 11 12 and 13 14: * 10 11 12 * 13 14 *"""
    source = Source.of([[3], [2]])
    stream = Stream.of(source.document_starts, 4, pack=True)
    assert len(stream) == 2
    rows = StreamRows([source], [1.0], 4, END, 0, pack=True)
    order = rows.blend.place(np.arange(2))[1].argsort()
    found = rows.assembled(order)
    assert found.tokens.tolist() == [[END, 10, 11, 12, END], [END, 13, 14, END, END]]
    assert found.inner.astype(int).tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert found.documents.tolist() == [[1, 1, 1, 1, 2], [1, 1, 1, 2, 0]]
    assert found.positions.tolist() == [[0, 1, 2, 3, 0], [0, 1, 2, 0, 0]]


@given(st.lists(sources, min_size=1, max_size=3), st.integers(5, 30), st.data())
def test_a_row_is_the_same_in_any_batch(found: list[Source], length: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0.1, 1), min_size=len(found), max_size=len(found)))
    numbers = np.asarray(data.draw(st.lists(st.integers(0, 3 * PATTERN), min_size=1, max_size=8)))
    for rows in (packed(found, length, weights=weights), StreamRows(found, weights, length, END, 7, 0, pack=True)):
        together = rows.assembled(numbers)
        for index, number in enumerate(numbers):
            alone = rows.assembled(np.asarray([number]))
            for name in ("tokens", "documents", "positions", "inner"):
                assert np.array_equal(getattr(together, name)[index], getattr(alone, name)[0]), name


@given(st.lists(sources, min_size=1, max_size=2), st.integers(5, 30), st.booleans())
def test_spans_tell_what_rows_hold(found: list[Source], length: int, pack: bool) -> None:
    for rows in (packed(found, length, pack=pack), StreamRows(found, [1.0] * len(found), length, END, 7, 0, pack=pack)):
        for number in range(6):
            row, spans = rows.assembled(np.asarray([number])), rows.spans(np.asarray([number]))
            told = [t for s in spans for t in found[s.source].tokens[s.start : s.stop].tolist()]
            text = row.tokens[0]
            assert told == text[text >= FIRST].tolist()
            assert {s.number for s in spans} <= {number}
            for span in spans:
                starts = found[span.source].document_starts
                assert starts[span.document] <= span.start <= span.stop <= starts[span.document + 1]


@pytest.mark.parametrize("weights", [[1, 1], [0.7, 0.3], [3, 1, 1], [0.9999, 0.0001], [1 / 3, 1 / 3, 1 / 3]])
def test_a_blend_keeps_its_weights(weights: list[float]) -> None:
    sizes = [37, 211, 1009][: len(weights)]
    blend = Blend(sizes, weights, 3, 0)
    for block in (0, 1, 17):
        source, _ = blend.place(np.arange(PATTERN) + block * PATTERN)
        for k, weight in enumerate(weights):
            wanted = Fraction(weight) / sum(map(Fraction, weights)) * PATTERN
            assert abs((source == k).sum() - wanted) < 1
    first = np.asarray([(source[: PATTERN // 10] == k).sum() / (PATTERN // 10) for k in range(len(weights))])
    assert np.abs(first - np.asarray(weights) / sum(weights)).max() < 0.06  # mixed, not one after the other


def test_a_blend_takes_each_row_once_an_epoch_of_its_source() -> None:
    sizes = [37, 211]
    blend = Blend(sizes, [0.25, 0.75], 3, 0)
    source, rows = blend.place(np.arange(3 * PATTERN + 17))
    for k, size in enumerate(sizes):
        own = rows[source == k]
        epochs = len(own) // size
        assert epochs > 30
        whole = own[: epochs * size].reshape(epochs, size)
        assert (np.sort(whole, axis=1) == np.arange(size)).all()
        assert (whole[0] != whole[1]).any()
    one = Blend([37], [5.0], 3, 0)
    assert np.sort(one.place(np.arange(37) + 74)[1]).tolist() == list(range(37))


def test_blends_that_cannot_be() -> None:
    with pytest.raises(DataError, match="source 2: has no row of this length"):
        Blend([3, 0], [1, 1])
    for weights in ([1.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [0.0, 0.0]):
        with pytest.raises(RecipeError, match=r"data: found weights .*; wanted weights above 0"):
            Blend([3, 3], weights)


def test_other_keys_give_another_order() -> None:
    source = Source.of([[20, 20]] * 30)
    one, other = packed([source], 12), packed([source], 12)
    other.blend.key = (8, 0)
    numbers = np.arange(50)
    assert np.array_equal(one.assembled(numbers).tokens, packed([source], 12).assembled(numbers).tokens)
    assert not np.array_equal(one.assembled(numbers).tokens, other.assembled(numbers).tokens)


def test_equal_sources_are_gone_through_in_orders_of_their_own() -> None:
    """Two copies of one text in a blend: a row of the one is not followed by the same row of the other."""
    blend = Blend([500, 500], [1, 1], 3, 0)
    source, rows = blend.place(np.arange(1000))
    one, other = (rows[source == k] for k in (0, 1))
    size = min(len(one), len(other))
    assert (one[:size] == other[:size]).mean() < 0.05


def test_a_blend_goes_on_over_its_pattern() -> None:
    blend = Blend([37, 211], [0.25, 0.75], 3, 0)
    numbers = np.arange(2 * PATTERN + 100)
    source, count = blend.counted(numbers)
    for k in (0, 1):
        assert count[source == k].tolist() == list(range(int((source == k).sum())))
    assert np.array_equal(source[:100], source[PATTERN : PATTERN + 100])
    assert [(source[:PATTERN] == k).sum() for k in (0, 1)] == [2500, 7500]


def test_the_order_of_rows_stays_from_version_to_version() -> None:
    source, rows = Blend([37, 211], [0.25, 0.75], 3, 0).place(np.arange(8) + 9_996)
    assert (source.tolist(), rows.tolist()) == ([1, 1, 1, 0, 1, 1, 1, 0], [187, 74, 102, 35, 132, 134, 20, 0])
    assert Blend([9], [1.0], "epoch", 5).place(np.arange(9))[1].tolist() == [8, 1, 7, 3, 6, 5, 0, 4, 2]

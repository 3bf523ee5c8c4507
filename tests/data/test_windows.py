"""Windows: every token in one row, no row too long, sentences and documents respected."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.data import windows as module
from ordsmed.data.windows import Fitted, Packed, SentenceLines, Single, Windows, document_at, run, split, windows


@dataclass(frozen=True)
class Text:
    documents: list[list[int]]

    @functools.cached_property
    def document_starts(self) -> np.ndarray:
        return np.cumsum([0, *(sum(d) for d in self.documents)])

    @functools.cached_property
    def starts(self) -> np.ndarray:
        return np.cumsum([0, *(s for d in self.documents for s in d)])

    @functools.cached_property
    def tokens(self) -> int:
        return int(self.starts[-1])


sentence = st.integers(1, 12) | st.integers(1, 70)
texts = st.lists(st.lists(sentence, min_size=1, max_size=8), min_size=1, max_size=12).map(Text)
rooms, joints = st.integers(1, 40), st.integers(0, 2)


def spans(made: Windows) -> list[tuple[int, int]]:
    start, stop = made.spans(np.arange(len(made)))
    return list(zip(start.tolist(), stop.tolist(), strict=True))


def cost(text: Text, start: int, stop: int, joint: int) -> int:
    """Places a row takes, its first document's joint not counted."""
    touched = [
        d
        for d in range(len(text.documents))
        if max(start, text.document_starts[d]) < min(stop, text.document_starts[d + 1])
    ]
    return stop - start + joint * (max(len(touched), 1) - 1)


def check(made: Windows, text: Text, room: int, joint: int) -> None:
    found = spans(made)
    assert [t for a, b in found for t in range(a, b)] == list(range(text.tokens))
    assert all(cost(text, a, b, joint) <= room for a, b in found)
    again = [spans_of_one(made, n) for n in range(len(made))]
    assert again == found


def spans_of_one(made: Windows, row: int) -> tuple[int, int]:
    start, stop = made.spans(np.asarray([row]))
    return int(start[0]), int(stop[0])


@given(texts, rooms, joints)
def test_packed(text: Text, room: int, joint: int) -> None:
    made = Packed(text.document_starts, room, joint)
    check(made, text, room, joint)
    places = text.tokens + joint * (len(text.documents) - 1)
    assert len(made) == -(-places // room)
    if not joint:
        assert all(b - a == room for a, b in spans(made)[:-1])


@given(texts, rooms)
def test_single(text: Text, room: int) -> None:
    made = Single.of(text.document_starts, room)
    check(made, text, room, 0)
    borders = text.document_starts.tolist()
    assert all(not any(a < border < b for border in borders) for a, b in spans(made))
    assert len(made) == sum(-(-sum(d) // room) for d in text.documents)


@given(texts, rooms, joints, st.booleans())
def test_fitted(text: Text, room: int, joint: int, pack: bool) -> None:
    made = Fitted.of(text.document_starts, text.starts, room, joint, pack=pack)
    check(made, text, room, joint)
    found, starts = spans(made), text.starts.tolist()
    if not pack:
        assert all(not any(a < border < b for border in text.document_starts.tolist()) for a, b in found)
    for a, b in found:
        if a not in starts:  # only inside a sentence that is longer than a row
            number = int(np.searchsorted(text.starts, a, "right")) - 1
            assert starts[number + 1] - starts[number] > room
            assert (a - starts[number]) % room == 0
        after = next((s for s in starts if s > b), None) if b in starts else None
        if after is not None and after - b <= room and (pack or b not in text.document_starts):
            assert cost(text, a, after, joint) > room, "one more sentence would have fitted"


@given(texts, st.integers(2, 40), st.booleans())
def test_lines(text: Text, room: int, cross: bool) -> None:
    made = SentenceLines.of(text.document_starts, text.starts, room, cross=cross)
    found, parts = spans(made), made.parts(np.arange(len(made)))
    assert [t for a, b in found for t in range(a, b)] == list(range(text.tokens))
    assert [t for a, b in zip(parts.start, parts.stop, strict=True) for t in range(a, b)] == list(range(text.tokens))
    starts, borders = text.starts.tolist(), text.document_starts.tolist()
    signs = 0
    for row, (a, b) in enumerate(found):
        own = parts.row == row
        size = int(parts.led[row] + (parts.stop - parts.start + parts.stops)[own].sum())
        assert size <= room
        assert cross or not any(a < border < b for border in borders)
        for start, stop in zip(parts.start[own], parts.stop[own], strict=True):
            cut = next(s for s in starts if s > start)
            assert stop == cut or stop - start == room - 1, "only a sentence that fits no row is cut"
        if b < text.tokens and (cross or b not in borders):
            after = next(s for s in starts if s > b)
            assert size + min(after - b, room - 1) + 1 > room, "one more sentence would have fitted"
        signs += int(parts.led[row] + (parts.stops[own] - 1).sum())
    assert signs <= (len(text.documents) - 1 if cross else 0)
    alone = [made.parts(np.asarray([n])) for n in range(len(made))]
    for name in ("start", "stop", "stops", "led"):
        assert np.concatenate([getattr(p, name) for p in alone]).tolist() == getattr(parts, name).tolist()


@given(texts, st.integers(2, 40), st.booleans(), st.integers(1, 9))
def test_blocks_of_lines_do_not_show(text: Text, room: int, cross: bool, block: int) -> None:
    whole = SentenceLines.of(text.document_starts, text.starts, room, cross=cross)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        cut = SentenceLines.of(text.document_starts, text.starts, room, cross=cross)
    assert np.array_equal(whole.bounds, cut.bounds)


@given(texts, rooms, joints, st.booleans(), st.integers(1, 9))
def test_blocks_do_not_show(text: Text, room: int, joint: int, pack: bool, block: int) -> None:
    whole = Fitted.of(text.document_starts, text.starts, room, joint, pack=pack)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        cut = Fitted.of(text.document_starts, text.starts, room, joint, pack=pack)
    assert np.array_equal(whole.bounds, cut.bounds)


def test_blocks_do_not_show_in_a_longer_text(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    text = Text([generator.integers(1, 60, generator.integers(1, 30)).tolist() for _ in range(400)])
    whole = {
        (r, p): Fitted.of(text.document_starts, text.starts, r, 2, pack=p).bounds
        for r in (14, 62)
        for p in (True, False)
    }
    monkeypatch.setattr(module, "BLOCK", 1)
    for (room, pack), bounds in whole.items():
        cut = Fitted.of(text.document_starts, text.starts, room, 2, pack=pack)
        assert np.array_equal(cut.bounds, bounds)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=0, max_size=5), min_size=1, max_size=9)
    .map(Text)
    .filter(lambda t: t.tokens > 0),
    st.integers(3, 30),
    st.booleans(),
    st.integers(1, 4),
)
def test_empty_sentences_and_documents_of_a_foreign_store(text: Text, room: int, pack: bool, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        lines = SentenceLines.of(text.document_starts, text.starts, room, cross=pack)
        filled = Text([full for d in text.documents if (full := [s for s in d if s])])
        alike = SentenceLines.of(filled.document_starts, filled.starts, room, cross=pack)
        assert spans(lines) == spans(alike)
        rows = np.arange(len(lines))
        assert lines.parts(rows).stops.tolist() == alike.parts(rows).stops.tolist()
        for made in (
            Fitted.of(text.document_starts, text.starts, room, 2, pack=pack),
            windows(text.document_starts, text.starts, room=room, joint=2, pack=pack, sentences=False),
        ):
            found = spans(made)
            assert [t for a, b in found for t in range(a, b)] == list(range(text.tokens))
            pieces = split(text.document_starts, *made.spans(np.arange(len(made))))
            for row in range(len(made)):
                sizes = (pieces.stop - pieces.start)[pieces.row == row]
                assert sizes.sum() + 2 * (len(sizes) - 1) <= room


def test_the_windows_that_are_asked_for() -> None:
    text = Text([[3, 4], [5]])
    kinds = {
        (pack, sentences): type(
            windows(text.document_starts, text.starts, room=6, joint=2, pack=pack, sentences=sentences)
        )
        for pack in (True, False)
        for sentences in (True, False)
    }
    assert kinds == {(True, True): Fitted, (False, True): Fitted, (True, False): Packed, (False, False): Single}


def test_by_hand() -> None:
    """Documents of 5 and 4 tokens, sentences 3 + 2 and 4; a second document in a row costs 2 places."""
    text = Text([[3, 2], [4]])
    assert spans(Packed(text.document_starts, 8, 2)) == [(0, 6), (6, 9)]
    assert spans(Single.of(text.document_starts, 4)) == [(0, 4), (4, 5), (5, 9)]
    assert spans(Fitted.of(text.document_starts, text.starts, 8, 2, pack=True)) == [(0, 5), (5, 9)]
    assert spans(Fitted.of(text.document_starts, text.starts, 11, 2, pack=True)) == [(0, 9)]
    assert spans(Fitted.of(text.document_starts, text.starts, 11, 2, pack=False)) == [(0, 5), (5, 9)]
    assert spans(Fitted.of(text.document_starts, text.starts, 2, 2, pack=True)) == [
        (0, 2),
        (2, 3),
        (3, 5),
        (5, 7),
        (7, 9),
    ]


@given(texts, st.data())
def test_split(text: Text, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, text.tokens), max_size=6)) | {0, text.tokens})
    start, stop = np.asarray(cuts[:-1]), np.asarray(cuts[1:])
    pieces = split(text.document_starts, start, stop)
    owner = np.repeat(np.arange(len(text.documents)), [sum(d) for d in text.documents])
    assert [t for a, b in zip(pieces.start, pieces.stop, strict=True) for t in range(a, b)] == list(range(text.tokens))
    assert (np.diff(pieces.row) >= 0).all()
    for row, document, a, b in zip(pieces.row, pieces.document, pieces.start, pieces.stop, strict=True):
        assert start[row] <= a < b <= stop[row]
        assert (owner[a:b] == document).all()
    assert len(set(zip(pieces.row.tolist(), pieces.document.tolist(), strict=True))) == len(pieces.row)


@given(st.lists(st.integers(0, 5), max_size=9))
def test_run(counts: list[int]) -> None:
    assert run(np.asarray(counts, np.int64)).tolist() == [i for c in counts for i in range(c)]


@given(texts, joints)
def test_document_at(text: Text, joint: int) -> None:
    starts, count = text.document_starts, len(text.documents)
    places = np.arange(text.tokens + joint * count + 3)
    wanted = [max(d for d in range(count) if starts[d] + joint * d <= place) for place in places]
    assert document_at(starts, places, joint, count).tolist() == wanted

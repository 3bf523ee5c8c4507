"""Pairs: against the papers' algorithms written out plainly, by number alone, new each epoch."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.makers import Source
from ordsmed.base import chance
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data import pair_examples
from ordsmed.data.pair_examples import NONE, SPECIAL, WHOLE, Ahead, PairExamples, Pairs
from ordsmed.data.pairs import PairRows, deal, shorten

CLS, SEP, PAD = 1, 2, 0
FIRST = 10  # the first id of a text: its tokens are FIRST, FIRST + 1, ... so that each is known by its id


def ranges_of(source: Source) -> list[list[tuple[int, int]]]:
    """Of every document its sentences that hold something, as ranges."""
    borders = list(zip(source.document_starts[:-1], source.document_starts[1:], strict=True))
    ranges = [(int(a), int(b)) for a, b in zip(source.starts[:-1], source.starts[1:], strict=True) if a < b]
    return [[(a, b) for a, b in ranges if x <= a < y] for x, y in borders]


def drawn_source(documents: int, sentences: int, longest: int = 30, seed: int = 0) -> Source:
    generator = np.random.default_rng(seed)
    return Source.of(
        [generator.integers(1, longest, generator.integers(1, sentences)).tolist() for _ in range(documents)]
    )


def rows_of(
    sources: list[Source], length: int = 32, style: Any = "next", short: float = 0.1, key: int = 7, **more: Any
) -> PairRows:
    weights = more.pop("weights", [1.0] * len(sources))
    return PairRows(
        sources, weights, length=length, start=CLS, stop=SEP, pad=PAD, style=style, short=short, key=(key, 0), **more
    )


def segments(rows: PairRows, numbers: np.ndarray) -> Iterator[tuple[list[int], list[int], int]]:
    """Places in the store of A and B, and the label, of each row; the frame is checked on the way."""
    found = rows.assembled(numbers)
    assert found.types is not None
    for n in range(len(numbers)):
        tokens, inner, types = found.tokens[n], found.inner[n], found.types[n]
        a, b = tokens[inner & (types == 0)], tokens[inner & (types == 1)]
        wanted = [CLS, *a, SEP, *b, *([SEP] if len(b) else [])]
        assert tokens.tolist() == wanted + [PAD] * (rows.length - len(wanted))
        assert found.documents[n].tolist() == [1] * len(wanted) + [0] * (rows.length - len(wanted))
        assert found.positions[n, : len(wanted)].tolist() == list(range(len(wanted)))
        assert types.tolist() == [0] * (len(a) + 2) + [1] * (len(wanted) - len(a) - 2) + [0] * (
            rows.length - len(wanted)
        )
        assert inner.sum() == len(a) + len(b)
        yield (a - FIRST).tolist(), (b - FIRST).tolist(), 0 if found.pairs is None else int(found.pairs[n])


def runs_on(places: list[int]) -> bool:
    return places == list(range(places[0], places[0] + len(places)))


sizes = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=9), min_size=1, max_size=8)
with_empty = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=9), min_size=1, max_size=8)
styles = st.sampled_from(["next", "order", "electra"])


@given(sizes, st.integers(5, 40), st.sampled_from(["next", "order"]), st.sampled_from([0.0, 0.5]), st.integers(0, 2))
def test_both_segments_are_runs_of_documents(
    documents: list[list[int]], length: int, style: str, short: float, epoch: int
) -> None:
    if style == "order":
        documents = [*documents, [2, 3, 1]]
    source = Source.of(documents)
    rows = rows_of([source], length, style, short)
    owner = np.repeat(np.arange(len(documents)), [sum(d) for d in documents])
    for a, b, label in segments(rows, np.arange(len(rows)) + epoch * len(rows)):
        assert a
        assert b
        assert len(a) + len(b) <= length - SPECIAL
        assert runs_on(a)
        assert runs_on(b)
        assert len({*owner[a]}) == len({*owner[b]}) == 1
        if style == "next" and label:
            assert owner[a[0]] != owner[b[0]] or len(documents) == 1
        else:
            assert owner[a[0]] == owner[b[0]]
            assert (b[-1] < a[0]) if label else (a[-1] < b[0])
        whole = source.starts
        if len(a) + len(b) < length - SPECIAL:  # nothing was lost: borders of sentences, and no gap
            assert {a[0], a[-1] + 1, b[0], b[-1] + 1} <= set(whole.tolist())
            if not (style == "next" and label):
                assert b[-1] + 1 == a[0] if label else a[-1] + 1 == b[0]


def walked(source: Source, length: int, style: Any, short: float) -> tuple[PairExamples, Pairs, int]:
    """All examples in the order of the text, and the key of their chance."""
    examples = PairExamples(source, style, length, short, 0.1, 5)
    return examples, examples.walk(np.arange(examples.blocks), "here"), chance.key(5, "here")


def drawn(key: int, use: int, counter: int, limit: int, *more: int) -> int:
    return int(chance.unit(key, use, counter, *more) * limit)


def plain_next(source: Source, room: int, short: float, key: int) -> list[tuple[int, int, int, int, int]]:
    """BERT's examples, sentence by sentence."""
    documents, made = ranges_of(source), []
    for number, sentences in enumerate(documents):
        aim = room
        if chance.unit(key, pair_examples.SHORT, number) < short:
            aim = 2 + drawn(key, pair_examples.AIM, number, room - 1)
        chunk: list[tuple[int, int]] = []
        i = 0
        while i < len(sentences):
            chunk.append(sentences[i])
            if i == len(sentences) - 1 or sum(b - a for a, b in chunk) >= aim:
                begin, a_end = chunk[0][0], 1
                if len(chunk) >= 2:
                    a_end = 1 + drawn(key, pair_examples.SPLIT, begin, len(chunk) - 1)
                a = (begin, chunk[a_end - 1][1])
                label = len(chunk) == 1 or chance.unit(key, pair_examples.COIN, begin) < 0.5
                if label:
                    attempt, other = 0, number
                    while attempt < 10 and len(documents) > 1 and (other == number or not documents[other]):
                        other = drawn(key, pair_examples.DOCUMENT, begin, len(documents) - 1, attempt)
                        other += other >= number
                        attempt += 1
                    other = other if documents[other] else number
                    b_start, place = 0, drawn(key, pair_examples.SENTENCE, begin, len(documents[other]))
                    b_start = b_end = documents[other][place][0]
                    for _, b_end in documents[other][place:]:
                        if b_end - b_start >= aim - (a[1] - a[0]):
                            break
                    i -= len(chunk) - a_end
                else:
                    b_start, b_end = a[1], chunk[-1][1]
                made.append((*a, b_start, b_end, int(label)))
                chunk = []
            i += 1
    return made


@given(sizes, st.integers(5, 40), st.sampled_from([0.0, 0.5, 1.0]))
def test_next_sentences_as_bert_draws_them(documents: list[list[int]], length: int, short: float) -> None:
    source = Source.of(documents)
    _, found, key = walked(source, length, "next", short)
    mine = zip(*found.start.T.tolist(), *found.stop.T.tolist(), found.mark.tolist(), strict=True)
    assert [(a, c, b, d, label) for a, b, c, d, label in mine] == plain_next(source, length - SPECIAL, short, key)


@given(with_empty, st.integers(5, 40), styles)
def test_empty_sentences_and_documents_are_passed_over(documents: list[list[int]], length: int, style: str) -> None:
    source = Source.of([*documents, [0], [2, 0, 3, 0]])
    rows = rows_of([source], length, style)
    for a, b, label in segments(rows, np.arange(len(rows) * 2)):
        assert a
        assert b or style == "electra"
        assert style != "electra" or not label


def plain_chunks(source: Source, length: int, short: float, key: int) -> list[tuple[int, int, int]]:
    """ELECTRA's chunks: first token, end, and what fills the first segment."""
    made = []
    for sentences in ranges_of(source):
        chunk: list[tuple[int, int]] = []
        for sentence in sentences:
            chunk.append(sentence)
            begin, aim = chunk[0][0], length
            if chance.unit(key, pair_examples.SHORT, begin) < short:
                aim = 5 + drawn(key, pair_examples.AIM, begin, length - 4)
            if sum(b - a for a, b in chunk) >= aim or sentence == sentences[-1]:
                single = chance.unit(key, pair_examples.SINGLE, begin) < 0.1
                made.append((begin, sentence[1], WHOLE if single else (aim - 3) // 2))
                chunk = []
    return made


@given(sizes, st.integers(5, 40), st.sampled_from([0.0, 0.5]))
def test_electra_as_electra_draws_it(documents: list[list[int]], length: int, short: float) -> None:
    source = Source.of(documents)
    _, found, key = walked(source, length, "electra", short)
    mine = zip(found.start[:, 0].tolist(), found.stop[:, 0].tolist(), found.mark.tolist(), strict=True)
    assert list(mine) == plain_chunks(source, length, short, key)
    rows = rows_of([source], length, "electra", short)
    numbers = np.arange(len(rows))
    examples, ranges = rows.examples[0].take(numbers), [r for d in ranges_of(source) for r in d]
    for n, (a, b, _) in enumerate(segments(rows, numbers)):
        first: list[int] = []
        second: list[int] = []
        chunk = [r for r in ranges if examples.start[n, 0] <= r[0] < examples.stop[n, 0]]
        for place, (begin, end) in enumerate(chunk):
            coin = chance.unit(rows.key, pair_examples.SIDE, n, place) < 0.5
            full, size = int(examples.mark[n]), end - begin
            if not first or len(first) + size < full or (not second and len(first) < full and coin):
                first += range(begin, end)
            else:
                second += range(begin, end)
        first = first[: length - 2]
        assert (a, b) == (first, second[: max(0, length - len(first) - 3)])


def test_shares_of_short_and_single_examples() -> None:
    source = drawn_source(3000, 80)
    _, found, _ = walked(source, 64, "electra", 0.05)
    assert len(found) > 20_000
    whole = found.mark == WHOLE
    assert whole.mean() == pytest.approx(0.1, abs=0.01)
    assert (found.mark[~whole] < (64 - 3) // 2).mean() == pytest.approx(0.05 * 58 / 60, abs=0.006)  # 63 has 30 too
    assert found.mark.min() == 1


def test_electra_mixes_sentences() -> None:
    """A short sentence may still go to the first segment when the second has begun."""
    rows = rows_of([drawn_source(300, 60)], 64, "electra")
    gaps = [not runs_on(a) for a, _, _ in segments(rows, np.arange(len(rows)))]
    assert 0.05 < np.mean(gaps) < 0.5
    spans = rows.spans(np.arange(50))
    assert len(spans) > len({(s.number, s.document) for s in spans})


def test_half_of_the_labels() -> None:
    source = drawn_source(2000, 60)
    _, swapped, _ = walked(source, 64, "order", 0.1)
    assert swapped.mark.mean() == pytest.approx(0.5, abs=0.02)
    _, found, _ = walked(source, 64, "next", 0.1)
    count = np.diff(np.searchsorted(source.starts, np.stack([found.start[:, 0], found.stop[:, 0]], 1)), axis=1)[:, 0]
    last = np.isin(found.stop[:, 0], source.document_starts)
    certain = last & (found.mark == 1)  # such a chunk had one sentence, and no choice
    assert (count[certain] == 1).all()
    assert found.mark[~certain].mean() == pytest.approx(0.5, abs=0.05)  # single sentences as long as the aim are left
    _, long, _ = walked(source, 512, "next", 0.0)
    certain = np.isin(long.stop[:, 0], source.document_starts) & (long.mark == 1)
    assert long.mark[~certain].mean() == pytest.approx(0.5, abs=0.02)


def test_one_length_a_document() -> None:
    """Sentences of one token: what a document's pairs have together is its aim, all but at its end."""
    source = Source.of([[1] * 300] * 400)
    _, found, _ = walked(source, 33, "next", 0.5)
    sums = (found.stop - found.start).sum(1)
    owner, last = found.start[:, 0] // 300, found.stop.max(1) % 300 == 0
    plain = (found.mark == 0) & ~last
    aims = {d: {*sums[plain & (owner == d)].tolist()} for d in range(400)}
    assert all(len(aim) <= 1 for aim in aims.values())
    found_aims = np.asarray([min(aim) for aim in aims.values() if aim])
    assert (found_aims == 30).mean() == pytest.approx(0.5 + 0.5 / 29, abs=0.08)
    assert found_aims.min() <= 4
    assert len(np.unique(found_aims)) > 25


def test_sentences_after_a_come_again() -> None:
    source = drawn_source(50, 60)
    _, found, _ = walked(source, 48, "next", 0.1)
    again = np.where(found.mark == 1, found.stop[:, 0], found.stop[:, 1])
    assert found.start[1:, 0].tolist() == again[:-1].tolist()
    assert (found.start[0, 0], again[-1]) == (0, source.starts[-1])


def test_the_longer_segment_is_shortened() -> None:
    generator = np.random.default_rng(0)
    size = generator.integers(1, 60, (3000, 2))
    start = generator.integers(0, 10**6, (3000, 2))
    a, b = shorten(start, start + size, 40, 3, np.arange(3000))
    for (x, y), (p, q) in zip(size.tolist(), (b - a).tolist(), strict=True):
        while x + y > 40:
            if x > y:
                x -= 1
            else:
                y -= 1
        assert (x, y) == (p, q)
    front, back = a - start, start + size - b
    assert min(front.min(), back.min()) == 0
    lost = front + back
    assert front.sum() / lost.sum() == pytest.approx(0.5, abs=0.01)
    many = lost == 20
    assert front[many].var() == pytest.approx(20 / 4, rel=0.25)  # a coin a token, not a coin a segment


def test_deal_by_hand() -> None:
    sizes = np.asarray([[9, 4, 3, 2], [2, 3, 9, 1], [5, 5, 5, 5]])
    found = deal(sizes, np.asarray([8, 8, WHOLE]), 0, np.arange(3)).tolist()
    assert found[0] == [0, 1, 1, 1], "the first sentence fills it alone"
    assert found[1] in ([0, 0, 1, 0], [0, 0, 0, 1]), "below full; a coin; after it the short one fits, or no more"
    assert found[2] == [0, 0, 0, 0]
    coins = deal(np.tile(sizes[1], (2000, 1)), np.full(2000, 8), 0, np.arange(2000))[:, 2]
    assert coins.mean() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("style", ["next", "order", "electra"])
def test_every_sentence_is_seen(style: str) -> None:
    """The walk leaves nothing out: only what is too long for a row is cut off."""
    source = drawn_source(60, 30, longest=8)
    examples, found, _ = walked(source, 64, style, 0.0)
    seen = np.zeros(len(source.tokens), np.bool_)
    for (a, c), (b, d), label in zip(found.start, found.stop, found.mark, strict=True):
        seen[a:b] = True
        seen[c:d] |= not (style == "next" and label)
    alone = [d[0] for d in ranges_of(source) if len(d) == 1] if style == "order" else []
    for a, b in alone:
        assert not seen[a:b].any()
        seen[a:b] = True
    assert seen.all()
    assert len(examples) == pytest.approx(len(found), rel=0.1)


@pytest.mark.parametrize("style", ["next", "order", "electra"])
def test_every_epoch_other_pairs(style: str) -> None:
    rows = rows_of([drawn_source(80, 30)], 64, style)
    size = len(rows)
    one, two = (
        {(tuple(a), tuple(b)) for a, b, _ in segments(rows, np.arange(size) + epoch * size)} for epoch in (0, 1)
    )
    assert len(one) > 0.9 * size
    assert len(one & two) < 0.45 * size
    other = {
        (tuple(a), tuple(b)) for a, b, _ in segments(rows_of([drawn_source(80, 30)], 64, style, key=8), np.arange(size))
    }
    assert len(one & other) < 0.45 * size


@pytest.mark.long
@given(st.lists(sizes, min_size=1, max_size=3), st.integers(5, 40), styles, st.data())
def test_a_row_is_the_same_in_any_batch(
    found: list[list[list[int]]], length: int, style: str, data: st.DataObject
) -> None:
    sources = [Source.of([*documents, [3, 2]]) for documents in found]
    weights = data.draw(st.lists(st.floats(0.1, 1), min_size=len(sources), max_size=len(sources)))
    numbers = np.asarray(data.draw(st.lists(st.integers(0, 500), min_size=1, max_size=8)))
    rows = rows_of(sources, length, style, weights=weights)
    together = rows.assembled(numbers)
    again = pickle.loads(pickle.dumps(rows))
    for index, number in enumerate(numbers):
        alone = again.assembled(np.asarray([number]))
        for name in ("tokens", "documents", "positions", "inner", "types", "pairs"):
            mine, theirs = getattr(alone, name), getattr(together, name)
            assert (mine is None and theirs is None) or np.array_equal(mine[0], theirs[index]), name


def test_spans_name_what_a_row_holds() -> None:
    sources = [drawn_source(40, 20, seed=1), drawn_source(40, 20, seed=2)]
    for style in ("next", "order", "electra"):
        rows = rows_of(sources, 48, style, weights=[1.0, 3.0])
        numbers = np.asarray([90, 3, 41, 7])
        spans = rows.spans(numbers)
        assert list(dict.fromkeys(s.number for s in spans)) == numbers.tolist()
        for number, (a, b, _) in zip(numbers, segments(rows, numbers), strict=True):
            mine = [s for s in spans if s.number == number]
            assert [p for s in mine for p in range(s.start, s.stop)] == a + b
            borders = sources[mine[0].source].document_starts
            assert all(borders[s.document] <= s.start < s.stop <= borders[s.document + 1] for s in mine)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BLOCK", 16), ("GROUP", 4), ("TRIAL", 8)):
        monkeypatch.setattr(pair_examples, name, value)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("style", ["next", "order", "electra"])
def test_a_large_store_is_read_in_groups(style: str) -> None:
    generator = np.random.default_rng(3)
    documents = [generator.integers(1, 12, n).tolist() for n in [*generator.integers(1, 16, 150), 100, 1, 17, 40, 3]]
    source = Source.of(documents)
    rows = rows_of([source], 40, style)
    examples = rows.examples[0]
    assert examples.groups == examples.blocks // 4 > 10
    borders = examples._first_sentences(np.arange(examples.blocks + 1))
    assert (borders[0], borders[-1]) == (0, examples.sentences)
    sizes = np.diff(borders)
    assert sizes.min() >= 0
    assert sizes.max() < 2 * 16
    inside = {*source.starts[borders].tolist()} - {*source.document_starts.tolist()}
    long = [(a, b) for d in ranges_of(source) if len(d) > 16 for a, b in [(d[0][0], d[-1][1])]]
    assert all(any(a < cut < b for a, b in long) for cut in inside), "only long documents are cut"
    assert inside
    found = [examples.group(n) for n in range(examples.groups)]
    assert {len(group) for group in found} == {examples.share}
    seen = np.zeros(len(source.tokens), np.bool_)
    for group in found:
        for (a, c), (b, d), label in zip(group.start, group.stop, group.mark, strict=True):
            seen[a:b] = True
            seen[c:d] |= not (style == "next" and label)
    assert seen.mean() > 0.8
    keys = {(*a, *b, int(m)) for g in found for a, b, m in zip(g.start.tolist(), g.stop.tolist(), g.mark, strict=True)}
    assert len(keys) > 0.8 * len(rows), "few rows come twice"
    numbers = np.asarray([0, len(rows) - 1, len(rows), examples.share - 1, examples.share])  # over every border
    together = rows.assembled(numbers).tokens
    for index, number in enumerate(numbers):
        assert np.array_equal(rows_of([source], 40, style).assembled(np.asarray([number])).tokens[0], together[index])


@pytest.mark.usefixtures("small_blocks")
def test_what_a_group_lacks_comes_from_a_second_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    source = drawn_source(60, 12)
    monkeypatch.setattr(PairExamples, "_expected", lambda self: 500)
    examples = PairExamples(source, "next", 40, 0.1, 0.1, 5)
    found = examples.group(0)
    assert len(found) == 500
    assert len(np.unique(found.start, axis=0)) > 60
    assert np.array_equal(examples.group(0).start, found.start)
    monkeypatch.setattr(PairExamples, "_expected", lambda self: 3)
    assert len(PairExamples(source, "next", 40, 0.1, 0.1, 5).group(0)) == 3


def pairs_of(number: int) -> Pairs:
    return Pairs(NONE.start, NONE.stop, np.full(1, number))


def test_the_next_is_made_in_the_background() -> None:
    made: dict[int, str] = {}
    ready = threading.Event()

    def make(number: int) -> Pairs:
        made[number] = threading.current_thread().name
        if number == 6:
            ready.set()
        return pairs_of(number)

    ahead = Ahead(make)
    assert ahead(5).mark == [5]
    assert ready.wait(480)
    assert made[5] == threading.main_thread().name != made[6]
    made.clear()
    assert [int(ahead(n).mark[0]) for n in (6, 5, 6)] == [6, 5, 6]
    assert made.keys() <= {7}, "what is at hand is not made again"
    assert len(ahead._made) <= 3


def test_what_goes_wrong_in_the_background_is_told() -> None:
    def make(number: int) -> Pairs:
        if number == 3:
            raise OSError("no such disk")
        return pairs_of(number)

    ahead = Ahead(make)
    ahead(2)
    with pytest.raises(OSError, match="no such disk"):
        ahead(3)


def test_a_forked_process_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ahead = Ahead(lambda number: asked.append(number) or pairs_of(number))  # type: ignore[func-returns-value]
    ahead(0)
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    ahead(0)
    assert asked.count(0) == 2


def test_what_cannot_be() -> None:
    with pytest.raises(RecipeError, match=r"phase\.length: found 4, of which 3 are special tokens; wanted 5 or more"):
        rows_of([Source.of([[3, 3]])], 4)
    with pytest.raises(DataError, match="source 2: has no document with two sentences"):
        rows_of([Source.of([[3, 3]]), Source.of([[3], [9]])], 20, "order")
    with pytest.raises(DataError, match="source 1: has no text"):
        rows_of([Source.of([[0]])], 20)
    assert len(rows_of([Source.of([[3]])], 20)) == 1
    (only,) = segments(rows_of([Source.of([[3]])], 20), np.arange(1))
    assert only == ([0, 1, 2], [0, 1, 2], 1), "with one document there is no other"


def test_equal_sources_are_drawn_apart() -> None:
    source = drawn_source(30, 8)
    one, other = rows_of([source, source]).examples
    numbers = np.arange(min(len(one), len(other)))
    assert len(numbers) > 20
    assert not np.array_equal(one.take(numbers).start, other.take(numbers).start)


@pytest.mark.parametrize("style", ["next", "order", "electra"])
def test_what_is_drawn_stays_from_version_to_version(style: Any) -> None:
    rows = rows_of([drawn_source(30, 9)], style=style)
    found = [[a[0], a[-1], b[0], b[-1], label] for a, b, label in segments(rows, np.asarray([0, 7, len(rows) + 3]))]
    assert (
        found
        == {
            "next": [[1346, 1361, 461, 473, 1], [1570, 1572, 68, 93, 1], [1248, 1270, 488, 488, 1]],
            "order": [[1942, 1956, 1919, 1932, 1], [2275, 2289, 2258, 2271, 1], [1855, 1868, 1836, 1850, 1]],
            "electra": [[1897, 1911, 1912, 1913, 0], [2258, 2271, 2272, 2286, 0], [1830, 1841, 1842, 1854, 0]],
        }[style]
    )

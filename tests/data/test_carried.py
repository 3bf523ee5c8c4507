"""Rows of streams: every word once per epoch, each predicted from the one before it, and no word is skipped."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from kit.makers import make_words
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data import stream_rows
from ordsmed.data.encode import Encoded
from ordsmed.data.lexicon import Lexicon, LexiconWriter
from ordsmed.data.store import Store
from ordsmed.data.stream_rows import CarriedRows, SpecialWords

SIGNS = SpecialWords(0, 1, 2, 123)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_words(tmp_path_factory.mktemp("words") / "store")


@pytest.fixture
def store(folder: Path) -> Store:
    return Encoded(folder).train


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_rows, "BLOCK", 130)


def rows_of(
    *stores: Store,
    weights: tuple[float, ...] = (1.0,),
    length: int = 7,
    batch: int = 4,
    together: bool = False,
    whole: bool = False,
    seed: int = 0,
) -> CarriedRows:
    return CarriedRows(stores, weights, SIGNS, seed, length=length, batch=batch, together=together, whole=whole)


def spelled(rows: CarriedRows, numbers: np.ndarray) -> tuple[list[list[bytes]], np.ndarray, np.ndarray]:
    made = rows.batch(numbers)
    assert made.characters is not None
    assert made.words is not None
    starts, letters = made.words.tolist(), made.characters.numpy().tobytes()
    words = [letters[a:b] for a, b in pairwise(starts)]
    words[:2] = [b"<S>", b"</S>"]
    assert len(set(words)) == len(words)
    assert list(map(len, words[2:])) == sorted(map(len, words[2:]))
    return [[words[n] for n in row] for row in made.tokens.tolist()], made.targets.numpy(), made.weights.numpy()


def sentences(store: Store) -> list[list[bytes]]:
    assert store.lexicon is not None
    words = [store.lexicon.word(n) for n in range(len(store.lexicon))]
    return [[words[i] for i in store.tokens[a:b]] for a, b in zip(store.starts, store.starts[1:], strict=False)]


def streams(rows: CarriedRows, epochs: int = 1) -> dict[tuple[int, int], tuple[list[bytes], list[int]]]:
    """What each stream reads and is asked in each direction, window after window."""
    found: dict[tuple[int, int], tuple[list[bytes], list[int]]] = {}
    half = rows.length
    for number in range(epochs * int(rows.windows.min()) * rows.count):
        [words], [asked], [counts] = spelled(rows, np.asarray([number]))
        for way in (0, 1):
            read, wanted = found.setdefault((number % rows.count, way), ([], []))
            for at in range(way * half, (way + 1) * half):
                if counts[at]:
                    read.append(words[at])
                    wanted.append(int(asked[at]))
    return found


@pytest.mark.parametrize("way", [0, 1])
def test_every_sentence_is_read_once_from_its_sign_on(store: Store, way: int) -> None:
    """All words of the store, in whole sentences, each in its order or from its end."""
    found = streams(rows_of(store, batch=3, whole=True))
    line = [word for stream in range(3) for word in found[stream, way][0]]
    sign = (b"<S>", b"</S>")[way]
    ends = [at for at, word in enumerate(line) if word == sign] + [len(line)]
    read = [line[a + 1 : b] for a, b in pairwise(ends)]
    assert sorted(s[::-1] if way else s for s in read) == sorted(sentences(store))
    assert read != [s[::-1] if way else s for s in sentences(store)], "they are shuffled"


@pytest.mark.parametrize("way", [0, 1])
def test_what_follows_is_asked_for(store: Store, way: int) -> None:
    """The next word of the line; at a sentence's end its last sign, which is never read; strangers as unknown."""
    assert store.lexicon is not None
    known = {store.lexicon.word(n): n for n in range(SIGNS.vocabulary)}
    read, asked = streams(rows_of(store))[1, way]
    first, last = (b"<S>", SIGNS.stop) if way == 0 else (b"</S>", SIGNS.start)
    assert SIGNS.unknown in asked
    for at, number in enumerate(asked[:-1]):
        following = read[at + 1]
        assert number == (last if following == first else known.get(following, SIGNS.unknown))


def test_streams_go_on_over_epochs_and_shuffle_anew(store: Store) -> None:
    one, two = (streams(rows_of(store), n) for n in (1, 2))
    for key, (read, _) in one.items():
        assert two[key][0][: len(read)] == read
        assert len(two[key][0]) == 2 * len(read)
        assert two[key][0][len(read) :] != read


def test_directions_read_together_or_apart(store: Store) -> None:
    """Together: the same sentences at the same places of their lines."""
    for together in (True, False):
        rows = rows_of(store, together=together)
        ahead, back = (course.sentences(0, 35, 40) for course in rows.ways[0])
        assert (ahead == back) == together


def test_rows_are_a_function_of_their_numbers(store: Store) -> None:
    rows, numbers = rows_of(store), np.asarray([13, 4, 30])
    at_once = spelled(rows, numbers)
    rows.batch(np.arange(60))
    for row, number in enumerate(numbers):
        alone = spelled(rows_of(store), np.asarray([number]))
        assert alone[0][0] == at_once[0][row]
        assert np.array_equal(alone[1][0], at_once[1][row])
    assert spelled(rows_of(store, seed=1), numbers)[0] != at_once[0]


def test_places_and_streams_are_told(store: Store) -> None:
    """Position 0 is where a stream begins; it counts on over windows."""
    made = rows_of(store).batch(np.asarray([0, 3, 4, 11]))
    assert made.streams is not None
    assert made.streams.tolist() == [0, 3, 0, 3]
    assert made.positions[:, 0].tolist() == [0, 0, 7, 14]
    assert made.positions[3].tolist() == [*range(14, 21)] * 2


def test_streams_are_shared_by_weight(store: Store, tmp_path: Path) -> None:
    other = Encoded(make_words(tmp_path / "other", seed=9)).train
    rows = rows_of(store, other, weights=(0.7, 0.3), batch=10)
    assert np.bincount(rows.source_of).tolist() == [7, 3]
    assert rows_of(store, other, weights=(1.0, 1e-9), batch=10).source_of.tolist() == [0] * 9 + [1]
    found, own = streams(rows), [{tuple(s) for s in sentences(s)} for s in (store, other)]
    for (stream, way), (read, _) in found.items():
        sign = (b"<S>", b"</S>")[way]
        ends = [at for at, word in enumerate(read) if word == sign]
        for a, b in pairwise(ends):
            sentence = read[a + 1 : b]
            assert tuple(sentence[::-1] if way else sentence) in own[int(rows.source_of[stream])]


def test_which_documents_a_row_holds(store: Store) -> None:
    rows = rows_of(store)
    for span in rows.spans(np.arange(12)):
        starts = store.document_starts
        assert starts[span.document] <= span.start < span.stop <= starts[span.document + 1]
    [words], _, _ = spelled(rows, np.asarray([5]))
    assert store.lexicon is not None
    held = {store.lexicon.word(i) for s in rows.spans(np.asarray([5])) for i in store.tokens[s.start : s.stop]}
    assert set(words) - {b"<S>", b"</S>"} <= held


def test_a_store_smaller_than_a_step_is_read_all_the_same(folder: Path) -> None:
    """Rows that the text does not fill do not count."""
    held = Encoded(folder).validation
    assert held is not None
    rows = rows_of(held, length=20, batch=64)
    assert len(rows) == 64
    weights = rows.batch(np.arange(64)).weights
    assert int(weights.sum()) == 2 * (held.token_count + held.sequence_count)


def test_a_validation_of_several_sources_asks_every_word_once(store: Store, tmp_path: Path) -> None:
    other = Encoded(make_words(tmp_path / "other", seed=9, documents=5)).train
    rows = rows_of(store, other, weights=(0.5, 0.5), batch=8, whole=True)
    counted = sum(int(rows.batch(np.arange(n, n + 8)).weights.sum()) for n in range(0, len(rows), 8))
    assert counted == 2 * sum(s.token_count + s.sequence_count for s in (store, other))


def test_rows_travel_to_other_processes(store: Store) -> None:
    rows = rows_of(store)
    wanted = rows.batch(np.arange(4)).tokens
    again = pickle.loads(pickle.dumps(rows))
    assert torch.equal(again.batch(np.arange(4)).tokens, wanted)


def test_few_blocks_are_held(store: Store) -> None:
    """Two a stream: what it reads, and what comes next."""
    rows = rows_of(store, batch=2)
    for number in range(2 * len(rows)):
        rows.batch(np.asarray([number]))
        assert all(len(course._blocks) <= 4 < len(course.sizes) for course in rows.ways[0])


def test_a_lexicon_of_another_store_is_refused(store: Store, tmp_path: Path) -> None:
    small = make_words(tmp_path / "small")
    with LexiconWriter(small, ["<S>", "</S>", "<UNK>", "a"], 2):
        pass
    store.lexicon = Lexicon.open(small)  # a cached property
    with pytest.raises(DataError, match=r"holds the word \d+, its lexicon 4; wanted its own lexicon"):
        rows_of(store).batch(np.arange(20))


def test_what_cannot_be_is_refused(store: Store) -> None:
    with pytest.raises(RecipeError, match="1 streams for 2 sources"):
        rows_of(store, store, weights=(1.0, 1.0), batch=1)
    with pytest.raises(RecipeError, match="weights above 0"):
        rows_of(store, weights=(0.0,))
    store.lexicon = None  # a cached property
    with pytest.raises(DataError, match="has subword tokens"):
        rows_of(store).batch(np.arange(2))


def test_sentences_inside_a_block_are_shuffled_anew_each_epoch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block for all: what is other from epoch to epoch is the order inside it, and each direction has its own."""
    monkeypatch.setattr(stream_rows, "BLOCK", 1 << 20)
    forward, backward = rows_of(store).ways[0]
    assert len(forward.sizes) == 1
    orders = [forward.sentences(epoch, 0, forward.words) for epoch in (0, 1, 2)]
    orders.append(backward.sentences(0, 0, backward.words))
    assert all(sorted(order) == list(range(len(store.starts) - 1)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_blocks_are_shuffled_among_each_other_anew_each_epoch(store: Store) -> None:
    course = rows_of(store).ways[0][0]
    assert len(course.sizes) > 5
    lines = [[block for block, _, _ in course._ranges(epoch, 0, course.words)] for epoch in (0, 1, 2)]
    assert all(sorted(line) == list(range(len(course.sizes))) for line in lines)
    assert len({tuple(line) for line in lines}) == 3


def test_other_seeds_read_in_another_order(store: Store) -> None:
    found = [rows_of(store, seed=seed).batch(np.arange(4)).tokens for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_order_stays_from_version_to_version(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_rows, "BLOCK", 8_192)
    rows = rows_of(store)
    ends = [rows.batch(np.asarray([n])).targets[0, :4].tolist() for n in (0, 5, len(rows) + 1)]
    assert ends == [[2, 111, 20, 117], [69, 105, 1, 33], [2, 110, 2, 1]]

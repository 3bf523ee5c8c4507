"""Features in rows: every example occurs once, separated from the others, and rows are nearly full."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base.errors import DataError
from ordsmed.data.batch import Batch
from ordsmed.data.features import ExampleRows, Features, Packing, Text, by_length, framed, rounded
from ordsmed.data.pieces import TextFrame

PAD = 7
SIZES = st.lists(st.integers(1, 90), min_size=1, max_size=40)


def of_sizes(sizes: list[int]) -> Features:
    """Tokens 100, 101, ... so that each is known by its number."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = np.arange(100, 100 + starts[-1], dtype=np.int32)
    return Features(
        starts,
        ids,
        types=(ids % 2).astype(np.uint8),
        marks=(ids % 3 - 1).astype(np.int32),
        labels=np.arange(len(sizes)) * 10,
    )


def check(batch: Batch, features: Features, chosen: np.ndarray) -> None:
    """A batch holds just these examples, in this order of its spans."""
    length = batch.tokens.shape[1]
    tokens, positions = batch.tokens.flatten(), batch.positions.flatten()
    documents = torch.ones_like(tokens) if batch.documents is None else batch.documents.flatten()
    left = torch.ones_like(tokens)
    seen: set[tuple[int, int]] = set()
    for (begin, size), e in zip(batch.spans.tolist(), chosen.tolist(), strict=True):
        here = slice(begin, begin + size)
        ids = torch.from_numpy(features.ids[features.starts[e] : features.starts[e + 1]]).long()
        assert torch.equal(tokens[here], ids)
        assert torch.equal(positions[here], torch.arange(size))
        assert begin // length == (begin + size - 1) // length, "an example stands in one row"
        [number] = documents[here].unique().tolist()
        assert number > 0
        assert (begin // length, number) not in seen, "what another example of this row sees"
        seen.add((begin // length, number))
        assert torch.equal(batch.types.flatten()[here], ids % 2)
        assert torch.equal(batch.weights.flatten()[here], (ids % 3 > 0).float())
        assert torch.equal(batch.targets.flatten()[here], (ids % 3 - 1).clamp(min=0))
        left[here] -= 1
    assert left.min() == 0, "no two examples stand in one place"
    assert (tokens[left == 1] == PAD).all()
    assert batch.weights.flatten()[left == 1].sum() == 0
    assert batch.documents is None or (documents[left == 1] == 0).all()
    assert batch.labels.tolist() == features.labels[chosen].tolist()


@given(SIZES, st.sampled_from([Packing(PAD), Packing(PAD, length=96), Packing(PAD, alone=True, length=90)]))
def test_every_example_stands_there_once(sizes: list[int], packing: Packing) -> None:
    features, chosen = of_sizes(sizes), np.random.default_rng(len(sizes)).permutation(len(sizes))
    batch = packing.batch(features, chosen, chosen)
    check(batch, features, chosen)
    again = packing.batch(features, chosen, chosen)
    assert all(
        getattr(batch, f.name) is None or torch.equal(getattr(batch, f.name), getattr(again, f.name))
        for f in dataclasses.fields(batch)
    )


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([13], (1, 13)),  # alone: nothing is padded
        ([40, 30, 10, 8], (1, 88)),  # one full row costs less than three of 40
        ([384, 200, 180, 4], (2, 384)),
        ([250] * 3, (3, 250)),  # of one size: no padding, no mask
        ([260, 256, 140, 130, 130], (4, 264)),  # three of 392 are dearer: attention grows with length
    ],
)
def test_rows_are_as_long_as_is_cheap(sizes: list[int], shape: tuple[int, int]) -> None:
    features, every = of_sizes(sizes), np.arange(len(sizes))
    batch = Packing(PAD).batch(features, every, every)
    check(batch, features, every)
    assert tuple(batch.tokens.shape) == shape


def test_rows_of_real_lengths_are_nearly_full() -> None:
    chance = np.random.default_rng(0)
    for middle, spread, longest, least in ((159, 0.39, 384, 0.93), (10, 0.7, 66, 0.95)):
        sizes = np.clip(chance.lognormal(np.log(middle), spread, 3_200), 3, longest).astype(np.int64)
        features, places = of_sizes(sizes.tolist()), 0
        for first in range(0, 3_200, 32):
            chosen = np.arange(first, first + 32)
            places += Packing(PAD).batch(features, chosen, chosen).tokens.numel()
        assert sizes.sum() / places > least


def test_an_epoch_holds_every_example_once_and_the_next_another_order() -> None:
    features = of_sizes([5, 9, 3, 30, 12, 7, 1])
    rows = ExampleRows(features, Packing(PAD), 0, 0)
    epochs = [[span.document for span in rows.spans(np.arange(7 * k, 7 * k + 7))] for k in range(3)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    batch = rows.batch(np.arange(7, 14))
    check(batch, features, np.asarray(epochs[1]))
    assert batch.numbers.tolist() == list(range(7, 14))


@given(SIZES, st.integers(1, 200))
def test_batches_by_length_hold_all_once(sizes: list[int], tokens: int) -> None:
    batches = by_length(np.asarray(sizes), tokens)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    lengths = [[sizes[e] for e in batch] for batch in batches]
    assert list(itertools.chain(*lengths)) == sorted(sizes, reverse=True)
    assert all(len(batch) == 1 or sum(batch) <= tokens for batch in lengths)


def test_what_is_kept_on_disk_is_the_same(tmp_path: Path) -> None:
    features = dataclasses.replace(of_sizes([4, 2]), more={"begins": np.array([1, 1])})
    features.save(tmp_path / "kept")
    found = Features.open(tmp_path / "kept")
    assert np.array_equal(found.more["begins"], [1, 1])
    check(Packing(PAD).batch(found, np.array([1, 0]), np.array([1, 0])), features, np.array([1, 0]))


def test_examples_framed_by_hand() -> None:
    """Two examples of texts 10 11 12 and 20 21; the second has nothing of the second text."""
    one = Text(np.arange(10, 13), np.array([0, 1]), np.array([2, 3]))
    two = Text(np.arange(20, 22), np.array([0, 2]), np.array([2, 2]))
    starts, ids, kinds, begun = framed(TextFrame((1,), (2,), (3, 4), types=True), one, two)
    assert starts.tolist() == [0, 8, 14]
    assert ids.tolist() == [1, 10, 11, 3, 4, 20, 21, 2, 1, 11, 12, 3, 4, 2]
    assert kinds.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1]
    assert [part.tolist() for part in begun] == [[1, 1], [5, 5]]
    starts, ids, kinds, begun = framed(TextFrame((1, 5), (2,), (3,), types=False), one)
    assert (starts.tolist(), ids.tolist()) == ([0, 5, 10], [1, 5, 10, 11, 2, 1, 5, 11, 12, 2])
    assert ([part.tolist() for part in begun], kinds.any()) == ([[2, 2]], False)


def test_where_examples_stand_in_rows() -> None:
    """The longest first, each into the fullest row that has room, ties in their order."""
    features, chosen = of_sizes([3, 4, 3, 2, 1]), np.array([2, 0, 1, 3, 4])
    batch = Packing(PAD, length=6).batch(features, chosen, chosen + 50)
    assert batch.spans.tolist() == [[6, 3], [9, 3], [0, 4], [4, 2], [12, 1]]
    assert batch.documents is not None
    assert batch.documents.tolist() == [[1, 1, 1, 1, 2, 2], [1, 1, 1, 2, 2, 2], [1, 0, 0, 0, 0, 0]]
    assert batch.tokens[2].tolist() == [112, *[PAD] * 5]
    assert (batch.numbers.tolist(), batch.labels.tolist()) == ([52, 50, 51, 53, 54], [20, 0, 10, 30, 40])
    alone = Packing(PAD, alone=True).batch(features, chosen, chosen)
    assert (alone.tokens.shape, alone.spans.tolist()) == ((5, 8), [[0, 3], [8, 3], [16, 4], [24, 2], [32, 1]])
    assert alone.documents is not None
    bare = Features(features.starts, features.ids)
    plain = Packing(PAD).batch(bare, chosen[:2], chosen[:2])
    assert (plain.types, plain.labels, plain.documents) == (None, None, None)
    assert not plain.weights.any()
    assert not plain.targets.any()


@pytest.mark.parametrize(("sizes", "length"), [([13], 13), ([13, 13], 13), ([13, 9], 16), ([16, 8], 16), ([17, 8], 24)])
def test_short_rows_are_multiples_of_eight(sizes: list[int], length: int) -> None:
    assert rounded(np.array(sizes)) == length


def test_batches_of_like_lengths_by_hand() -> None:
    assert [batch.tolist() for batch in by_length(np.array([3, 5, 3, 5, 20, 3]), 10)] == [[4], [1, 3], [0, 2, 5]]


def test_whole_words_are_numbered_anew_in_each_batch() -> None:
    letters = np.frombuffer(b"newtsranhill", np.uint8)
    words = np.array([0, 0, 0, 5, 8, 12])
    features = Features(np.array([0, 3, 6]), np.array([0, 4, 1, 0, 2, 1], np.int32), characters=letters, words=words)
    batch = Packing(0).batch(features, np.array([0]), np.array([0]))
    assert batch.tokens.tolist() == [[0, 2, 1]]
    assert batch.characters is not None
    assert batch.words is not None
    assert (batch.characters.numpy().tobytes(), batch.words.tolist()) == (b"hill", [0, 0, 0, 4])
    both = Packing(0).batch(features, np.array([0, 1]), np.array([0, 1]))
    assert both.words is not None
    assert both.words.tolist() == [0, 0, 0, 5, 9]


def test_examples_are_told_by_their_numbers() -> None:
    rows = ExampleRows(of_sizes([5, 9, 3]), Packing(PAD), 4, 1)
    spans = rows.spans(np.arange(3, 9))
    assert [span.number for span in spans] == list(range(3, 9))
    assert all((span.source, span.start, span.stop) == (0, 0, [5, 9, 3][span.document]) for span in spans)
    assert [span.document for span in spans] == [2, 1, 0, 0, 1, 2], "the order stays from version to version"


def test_columns_of_older_folders_are_read_by_their_former_names(tmp_path: Path) -> None:
    characters, words = np.frombuffer(b"newts", np.uint8), np.array([0, 0, 0, 5])
    Features(np.array([0, 1]), np.array([2], np.int32), characters=characters, words=words).save(tmp_path / "new")
    (tmp_path / "new" / "characters.npy").rename(tmp_path / "new" / "letters.npy")
    again = Features.open(tmp_path / "new")
    assert again.characters is not None
    assert again.characters.tobytes() == b"newts"
    assert again.more == {}


def test_features_that_lack_a_column_are_refused(tmp_path: Path) -> None:
    for name in ("starts", "ids"):
        of_sizes([2]).save(tmp_path / name)
        (tmp_path / name / f"{name}.npy").unlink()
        with pytest.raises(DataError, match=r"starts\.npy or ids\.npy is missing; wanted features; delete the folder"):
            Features.open(tmp_path / name)

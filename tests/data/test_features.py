"""Features in rows: every example stands there once, apart from the others, in rows that are nearly full."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.data.batch import Batch
from ordsmed.data.features import ExampleRows, Features, Packing, by_length

PAD = 7
SIZES = st.lists(st.integers(1, 90), min_size=1, max_size=40)


def of_sizes(sizes: list[int]) -> Features:
    """Tokens 100, 101, ... so that each is known by its number."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = np.arange(100, 100 + starts[-1], dtype=np.int32)
    return Features(
        starts, ids, types=(ids % 2).astype(np.uint8), marks=(ids % 3 - 1).astype(np.int32),
        labels=np.arange(len(sizes)) * 10,
    )  # fmt: skip


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
    """Of lengths like those of SQuAD's windows, and of SST-2's sentences."""
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

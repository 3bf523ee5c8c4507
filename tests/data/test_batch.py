"""Batch: every tensor has the documented shape."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ordsmed.data.batch import Batch, batch_of


def arrays(rows: int = 2, length: int = 5, slots: int = 3) -> dict[str, np.ndarray | None]:
    zeros = np.zeros((rows, length), np.int64)
    return {
        "numbers": np.arange(rows),
        "tokens": zeros,
        "positions": zeros,
        "documents": zeros.astype(np.int32),
        "types": zeros,
        "predicted_positions": np.zeros((rows, slots), np.int64),
        "targets": np.zeros((rows, slots), np.int64),
        "weights": np.zeros((rows, slots), np.float32),
        "pairs": np.zeros(rows, np.int64),
        "keys": np.zeros(rows, np.int64),
        "causal": np.zeros(rows, np.bool_),
        "streams": np.zeros(rows, np.int64),
        "characters": np.zeros(9, np.uint8),
        "words": np.zeros(4, np.int64),
        "candidates": np.zeros(6, np.int64),
        "tries": np.zeros((), np.int64),
        "spans": np.zeros((rows, 2), np.int64),
        "labels": np.zeros((rows, 3), np.int64),
    }


def test_shapes_that_fit() -> None:
    batch = batch_of(**arrays())
    assert {f.name for f in dataclasses.fields(Batch)} == {*arrays(), "counting", "bounds", "longest"}
    assert (batch.tokens.dtype, batch.weights.dtype, batch.documents.dtype) == (torch.int64, torch.float32, torch.int32)  # type: ignore[union-attr]
    batch_of(**{**arrays(slots=5), "predicted_positions": None, "documents": None, "types": None})
    assert batch.to(torch.device("cpu")) is batch


def test_predicted_positions_go_by_their_former_name_too() -> None:
    known = arrays()
    known["places"] = known.pop("predicted_positions")
    batch = batch_of(**known)
    assert batch.predicted_positions is not None
    assert batch.places is batch.predicted_positions


@pytest.mark.parametrize(
    "name",
    [
        "numbers",
        "positions",
        "documents",
        "types",
        "weights",
        "predicted_positions",
        "pairs",
        "keys",
        "causal",
        "streams",
        "labels",
    ],
)
def test_shapes_that_do_not(name: str) -> None:
    wrong = arrays()
    wrong[name] = arrays(rows=3)[name]
    with pytest.raises(AssertionError, match=f"Batch.{name}: "):
        batch_of(**wrong)


def test_without_places_every_token_is_predicted() -> None:
    with pytest.raises(AssertionError, match="without predicted positions"):
        batch_of(**{**arrays(), "predicted_positions": None})


def test_another_device() -> None:
    batch = batch_of(**arrays()).to(torch.device("meta"))
    assert {getattr(batch, name).device.type for name in arrays()} == {"meta"}


def test_examples_may_be_more_than_rows() -> None:
    own = {**arrays(), "numbers": np.arange(5), "spans": np.zeros((5, 2), np.int64), "labels": np.zeros(5, np.int64)}
    assert len(batch_of(**own).numbers) == 5
    for name in ("numbers", "labels"):
        with pytest.raises(AssertionError, match=f"Batch.{name}: "):
            batch_of(**{**own, name: np.arange(2)})
    alone = {**arrays(), "spans": None, "labels": None}
    assert len(batch_of(**alone).numbers) == 2
    with pytest.raises(AssertionError, match=r"Batch.numbers: "):
        batch_of(**{**alone, "numbers": np.arange(5)})


def test_a_device_is_told_how_long_the_longest_example_is() -> None:
    spans = np.array([[0, 2], [2, 3], [5, 1]])
    batch = batch_of(**{**arrays(), "numbers": np.arange(3), "spans": spans, "labels": np.zeros(3, np.int64)})
    there = batch.to(torch.device("meta"))
    assert batch.longest is None
    assert [part.tolist() for part in batch.examples()[:2]] == [[[0], [2], [5]], [[2], [3], [1]]]
    assert batch.examples()[2] == there.examples()[2] == there.to(torch.device("meta")).longest == 3
    assert batch_of(**{**arrays(), "spans": None}).to(torch.device("meta")).longest is None


def test_a_device_is_told_which_slots_count() -> None:
    own = {**arrays(), "predicted_positions": None}
    shape = own["tokens"].shape
    own |= {"targets": own["tokens"], "weights": np.zeros(shape, np.float32)}
    own["weights"][0, 1] = own["weights"][1, 0] = 0.5
    there = torch.device("meta")
    assert batch_of(**own).to(there).counting.shape == (2,)
    assert batch_of(**own).to(torch.device("cpu")).counting is None
    own["weights"][:] = 1
    assert batch_of(**own).to(there).counting is None
    assert batch_of(**arrays()).to(there).counting is None


def test_the_slots_that_count_are_those_with_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {**arrays(), "predicted_positions": None}
    shape = own["tokens"].shape
    own |= {"targets": own["tokens"], "weights": np.zeros(shape, np.float32)}
    own["weights"][0, 1] = own["weights"][1, 0] = 0.5
    monkeypatch.setattr(Batch, "_map", lambda batch, change: batch)
    assert batch_of(**own).to(torch.device("meta")).counting.tolist() == [1, shape[1]]

"""A validation's arithmetic with a made-up objective: sums over all counts, every row once, whatever the ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base.ranks import Ranks
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.pretrain import texts


class Numbers:
    """Rows that are their own numbers."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def batch(self, numbers: Any) -> Any:
        self.asked += numbers.tolist()
        return SimpleNamespace(
            numbers=torch.as_tensor(numbers), to=lambda device: SimpleNamespace(numbers=torch.as_tensor(numbers))
        )


class Objective(torch.nn.Module):
    """A row with the number n makes n + 1 predictions, with a loss of n in all, of which one is right."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = {"one": 2.0, "two": 0.5}
        self.state: dict[str, Any] = {}
        self.modes: list[bool] = []

    def count(self, batch: Any) -> dict[str, Any]:
        return {"one": (batch.numbers + 1).sum(), "two": torch.zeros(())}

    def validate(self, batch: Any) -> dict[str, Any]:
        self.modes.append(self.training or torch.is_grad_enabled())
        return {
            "one": batch.numbers.sum(),
            "one_right": torch.tensor(float(len(batch.numbers))),
            "two": torch.zeros(()),
            "two_right": torch.zeros(()),
            "gap": torch.tensor(3.0),
            "gap_count": torch.tensor(6.0),
        }

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        return {"double": 2 * means["one"]}


def judged(count: int, rank: int = 0, world: int = 1, state: bool = False) -> tuple[dict[str, float], Any, list[int]]:
    objective, rows = Objective().train(), Numbers()
    objective.state = {"h": torch.zeros(1)} if state else {}
    ranks = Ranks(torch.device("cpu"), rank, world, shape=(world, 1, 1))
    job = SimpleNamespace(objective=objective, ranks=ranks, recipe=SimpleNamespace(layout=Layout()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ranks, "total", lambda self, values: values)
        return texts.validate(job, rows, count), objective, rows.asked  # type: ignore[arg-type]


def test_means_are_over_all_predictions_of_all_rows() -> None:
    """70 rows in batches of 32: each once, the last ragged; a term that never came counts nothing."""
    found, objective, asked = judged(70)
    assert asked == list(range(70))
    one = sum(range(70)) / sum(range(1, 71))
    assert found == pytest.approx(
        {
            "validation": 2 * one,
            "one": one,
            "one_right": 70 / sum(range(1, 71)),
            "two": 0.0,
            "gap": 0.5,
            "double": 2 * one,
        }
    )
    assert objective.modes == [False] * 3, "without dropout and slopes"
    assert objective.training, "and it learns on"


def test_who_goes_along_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two ranks has the second batch, and one that is the first rank's."""
    alone, along = judged(70, 1, 2)[0], range(32, 64)
    predictions = sum(number + 1 for number in along)
    assert alone["one"] == pytest.approx(sum(along) / predictions)
    assert alone["one_right"] == pytest.approx(32 / predictions)


def test_a_single_prediction_is_its_own_mean() -> None:
    found, _, _ = judged(1)
    assert (found["one"], found["one_right"]) == (0.0, 1.0)


@pytest.mark.parametrize(("rows", "world"), [(70, 2), (32, 2), (200, 3), (10, 4)])
def test_ranks_take_batches_in_turn(rows: int, world: int) -> None:
    """Each batch counts once over all ranks; who has none goes along with one that does not count."""
    taken = [list(texts._validation_batches(job_at(rank, world), rows)) for rank in range(world)]
    assert len({len(own) for own in taken}) == 1, "as many turns each, or one would wait"
    counted = [n for own in taken for numbers, mine in own if mine for n in numbers.tolist()]
    assert sorted(counted) == list(range(rows))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_who_carries_a_state_follows_its_own_streams(world: int) -> None:
    taken = [list(texts._validation_batches(job_at(rank, world, state=True), 96)) for rank in range(world)]
    for own in taken:
        firsts = np.stack([numbers for numbers, _ in own])
        assert (np.diff(firsts, axis=0) == texts.VALIDATION_ROWS).all(), "the same streams in every batch"
    assert sorted(n for own in taken for numbers, mine in own if mine for n in numbers.tolist()) == list(range(96))


def job_at(rank: int, world: int, *, state: bool = False) -> Any:
    ranks = Ranks(torch.device("cpu"), rank, world, shape=(world, 1, 1))
    return SimpleNamespace(ranks=ranks, objective=SimpleNamespace(state={"h": 1} if state else {}))


def test_more_ranks_than_streams_go_along() -> None:
    (numbers, mine), *_ = texts._validation_batches(job_at(39, 40, state=True), 32)
    assert (len(numbers), mine) == (1, False)


def test_what_a_validation_found_in_words() -> None:
    job: Any = SimpleNamespace(objective=SimpleNamespace(measures=("perplexity",)))
    told = lambda **found: texts.TextData.describe(job, job, found)  # noqa: E731
    assert told(validation=2.5, mlm=2.5) == "validation loss 2.5000"
    assert told(validation=2.5, mlm_right=0.257, pair_right=1.0) == (
        "validation loss 2.5000 (mlm 25.7% right, pair 100.0% right)"
    )
    assert told(validation=2.5, perplexity=12.2).startswith("validation loss 2.5000 (perplexity 12.")


def test_nothing_is_held_out_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(texts, "validate", lambda *given: asked.append(given[1:]) or {"validation": 1.0})
    data: Any = SimpleNamespace(recipe=SimpleNamespace(validation_rows=5))
    for rows, wanted in ((None, {}), (range(3), {"validation": 1.0}), (range(9), {"validation": 1.0})):
        data.validation = lambda index, rows=rows: rows
        assert texts.TextData.validate(data, data, 0) == wanted
    assert asked == [(range(3), 3), (range(9), 5)], "as many rows as are asked for, or as there are"

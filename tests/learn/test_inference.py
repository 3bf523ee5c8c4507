"""Inference on many examples: each is predicted once, means are over all, whatever the number of ranks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base.ranks import Ranks
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Packing
from ordsmed.learn import inference as asking
from ordsmed.learn.inference import predict_all
from ordsmed.learn.task import LOST

SIZES = [5, 2, 9, 1, 4, 4, 7]


class Told(torch.nn.Module):
    """A task that answers with the number and the tokens of an example; the loss is the number, if it is even."""

    by_token, end_to_end = ("tokens",), ()

    def __init__(self) -> None:
        super().__init__()
        self.weights = {"own": 1.0, "never": 1.0}
        self.seen: list[int] = []
        self.states: set[tuple[bool, bool]] = set()

    def count(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"own": (batch.numbers % 2 == 0).sum(), "never": torch.zeros(())}

    def validate(self, batch: Batch) -> dict[str, torch.Tensor]:
        self.seen += batch.numbers.tolist()
        self.states.add((self.training, torch.is_grad_enabled()))
        even = batch.numbers * (batch.numbers % 2 == 0)
        assert batch.spans is not None
        longest = int(batch.spans[:, 1].max())
        tokens = torch.zeros(len(batch.numbers), longest, dtype=torch.int64)
        for row, (begin, size) in enumerate(batch.spans.tolist()):
            tokens[row, :size] = batch.tokens.flatten()[begin : begin + size]
        return {"number": batch.numbers.float(), "tokens": tokens, f"own{LOST}": even.sum().float()}


def features() -> Features:
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    return Features(starts, np.arange(100, 100 + starts[-1], dtype=np.int32), types=None)


def asked(rank: int = 0, world: int = 1, **how: Any) -> tuple[Any, dict[str, float], Told]:
    task = Told().train()
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(asking.TOKENS, "cpu", 10)  # batches of about two
        found, means = predict_all(
            task, features(), Packing(0), Ranks(torch.device("cpu"), rank, world, shape=(world, 1, 1)), **how
        )  # type: ignore[arg-type]
    return found, means, task


def test_every_example_is_told_once_and_in_its_place() -> None:
    done: list[int] = []
    found, means, task = asked(done=done.append)
    assert sorted(task.seen) == list(range(7))
    assert found["number"].tolist() == list(range(7))
    starts = np.cumsum([0, *SIZES])
    wanted = [[*range(100 + a, 100 + b), *[0] * (9 - b + a)] for a, b in itertools.pairwise(starts)]
    assert found["tokens"].tolist() == wanted
    assert means == {"own": (0 + 2 + 4 + 6) / 4}, "what never came has no mean"
    assert (sum(done), len(done) > 2) == (7, True)
    assert task.states == {(False, False)}, "without dropout and gradients"
    assert task.training, "and it learns on"


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_take_batches_in_turn_and_all_of_them_get_all(monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    shares: list[list[torch.Tensor]] = []
    monkeypatch.setattr(Ranks, "total", lambda self, values: shares[-1].append(values.clone()) or values)
    turns = set()
    for rank in range(world):
        shares.append([])
        turns.add(len(asked(rank, world)[2].seen) > 0)
    assert turns == {True}
    alone, means, _ = asked()
    number, tokens, own, never = (sum(parts) for parts in zip(*shares, strict=True))
    assert number.tolist() == alone["number"].tolist()
    assert tokens.tolist() == alone["tokens"].tolist()
    assert float(own[0] / own[1]) == means["own"]
    assert not never.any()

"""The running mean of the weights: how much of it is memory, and what a checkpoint holds of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.nn.shards import LocalParameter, box_of
from ordsmed.train import average
from ordsmed.weights import boxes


def learner(*values: float) -> tuple[Any, list[LocalParameter]]:
    """As much of an optimizer as keeps a state, and what it learns."""
    parameters = [torch.nn.Parameter(torch.tensor([value])) for value in values]
    return SimpleNamespace(state=defaultdict(dict)), [LocalParameter.of(f"p{n}", p) for n, p in enumerate(parameters)]


def move(parts: list[LocalParameter], *values: float) -> None:
    with torch.no_grad():
        for part, value in zip(parts, values, strict=True):
            part.local.fill_(value)


def test_most_of_the_mean_is_memory() -> None:
    """0.9 * mean + 0.1 * weights, beginning with the first weights; the weights themselves stay as they are."""
    optimizer, parts = learner(1.0, -4.0)
    wanted = torch.tensor([1.0, -4.0])
    for values in ((1.0, -4.0), (11.0, 6.0), (0.0, 5.0)):
        move(parts, *values)
        average.update(optimizer, parts, 0.9)
        wanted = 0.9 * wanted + 0.1 * torch.tensor(values)
        found = torch.cat([optimizer.state[part.local][average.KEY] for part in parts])
        torch.testing.assert_close(found, wanted)
        assert torch.cat([part.local.detach() for part in parts]).tolist() == list(values)


def test_without_memory_nothing_is_kept() -> None:
    optimizer, parts = learner(1.0)
    average.update(optimizer, parts, average.decay_at(0.0, 1, 4))
    assert not optimizer.state[parts[0].local]


def test_means_are_read_by_the_names_of_the_weights(tmp_path: Path) -> None:
    values = {"average/model.words": torch.tensor([1.0]), "exp_avg/model.words": torch.tensor([2.0])}
    boxes.write(tmp_path / "optimizer.safetensors", values, {name: box_of(value) for name, value in values.items()})
    assert average.read(tmp_path) == {"model.words": torch.tensor([1.0])}


ENDS = [(1.0, 1, [1, 2, 3, 4, 5, 6, 7]), (0.5, 1, [4, 5, 6, 7]), (1.0, 3, [1, 4, 7]), (0.6, 2, [5, 7]), (0.01, 9, [7])]


@pytest.mark.parametrize(("last", "every", "wanted"), ENDS)
def test_the_end_of_a_run_has_a_mean_of_equal_weights(last: float, every: int, wanted: list[int]) -> None:
    optimizer, parts = learner(0.0)
    for step in range(1, 8):
        move(parts, step**2)
        average.update(optimizer, parts, average.decay_at(average.Tail(last, every), step, 7))
        if step < wanted[0]:
            assert not optimizer.state[parts[0].local]
    mean = optimizer.state[parts[0].local][average.KEY]
    torch.testing.assert_close(mean, torch.tensor([sum(n**2 for n in wanted) / len(wanted)]))


@pytest.mark.parametrize(
    ("key", "values"), [("last", {"last": 0.0}), ("last", {"last": 1.1}), ("every", {"last": 0.5, "every": 0})]
)
def test_ends_that_cannot_be(key: str, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=key):
        average.Tail(**values)


def test_the_mean_stands_in_for_the_weights_and_goes_again() -> None:
    optimizer, parts = learner(1.0, 2.0)
    average.update(optimizer, parts[:1], 0.5)
    move(parts, 5.0, 6.0)
    with average.averaged_weights(optimizer, parts):
        assert [part.local.item() for part in parts] == [1.0, 6.0], "of the second there is none"
    assert [part.local.item() for part in parts] == [5.0, 6.0]

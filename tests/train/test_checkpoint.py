"""Checkpoints in parts: each rank writes its share, any number of ranks reads them back, carried state with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ordsmed.base.ranks import Ranks
from ordsmed.learn.groups import groups
from ordsmed.models import bert
from ordsmed.objectives import mlm
from ordsmed.optimizers import adamw
from ordsmed.train import checkpoint


class Named:
    """As much of a tokenizer as an objective asks for when it is built."""

    vocabulary = 50


def learned(seed: int, state: torch.Tensor) -> tuple[Any, Any, Any]:
    """A small objective after one update, with carried state."""
    torch.manual_seed(seed)
    objective = mlm.Settings().build(bert.Settings(width=16, layers=1, heads=2, positions=8), Named())
    objective.state["streams"] = state
    made = groups(objective)
    optimizer = adamw.Settings().build(made)
    for parameter in objective.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return objective, optimizer, [part for group in made for part in group["parts"]]


def rank_of(rank: int, world: int) -> Ranks:
    return Ranks(torch.device("cpu"), rank, world, shape=(world, 1, 1))


def test_copies_share_the_writing_and_state_is_cut_by_streams(tmp_path: Path) -> None:
    streams = torch.arange(12.0).view(4, 3)
    writers = []
    for rank in (1, 0):
        objective, optimizer, parts = learned(0, streams[2 * rank : 2 * rank + 2].clone())
        writers.append(checkpoint.Writer(tmp_path, rank_of(rank, 2), 3, background=True, token="x"))
        writers[-1].save(5, objective, optimizer, parts, {}, scaler={})
    assert writers[1].outcome(give_up=False) is None
    path = tmp_path / "step-000000005"
    sizes = sorted(file.stat().st_size for file in path.glob("model-*"))
    assert len(sizes) == 2
    assert sizes[1] < 3 * sizes[0]
    assert checkpoint.damage(path) == ""
    wanted, moments, parts = learned(0, streams)
    for rank, world in ((0, 1), (0, 2), (1, 2), (3, 4)):
        own = streams[len(streams) // world * rank : len(streams) // world * (rank + 1)]
        objective, optimizer, into = learned(1, torch.zeros_like(own))
        checkpoint.restore(path, objective, optimizer, into, rank_of(rank, world), {})
        assert torch.equal(objective.state["streams"], own)
        for name, tensor in objective.state_dict().items():
            assert torch.equal(tensor, wanted.state_dict()[name]), name
        for ours, theirs in zip(into, parts, strict=True):
            assert torch.equal(optimizer.state[ours.local]["exp_avg_sq"], moments.state[theirs.local]["exp_avg_sq"])

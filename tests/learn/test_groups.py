"""Parameter groups: matrices decay, vectors do not, each parameter once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ordsmed.learn.groups import groups
from ordsmed.models import bert, gpt2
from ordsmed.objectives import clm, mlm


class Named:
    """As much of a tokenizer as an objective asks for when it is built."""

    vocabulary = 50


@pytest.mark.parametrize(("family", "task"), [(bert, mlm), (gpt2, clm)])
def test_every_parameter_in_one_group(family: object, task: object) -> None:
    objective = task.Settings().build(family.Settings(width=64, layers=2, positions=16), Named())  # type: ignore[attr-defined]
    decayed, plain = groups(objective)
    assert (decayed["decayed"], plain["decayed"]) == (True, False)
    assert all(p.ndim > 1 for p in decayed["params"])
    assert all(p.ndim == 1 for p in plain["params"])
    found = [id(p) for group in (decayed, plain) for p in group["params"]]
    assert sorted(found) == sorted(map(id, objective.parameters()))
    assert len(set(found)) == len(found)
    named = dict(objective.named_parameters())
    for group in (decayed, plain):
        assert all(named[name] is p for name, p in zip(group["names"], group["params"], strict=True))
    assert any("norm" in name and name.endswith("weight") for name in plain["names"])
    assert not any("norm" in name or name.endswith("bias") for name in decayed["names"])


def test_what_does_not_learn_is_left_out() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    decayed, plain = groups(layer)
    assert (decayed["params"], plain["names"]) == ([], ["bias"])
    tied = nn.ModuleList([nn.Embedding(4, 3), nn.Linear(3, 4)])
    tied[1].weight = tied[0].weight
    assert [len(g["params"]) for g in groups(tied)] == [1, 1]
    assert torch.equal(groups(tied)[0]["params"][0], tied[0].weight)

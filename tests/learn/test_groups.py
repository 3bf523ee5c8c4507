"""Parameter groups: matrices decay, vectors do not, each parameter once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ordsmed.base.menu import choice
from ordsmed.learn.groups import Rule, groups, levels
from ordsmed.learn.objectives import clm, mlm
from ordsmed.nn.models import bert, gpt2


class Named:
    """The part of a tokenizer that building an objective needs."""

    vocabulary = 50


@pytest.mark.parametrize(("family", "task"), [(bert, mlm), (gpt2, clm)])
def test_every_parameter_in_one_group(family: object, task: object) -> None:
    objective = choice(task)().build(choice(family)(width=64, layers=2, positions=16), Named())  # type: ignore[attr-defined]
    made = {group["kind"]: group for group in groups(objective)}
    assert {kind: group["decayed"] for kind, group in made.items()} == {"table": True, "matrix": True, "vector": False}
    assert all(p.ndim == (1 if kind == "vector" else 2) for kind, group in made.items() for p in group["params"])
    assert "model.words.weight" in made["table"]["names"]
    found = [id(p) for group in made.values() for p in group["params"]]
    assert sorted(found) == sorted(map(id, objective.parameters()))
    assert len(set(found)) == len(found)
    named = dict(objective.named_parameters())
    for group in made.values():
        assert all(named[name] is p for name, p in zip(group["names"], group["params"], strict=True))
    assert any("norm" in name and name.endswith("weight") for name in made["vector"]["names"])
    decayed = [name for group in made.values() if group["decayed"] for name in group["names"]]
    assert not any("norm" in name or name.endswith("bias") for name in decayed)


@pytest.mark.parametrize(("family", "task"), [(bert, mlm), (gpt2, clm)])
def test_each_layer_learns_at_a_share_of_the_one_above(family: object, task: object) -> None:
    """ELECTRA's rule: decay ^ (layers + 2 - level), with embeddings at level 0 and block i at i + 1."""
    objective = choice(task)().build(choice(family)(width=64, layers=2, positions=16), Named())  # type: ignore[attr-defined]
    share = {name: g["share"] for g in groups(objective, layer_decay=0.8) for name in g["names"]}
    assert share["model.words.weight"] == share["model.places.weight"] == pytest.approx(0.8**4)
    assert share["model.blocks.0.up.bias"] == pytest.approx(0.8**3)
    assert share["model.blocks.1.up.weight"] == pytest.approx(0.8**2)
    assert all(value == 1 for name, value in share.items() if name.startswith("head."))
    if family is gpt2:
        assert share["model.norm.weight"] == pytest.approx(0.8)  # it follows the blocks


def test_rules_by_name() -> None:
    objective = mlm.Mlm().build(bert.Bert(width=64, layers=2, positions=16), Named())
    rules = (Rule("words", rate=0.5, decay=False), Rule(r"blocks\.1\.", rate=0.0))
    found = {name: g for g in groups(objective, rules=rules) for name in g["names"]}
    assert (found["model.words.weight"]["share"], found["model.words.weight"]["decayed"]) == (0.5, False)
    assert found["model.blocks.1.up.weight"]["share"] == 0.0
    assert found["model.blocks.1.up.weight"]["decayed"]
    assert found["model.blocks.0.up.weight"]["share"] == 1.0
    with pytest.raises(ValueError, match="match"):
        Rule("(")


def test_what_does_not_learn_is_left_out() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    (plain,) = groups(layer)
    assert plain["names"] == ["bias"]
    tied = nn.ModuleList([nn.Embedding(4, 3), nn.Linear(3, 4)])
    tied[1].weight = tied[0].weight
    assert [len(g["params"]) for g in groups(tied)] == [1, 1]
    assert torch.equal(groups(tied)[0]["params"][0], tied[0].weight)


def test_the_first_rule_that_fits_counts_beside_the_layers_share() -> None:
    objective = mlm.Mlm().build(bert.Bert(width=64, layers=2, positions=16), Named())
    rules = (Rule(r"bias$", decay=True), Rule(r"blocks\.1\.up", rate=0.5), Rule("blocks", rate=9.0))
    found = {name: g for g in groups(objective, rules=rules, layer_decay=0.8) for name in g["names"]}
    assert (found["model.blocks.1.up.bias"]["share"], found["model.blocks.1.up.bias"]["decayed"]) == (0.8**2, True)
    assert found["model.blocks.1.up.weight"]["share"] == pytest.approx(0.5 * 0.8**2)
    assert found["model.blocks.0.up.weight"]["share"] == pytest.approx(9 * 0.8**3)
    assert not found["model.norm.weight"]["decayed"]
    for rate in (-0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"rate: found .*; wanted 0 or more"):
            Rule("x", rate=rate)


def test_what_does_not_learn_is_in_no_group_and_padding_is_noted() -> None:
    objective = mlm.Mlm().build(bert.Bert(width=64, layers=1, positions=16), Named())
    objective.model.places.weight.requires_grad_(False)
    made = groups(objective, rows={"model.words.weight": 7})
    parts = {part.name: part for group in made for part in group["parts"]}
    assert "model.places.weight" not in parts
    assert (parts["model.words.weight"].size, parts["head.bias"].size) == (7 * 64, 50)
    assert all(part.local is parameter for g in made for part, parameter in zip(g["parts"], g["params"], strict=True))


def test_levels_of_two_networks_and_of_none() -> None:
    names = [
        "model.words.weight",
        "model.blocks.0.up.weight",
        "model.blocks.2.up.weight",
        "model.norm.weight",
        "generator.places.weight",
        "generator.blocks.1.up.weight",
        "generator.norm.bias",
        "head.bias",
    ]
    assert levels(names) == dict(zip(names, [0, 1, 3, 4, 0, 2, 4, 5], strict=True)) | {"heads": 5}
    assert levels(["model.words.weight", "head.bias"]) == {"model.words.weight": 0, "head.bias": 2, "heads": 2}
    assert levels(["blocks.0.a", "myblocks.7.a"]) == {"blocks.0.a": 1, "myblocks.7.a": 3, "heads": 3}

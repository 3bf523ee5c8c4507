"""Distillation: the loss compared with its formula, which weights are trained, and validation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from ordsmed.base import files, settings, snapshots
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import operations
from ordsmed.learn import teacher
from ordsmed.learn.objectives import clm, mlm
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert, gpt2
from ordsmed.train.meters import read
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.weights.trained_model import open_model
from ordsmed.weights.weights import read as read_weights

Recipe = Callable[..., Path]
WORDS = 11


def inputs(seed: int, width: int, *, bias: bool) -> tuple[Any, ...]:
    chance = torch.Generator().manual_seed(seed)
    states = torch.randn(2, 5, width, generator=chance, requires_grad=True)
    table = torch.randn(WORDS, width, generator=chance, requires_grad=True)
    targets = torch.randint(WORDS, (2, 5), generator=torch.Generator().manual_seed(9))
    weights = torch.tensor([[1.0, 1, 0, 2, 1], [0, 1, 1, 0, 0]])
    return states, table, torch.randn(WORDS, generator=chance) if bias else None, targets, weights, WORDS


@pytest.mark.parametrize("how", [{"share": 0.3}, {"temperature": 2.0, "share": 1.0}, {"top": 3}, {"top": 99}], ids=str)
@pytest.mark.parametrize("most", [1 << 24, 2 * WORDS])
def test_the_formula(how: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where scores are computed in pieces; nothing flows to the teacher."""
    monkeypatch.setattr(teacher, "CHUNK_SCORES", most)
    settings_of = teacher.Teacher("run", **how)
    own, theirs = inputs(0, 4, bias=True), inputs(1, 6, bias=False)
    found = teacher.taught_loss(settings_of, own, theirs)
    found.backward()
    wanted = 0.0
    t, share, top = settings_of.temperature, settings_of.share, min(settings_of.top or WORDS, WORDS)
    for row in range(2):
        for at in range(5):
            scores = own[1] @ own[0][row, at] + own[2]
            best = torch.sort(theirs[1] @ theirs[0][row, at], descending=True)
            q = torch.softmax(best.values[:top] / t, 0)
            p = torch.softmax(scores / t, 0)[best.indices[:top]]
            distance = (q * (q / p).log()).sum() * t**2
            loss = -torch.log_softmax(scores, 0)[own[3][row, at]]
            wanted = wanted + own[4][row, at] * ((1 - share) * loss + share * distance)
    torch.testing.assert_close(found, wanted)
    [wanted_slope] = torch.autograd.grad(wanted, own[0])
    torch.testing.assert_close(own[0].grad, wanted_slope)
    assert [tensor.grad for tensor in theirs[:2]] == [None, None]


def test_who_is_like_the_teacher_has_no_distance_to_it() -> None:
    own = inputs(0, 4, bias=True)
    assert teacher.taught_loss(teacher.Teacher("run", share=1.0), own, own).item() == pytest.approx(0.0, abs=1e-6)
    states, table, bias, targets, weights, _ = own
    plain = F.cross_entropy(F.linear(states, table, bias).flatten(0, 1), targets.flatten(), reduction="none")
    half = teacher.taught_loss(teacher.Teacher("run", share=0.5), own, own).item()
    assert half == pytest.approx((plain * weights.flatten()).sum().item() / 2)


@pytest.mark.parametrize(
    ("key", "value"), [("run", ""), ("share", 0.0), ("share", 1.5), ("temperature", 0.0), ("top", 1), ("top", -1)]
)
def test_teachers_that_cannot_be(key: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=rf"teacher\.{key}"):
        settings.decode(mlm.Mlm, {"teacher": {"run": "r", key: value}}, "r.toml: objective")


def taught(recipe: Recipe, name: str, *words: str, **how: Any) -> Path:
    return pretrain(
        str(recipe(name, **how)),
        ["model.width=16", "model.layers=1", "model.dropout=0.0", "model.attention_dropout=0.0", *words],
    )


@pytest.mark.parametrize(("kind", "objective"), [("bert", "mlm"), ("gpt2", "clm")])
def test_a_run_learns_from_a_larger_one(recipe: Recipe, kind: str, objective: str) -> None:
    """Resumed bit by bit; its folder has its own weights alone and opens when the teacher is gone."""
    of = {"kind": kind, "objective": objective}
    large = pretrain(str(recipe("large", steps=4, **of)))
    word = f"objective.teacher={{run='{large}',share=0.9}}"
    lines = PretrainingPlan.read(str(recipe("small", steps=4, **of)), [word, "model.width=16"]).lines()
    whole = files.read_json(large / "status.json")["flops"][0] * 4
    line = next(line for line in lines if line.startswith(f"teacher: {large}, {kind} of "))
    assert f"its own training took {operations(whole)}" in line
    small = taught(recipe, "small", word, steps=4, **of)
    alone = taught(recipe, "alone", steps=4, **of)
    names = [read_weights(folder / "weights" / "model.safetensors") for folder in (small, alone)]
    assert names[0].keys() == names[1].keys()
    assert any(not torch.equal(names[0][name], names[1][name]) for name in names[0])
    costs = [files.read_json(folder / "status.json")["flops"][0] for folder in (small, alone, large)]
    assert costs[0] == pytest.approx(costs[1] + costs[2] / 3)
    halves = taught(recipe, "halves", word, "layout.micro=4", steps=4, **of)
    other = read_weights(halves / "weights" / "model.safetensors")
    losses = [read(folder / "metrics.jsonl")[0]["loss"] for folder in (small, halves, alone)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert abs(losses[2] - losses[0]) > 0.1
    shutil.rmtree(snapshots.path_of(halves / "checkpoints", 4))
    pretrain(str(halves), [])
    again = read_weights(halves / "weights" / "model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in other.items())
    large.rename(large.with_name("gone"))
    assert own_tensors(open_model(small).objective).keys() == names[0].keys()
    assert PretrainingPlan.read(str(small)).lines()
    with pytest.raises(RecipeError, match=r"objective\.teacher\.run"):
        taught(recipe, "late", word, steps=4, **of)


def test_what_cannot_teach_is_refused(recipe: Recipe) -> None:
    causal = pretrain(str(recipe("causal", "gpt2", "clm", steps=2)))
    with pytest.raises(RecipeError, match=r"objective\.teacher\.run: found a model with NextTokens"):
        taught(recipe, "small", f"objective.teacher={{run='{causal}'}}", steps=2)
    with pytest.raises(RecipeError, match=r"layout\.tensor: found 2 with a teacher"):
        PretrainingPlan.read(str(recipe("split")), [f"objective.teacher={{run='{causal}'}}"], layout="1x1x2", devices=2)


def test_without_a_teacher_nothing_is_other() -> None:
    tokenizer = type("T", (), {"vocabulary": WORDS})()
    objectives = (
        mlm.Mlm().build(bert.Bert(width=8, layers=1, heads=1), tokenizer),
        clm.Clm().build(gpt2.Gpt2(width=8, layers=1, heads=1), tokenizer),
    )
    assert [(objective.teacher, objective.teaching_flops(3, 4)) for objective in objectives] == [(None, 0)] * 2


def test_half_of_the_loss_is_the_distance_to_all_scores_unless_it_is_said() -> None:
    own, theirs = inputs(0, 4, bias=True), inputs(1, 6, bias=False)
    usual = teacher.taught_loss(teacher.Teacher("run"), own, theirs)
    said = teacher.taught_loss(teacher.Teacher("run", share=0.5, temperature=1.0, top=WORDS), own, theirs)
    torch.testing.assert_close(usual, said)

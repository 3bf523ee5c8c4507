"""Heads of further tokens: whose loss they add, what a phase may change, and what of them is kept where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from kit.makers import job_of
from ordsmed.base import files, settings, snapshots
from ordsmed.base.errors import RecipeError
from ordsmed.learn.objectives import clm
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.weights.export import export
from ordsmed.weights.weights import read as read_weights

Recipe = Callable[..., Path]
NARROW = ["model.width=16", "model.layers=1", "model.dropout=0.0", "model.attention_dropout=0.0"]


def test_the_loss_is_that_of_every_token_ahead(recipe: Recipe) -> None:
    """Place by place: a token counts only where all up to it are of the place's document and predicted."""
    job = job_of(recipe("run", "gpt2", "clm"), *NARROW, "objective.ahead=3", "objective.ahead_weight=0.5")
    objective = job.objective
    for further in objective.ahead:  # type: ignore[union-attr]
        torch.nn.init.normal_(further.down.weight)  # type: ignore[union-attr]
    batch = job.rows(0).batch(np.arange(4))
    assert len(set(batch.documents.flatten().tolist())) > 1
    hidden = objective._hidden(batch)  # type: ignore[operator]
    wanted, counted = torch.zeros(()), 0
    for by, further in enumerate([torch.nn.Identity(), *objective.ahead]):  # type: ignore[misc]
        scores = objective.head(further(hidden))  # type: ignore[operator]
        for row in range(4):
            for at in range(32 - by):
                if batch.documents[row, at] == batch.documents[row, at + by] and batch.weights[row, at + by]:
                    loss = F.cross_entropy(scores[row, at], batch.targets[row, at + by])
                    wanted = wanted + loss * (0.5 if by else 1)
                    counted += by > 0
    assert 0 < counted < 4 * (31 + 30)
    torch.testing.assert_close(objective(batch)["clm"], wanted)
    alone = job_of(recipe("run", "gpt2", "clm"), *NARROW)
    torch.testing.assert_close(objective.validate(batch)["clm"], alone.objective(batch)["clm"], msg="same weights")


def test_without_weight_they_are_left_alone(recipe: Recipe) -> None:
    """A step costs and teaches what it does without them; their gradients are 0, on every rank."""
    words = [*NARROW, "objective.ahead=2"]
    job = job_of(recipe("run", "gpt2", "clm"), *words, "objective.ahead_weight=0.0")
    alone, both = job_of(recipe("run", "gpt2", "clm"), *NARROW), job_of(recipe("run", "gpt2", "clm"), *words)
    batch = job.rows(0).batch(np.arange(4))
    loss = job.objective(batch)["clm"]
    assert torch.equal(loss, alone.objective(batch)["clm"])
    loss.backward()
    slopes = [weight.grad for name, weight in job.objective.named_parameters() if name.startswith("ahead.")]
    assert len(slopes) == 4
    assert all(slope is not None and not slope.any() for slope in slopes)
    vocabulary = alone.objective.vocabulary
    further = 4 * 16**2 + alone.objective.model_settings.head_flops(vocabulary)
    assert job.flops(0) == alone.flops(0) == both.flops(0) - 3 * 8 * 32 * further


def test_a_run_with_further_heads(recipe: Recipe, tmp_path: Path) -> None:
    """A last phase without them; resumed bit by bit; exports and others that begin from it have none."""
    extra = "[[phase]]\nsteps = 2\nlength = 32\nbatch = 8\nrate = 1e-3\nobjective = { ahead_weight = 0.0 }\n"
    path = recipe("run", "gpt2", "clm", steps=4, extra=extra, save=2, keep=9)
    run = pretrain(str(path), [*NARROW, "objective.ahead=2"])
    flops = files.read_json(run / "status.json")["flops"]
    assert flops[0] > flops[1]
    left = read_weights(run / "weights" / "model.safetensors")
    further = {name for name in left if name.startswith("ahead.")}
    assert len(further) == 4
    assert left["ahead.0.down.weight"].any()
    for step in (4, 6):
        shutil.rmtree(snapshots.path_of(run / "checkpoints", step))
    pretrain(str(run))
    again = read_weights(run / "weights" / "model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in left.items())
    export(run, tmp_path / "hub")
    assert not any("ahead" in name for name in read_weights(tmp_path / "hub" / "model.safetensors"))
    assert json.loads((tmp_path / "hub" / "config.json").read_text())["architectures"] == ["GPT2LMHeadModel"]
    after = pretrain(str(recipe("after", "gpt2", "clm", steps=2, init=str(run))), NARROW)
    kept = read_weights(after / "weights" / "model.safetensors")
    assert kept.keys() == left.keys() - further
    validated = [files.read_json(folder / "scores.json") for folder in (run, after)]
    assert validated[1]["validation_before"] == pytest.approx(validated[0]["validation"], rel=1e-6)


def test_what_cannot_be_is_refused(recipe: Recipe) -> None:
    for key, value in (("ahead", 0), ("ahead", 9), ("ahead_weight", -1.0)):
        with pytest.raises(RecipeError, match=rf"objective\.{key}"):
            settings.decode(clm.Clm, {key: value}, "r.toml: objective")
    words: Any = ["objective.ahead=2"]
    with pytest.raises(RecipeError, match=r"layout\.tensor: found 2 with heads of further tokens"):
        PretrainingPlan.read(str(recipe("split", "gpt2", "clm")), words, layout="1x1x2", devices=2)

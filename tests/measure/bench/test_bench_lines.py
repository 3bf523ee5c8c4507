"""Bench: one JSON line, through the same loop and loader; numbers that can be checked are checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base.errors import RecipeError
from ordsmed.measure.bench.bench import bench
from ordsmed.measure.bench.plain import PlainBiLm
from ordsmed.train.pretrain.plan import PretrainingPlan


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def measured(*words: str) -> dict[str, Any]:
    (line,) = bench(words[0], words[1:], json_line=True)
    return dict(json.loads(line))


def test_the_index_map() -> None:
    found = measured("bench/windows", "sentences=5000", "batch=8")
    assert (found["bench"], found["measure"], found["sentences"], found["length"]) == (
        "bench/windows",
        "windows",
        5000,
        128,
    )
    assert found["tokens"] / 126 < found["rows"] < found["tokens"] / 126 * 1.4
    assert {"index_seconds", "step_1_ms", "step_1000000_ms"} <= found.keys()


def test_the_loader() -> None:
    cores = os.sched_getaffinity(0)
    found = measured("loader", "tokens=20000", "vocabulary=300", "steps=1", "batch=4", "lengths=[16, 64]")
    assert found["real_tokens_per_second_16"] > 0
    assert found["real_tokens_per_second_64"] > 0
    assert os.sched_getaffinity(0) == cores
    assert Path("work/bench/random-300-20000/train.bin").stat().st_size >= 2 * 20_000
    assert (
        bench("loader", ["tokens=20000", "vocabulary=300", "steps=1", "batch=4", "lengths=[16]"])[0] == "bench: loader"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert-mini", "gpt2-mini"])
def test_training(name: str) -> None:
    small = [
        "model.width=32",
        "model.layers=1",
        "model.heads=2",
        "model.inner=64",
        "vocabulary=300",
        "tokens=5000",
        "steps=3",
    ]
    found = measured(f"bench/{name}", *small, "length=16", "batch=4", "dropout=0.2", "layout.device=cpu")
    said = {
        "dropout": 0.2,
        "attention_dropout": 0.2,
        "length": 16,
        "batch": 4,
        "precision": "fp32",
        "width": 32,
        "steps": 3,
    }
    assert said.items() <= found.items()
    assert found["tokens_per_second"] == pytest.approx(16 * found["sequences_per_second"], rel=0.01)
    assert 0 < found["share_of_peak"] < 1
    assert found["threads"] >= 1
    assert found["sequences_per_second"] == pytest.approx(4 / found["step_seconds"], rel=0.2)


def test_elmo_beside_a_plain_script() -> None:
    """With the same weights and rows, the script has our loss, gradients and carried states."""
    small = ["model.width=8", "model.cells=12", "vocabulary=400", "tokens=4000", "length=5", "batch=4", "steps=3"]
    words = ["model.filters=[[1,6],[2,6]]", "objective.samples=50", "layout.device=cpu", "model.dropout=0.0"]
    jobs, build = list[Any](), PretrainingPlan.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainingPlan, "build", lambda plan: jobs.append(build(plan)) or jobs[-1])
        found = measured("elmo-small", *small, *words)
    said = {"measure": "plain", "width": 8, "cells": 12, "words_a_step": 20, "steps": 3}
    assert said.items() <= found.items()
    assert found["ratio"] == pytest.approx(found["words_per_second"] / found["plain_words_per_second"], rel=0.1)
    [job] = jobs
    job.carry(0)
    script, h, c = PlainBiLm(job.objective), job.objective.state["h"].clone(), job.objective.state["c"].clone()
    for step in range(2):
        batch = job.rows(0).batch(np.arange(4 * step, 4 * step + 4))
        ours = sum(job.objective(batch).values()) / 40
        theirs, h, c = script(batch, h, c)
        assert float(theirs.detach()) == pytest.approx(float(ours.detach()), rel=1e-5)
        assert torch.allclose(h, job.objective.state["h"], atol=1e-6)
    job.objective.zero_grad()
    ours.backward()
    theirs.backward()
    for one, other in ((job.objective.head.table, script.out), (job.objective.model.letters.table, script.table)):
        assert torch.allclose(one.weight.grad, other.weight.grad, rtol=1e-4, atol=1e-7)


def test_the_loop_beside_its_arithmetic() -> None:
    """The loop does the same steps, and more; the bare ones learn as it does."""
    small = ["model.width=32", "model.layers=1", "vocabulary=300", "tokens=5000", "length=16", "steps=5"]
    found = measured("overhead", *small, "layout.device=cpu", "model.dropout=0.0", "model.attention_dropout=0.0")
    said = {"bench": "overhead", "measure": "overhead", "width": 32, "layers": 1, "objective": "mlm", "steps": 5}
    assert said.items() <= found.items()
    assert min(found["loop_ms"], found["arithmetic_ms"]) > 0
    between = found["loop_ms"] - found["arithmetic_ms"]
    assert found["overhead_ms"] == pytest.approx(between, abs=0.5 * found["loop_ms"])


def test_bare_steps_learn_what_the_loop_learns() -> None:
    """Otherwise the difference of their times would mean nothing."""
    small = ["model.width=32", "model.layers=1", "vocabulary=300", "tokens=5000", "length=16", "steps=4"]
    jobs, build = list[Any](), PretrainingPlan.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainingPlan, "build", lambda plan: jobs.append(build(plan)) or jobs[-1])
        measured("overhead", *small, "layout.device=cpu", "model.dropout=0.0", "model.attention_dropout=0.0")
    looped, bare = jobs
    for one, other in zip(looped.parts, bare.parts, strict=True):
        assert torch.allclose(one.local, other.local, rtol=1e-4, atol=1e-6), one.name


def test_what_cannot_be_measured() -> None:
    with pytest.raises(RecipeError, match="vocabulary: found 6; wanted more than 6"):
        measured("loader", "vocabulary=6")
    with pytest.raises(RecipeError, match="loader: steps: found 0"):
        measured("loader", "steps=0")
    with pytest.raises(RecipeError, match="model: missing"):
        measured("loader", "measure=overhead")

"""Reference steps of transformers: networks of the same size, which learn their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base import measurements
from ordsmed.base.errors import RecipeError
from ordsmed.measure.bench.bench import bench
from ordsmed.measure.bench.transformers_step import TransformersStep
from ordsmed.train.pretrain.plan import PretrainingPlan

SMALL = [
    "model.width=32",
    "model.layers=1",
    "model.heads=2",
    "model.inner=64",
    "vocabulary=300",
    "tokens=5000",
    "length=16",
    "batch=4",
    "layout.micro=2",
    "steps=2",
    "layout.device=cpu",
    "layout.threads=1",
    "dropout=0.0",
    "beside=transformers",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("name", "apart"), [("bert-mini", 0), ("gpt2-mini", 0), ("electra-small", 1)])
def test_a_step_of_the_same_sizes(name: str, apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """ELECTRA's generator has tables of its own there, which ours shares."""
    pytest.importorskip("transformers")
    steps, of = list[TransformersStep](), TransformersStep.of
    jobs, build = list[Any](), PretrainingPlan.build
    monkeypatch.setattr(PretrainingPlan, "build", lambda plan: jobs.append(build(plan)) or jobs[-1])
    monkeypatch.setattr(TransformersStep, "of", lambda job: steps.append(of(job)) or steps[-1])
    words = ["objective.generator={width=32}"] if apart else []
    found = json.loads(bench(name, [*SMALL, *words], json_line=True)[0])
    assert found["transformers"]["sequences_per_second"] > 0
    assert found["min_ratio"] <= found["ratio"] <= found["max_ratio"]
    ours, theirs = measurements.read(measurements.DEFAULT_PATH)
    assert (ours.software, theirs.software, theirs.batch) == ("ordsmed", "transformers", 4)
    assert theirs.sequences_per_second == pytest.approx(4 / theirs.step_seconds)
    [step], [job] = steps, jobs
    sizes = [sum(p.numel() for p in network.parameters()) for network in step.networks]
    assert len(sizes) == 1 + apart
    assert (sum(sizes) - sum(p.numel() for p in job.objective.parameters()) > 300 * 32 / 2) == bool(apart)
    assert apart or sum(sizes) == pytest.approx(sum(p.numel() for p in job.objective.parameters()), rel=0.02)
    assert (step.accumulation, step.dtype, len(step.rows), step.rows[0][0].shape) == (2, None, 2, (2, 16))
    before = float(step.loss(*step.rows[0]).detach())
    step.optimizer.param_groups[0]["lr"] = 1e-2
    step.steps(30)
    assert float(step.loss(*step.rows[0]).detach()) < 0.9 * before
    assert all(torch.isfinite(p).all() for network in step.networks for p in network.parameters())


def test_what_has_no_step_beside_it() -> None:
    pytest.importorskip("transformers")
    small = [
        "model.width=8",
        "model.cells=12",
        "vocabulary=400",
        "tokens=4000",
        "length=5",
        "batch=4",
        "steps=1",
        "model.filters=[[1,6],[2,6]]",
        "objective.samples=50",
        "layout.device=cpu",
        "layout.precision=fp32",
    ]
    with pytest.raises(RecipeError, match="beside: found elmo; wanted a family that transformers supports with these"):
        bench("elmo-survey", [*small, "beside=transformers"])


def test_where_transformers_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(RecipeError, match="beside: transformers is not installed; `pip install transformers`"):
        bench("bert-mini", SMALL)

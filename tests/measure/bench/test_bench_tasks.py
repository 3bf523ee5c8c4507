"""Benchmarks of tasks: reported facts, and their arithmetic on synthetic times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.data.features import Features
from ordsmed.learn.optimizers import adamw
from ordsmed.learn.tasks import squad
from ordsmed.measure.bench import synthetic as made_up
from ordsmed.measure.bench import tasks as bench_tasks
from ordsmed.measure.bench.bench import Bench, bench
from ordsmed.nn.kernels import switch
from ordsmed.nn.models import bert
from ordsmed.train.mesh.layout import Layout

SMALL = [
    "model.size=tiny",
    "model.width=32",
    "model.layers=1",
    "model.heads=2",
    "model.inner=64",
    "vocabulary=300",
    "layout.device=cpu",
    "layout.threads=1",
]
MILLISECONDS = [40, 10, 30, 20, 50, 60, 70, 80, 90, 100, 900, 800]  # as they came


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def measured(*words: str) -> dict[str, Any]:
    (line,) = bench(words[0], [*SMALL, *words[1:]], json_line=True)
    return dict(json.loads(line))


def test_percentiles_are_times_that_were_measured() -> None:
    found = bench_tasks.latencies([ms / 1e3 for ms in MILLISECONDS])
    assert found == {"mean": 187.5, "90%": 800, "95%": 900, "99%": 900}


def test_nvidias_latencies_are_means_without_the_two_longest() -> None:
    found = bench_tasks.trimmed([ms / 1e3 for ms in MILLISECONDS])  # 10 are left: 10, 20 .. 100
    assert found == {"mean": 55, "mean of fastest 90%": 50, "mean of fastest 95%": 50, "mean of fastest 99%": 50}
    assert bench_tasks.trimmed([0.5, 0.1, 0.3]) == {"mean": 100}
    assert bench_tasks.trimmed([0.5, 0.1]) == {}


def test_a_mean_of_rates_is_not_the_rate() -> None:
    found = bench_tasks.rates(6, [1.0, 3.0])
    assert found == {"examples_per_second": 3, "nvidia_examples_per_second": 4}
    assert bench_tasks.ratios([1, 1, 2], [3, 1, 8]) == {"ratio": 3, "median_ratio": 3}


@pytest.mark.parametrize(("name", "mean", "longest"), [("finetune", 170, 384), ("finetune-sst2", 13.3, 66)])
def test_made_up_lengths_are_like_real_ones(name: str, mean: float, longest: int) -> None:
    """Means of SQuAD 1.1's windows and of SST-2's sentences."""
    recipe = settings.decode(Bench, run.read_table(run.find_recipe(name, "bench"), "bench"), name)
    sizes = made_up.drawn(recipe.sizes, 20_000, np.random.default_rng(0))
    assert sizes.mean() == pytest.approx(mean, rel=0.03)
    assert sizes.max() == longest


@pytest.mark.long
def test_learning_packed_beside_padded() -> None:
    found = measured("finetune", "batch=8", "steps=3", "task.length=96", "sizes=[[0,20],[90,40],[100,80]]")
    assert {"measure": "finetune", "task": "squad", "length": 96, "batch": 8, "steps": 3}.items() <= found.items()
    assert found["examples_made_up"] is True
    assert found["tokens_an_example"] == pytest.approx(33, abs=8)
    assert found["tokens_an_example"] == round(found["tokens_an_example"], 1)
    assert found["ratio_of_places"] == pytest.approx(96 * found["filled"] / found["tokens_an_example"], rel=0.01)
    assert 0.75 < found["filled"] <= 1
    assert found["ratio"] == pytest.approx(
        found["examples_per_second"] / found["padded"]["examples_per_second"], rel=0.01
    )
    assert found["nvidia_examples_per_second"] >= found["examples_per_second"]  # a mean of rates is never below


def test_a_task_s_own_files() -> None:
    Path("own.tsv").write_text("text\tlabel\n" + "tea is warm\tgood\nno tea today\tbad\n" * 20)
    Path("vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "is", "warm", "no", "today"])
    )
    found = measured(
        "finetune-sst2", "batch=4", "steps=1", "task.length=16", "task.train=own.tsv", "tokenizer=vocab.txt"
    )
    assert (found["examples_made_up"], found["tokens_an_example"]) == (False, 5)
    assert found["ratio_of_places"] == pytest.approx(4 * 16 / 20, rel=0.21)


@pytest.mark.long
def test_asking_packed_beside_padded() -> None:
    words = ["task.length=64", "sizes=[[0,20],[100,40]]", "batches=[[1,4],[5,3]]"]
    found = measured("predict", *words)
    assert {"measure": "predict", "task": "squad", "length": 64, "precision": "fp32"}.items() <= found.items()
    for batch, times in ((1, 4), (5, 3)):
        ours, theirs = found[f"batch_{batch}"], found[f"batch_{batch}_padded"]
        assert ours["times"] == times
        assert ours["latency_ms"]["90%"] <= ours["latency_ms"]["99%"]
        assert ours["nvidia_latency_ms"]["mean"] <= ours["latency_ms"]["mean"]
        assert ours["examples_per_second"] == pytest.approx(1e3 * batch / ours["latency_ms"]["mean"], rel=0.01)
        assert ours["ratio"] == pytest.approx(ours["examples_per_second"] / theirs["examples_per_second"], rel=0.01)
    lines = bench("predict", [*SMALL, *words])
    assert any(line.startswith("batch_5_padded: examples_per_second ") for line in lines)


def test_asked_is_a_network_for_inference_and_not_one_that_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 16 bits its weights are cast once, and its norms are not a training's; its numbers are the job's own."""
    asked, built = list[Any](), list[Any]()
    in_use = bench_tasks._for_inference

    def kept(job: Any) -> Any:
        switch._running.add("gelu")
        built.append((job.objective, in_use(job)))
        return built[0][1]

    monkeypatch.setattr(bench_tasks, "_for_inference", kept)
    monkeypatch.setattr("ordsmed.learn.inference.predict_all", lambda task, *_, within: asked.append((task, within)))
    measured("predict", "layout.precision=bf16", "task.length=32", "sizes=[[0,9],[100,20]]", "batches=[[2,1]]")
    [(learning, trained)] = built
    assert asked == [(trained.objective, trained.within)] * 4
    assert (trained.precision, trained.objective.training, switch._running) == ("bf16", False, set())
    norms = [module for module in trained.objective.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert norms
    assert not any("forward" in vars(norm) for norm in norms)
    places = [[parameter.data_ptr() for parameter in one.parameters()] for one in (learning, trained.objective)]
    assert places[0] == places[1]


def test_made_up_examples_are_no_longer_than_the_task_s() -> None:
    lengths: list[int] = []
    task: Any = SimpleNamespace(MADE_UP="x.tsv", length=50, synthetic=lambda sizes, words: lengths.extend(sizes) or "")
    made_up.examples(task, [(0, 10), (100, 200)], 30)
    assert (min(lengths), max(lengths), len(lengths)) == (10, 50, made_up.EXAMPLES)


def test_a_part_of_the_examples() -> None:
    features = Features(
        np.array([0, 2, 5, 6]), np.arange(6, dtype=np.int32), marks=-np.arange(6, dtype=np.int32), labels=np.arange(3)
    )
    found = bench_tasks.part(features, np.array([2, 0]))
    assert (found.starts.tolist(), found.ids.tolist(), found.marks.tolist()) == ([0, 1, 3], [5, 0, 1], [-5, 0, -1])
    assert found.labels is None


def test_what_cannot_be_measured() -> None:
    for words, message in (
        (["sizes=[[0,3],[90,9]]"], "sizes: found .*; wanted increasing pairs from 0 to 100 per cent"),
        (["sizes=[]"], "sizes: missing"),
        (["task.kind=tag"], "task.train: missing, and there are no synthetic examples for tag"),
        (["batches=[[0,3]]"], "batches: found .*; wanted pairs of 1 or more"),
        (["init=nowhere"], "task.train: missing"),
        (["measure=predict", "layout.compile=true"], "layout.compile: found true with measure predict; wanted false"),
    ):
        with pytest.raises(RecipeError, match=message):
            measured("finetune-sst2", *words)


@pytest.mark.parametrize(("measure", "flops"), [("finetune", 9e3), ("predict", 3e3)])
def test_what_estimates_are_made_from(monkeypatch: pytest.MonkeyPatch, measure: str, flops: float) -> None:
    """A step of 60 tokens in 2 s, where a token takes 300 FLOP to learn from: a third of that to be asked about."""
    monkeypatch.setattr(bench_tasks, "measured_peak", lambda *_: 1e5)
    recipe = SimpleNamespace(measure=measure, task=squad.Squad())
    job: Any = SimpleNamespace(
        ranks=Ranks(torch.device("cpu")),
        phases=[SimpleNamespace(length=32)],
        tokenizer=SimpleNamespace(vocabulary=300),
        recipe=SimpleNamespace(layout=Layout(), model=bert.Bert(), optimizer=adamw.AdamW()),
        objective=SimpleNamespace(flops=lambda rows, length: 300.0 * rows * length, parameters=list),
        share=lambda index: SimpleNamespace(micro=2),
    )
    told = bench_tasks._measurement(recipe, job, 4, [1.0, 3.0, 2.0], 60.0, "padded")
    assert (told.flops_per_second, told.share_of_peak) == (flops, flops / 1e5)
    assert (told.sequences_per_second, told.tokens_per_second) == (2, 30)
    assert (told.step_seconds, told.step_seconds_least, told.step_seconds_most) == (2, 1, 3)
    assert (told.measure, told.software, told.family, told.task) == (measure, "padded", "bert", "squad")
    assert (told.batch, told.micro, told.optimizer) == ((4, 2, "adamw") if measure == "finetune" else (4, 4, ""))

"""What no machine can hold, or not this one, is refused before anything is made; making rows can be stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import change, job_of
from ordsmed import cli
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.machine import memory as machine_memory
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.data import loader
from ordsmed.data.loader import MicroBatches
from ordsmed.nn.models import bert
from ordsmed.train import loop, memory
from ordsmed.train.job import Vote
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain

Recipe = Callable[..., Path]
HUGE = 10**20


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("phase.batch=100000000000", "phase[1].batch: found 100,000,000,000 rows of "),
        (f"phase.steps={HUGE}", f"phase[1].steps: found {HUGE}; wanted at most 9,223,372,036,854,775,807"),
        ("phase.steps=1000000000000000000", "phase[1].steps: found 1,000,000,000,000,000,000; wanted less"),
        ("phase.length=1000000000000000000", "phase[1].length: found 1,000,000,000,000,000,000; wanted less"),
        ("phase.warmup=1e30", "phase[1].warmup: found 1e+30; wanted at most the "),
        ("phase.epochs=1e300", "phase[1].epochs: found 1e+300 and "),
        (f"seed={HUGE}", f"seed: found {HUGE}; wanted at most 9,223,372,036,854,775,807"),
        ("model.width=100000000", " parameters, which need 4,000,0"),
        ("model.width=1000000000000", "model: found more parameters than can be counted, which need"),
        ("model.layers=1000000000", " parameters, which need "),
        ("model.positions=100000000000", " parameters, which need "),
        ("layout.workers=1000000", "layout.workers: found 1,000,000; wanted at most 1,024"),
        ("layout.threads=1000000", "layout.threads: found 1,000,000; wanted at most 1,024"),
        ("layout.threads=-1", "layout.threads: found -1; wanted 0 or more"),
        ("layout.patience=1e300", "layout.patience: found "),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_absurd_sizes_are_one_line(
    recipe: Recipe,
    capsys: pytest.CaptureFixture[str],
    word: str,
    said: str,
    dry: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["tiny/bert", "--dry-run"] if dry else [str(recipe())]
    began = time.process_time()
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(["pretrain", *words, word])
    told = capsys.readouterr().err.splitlines()[-1]
    assert said in told
    assert time.process_time() - began < 20
    assert not [*tmp_path.rglob("metrics.jsonl")]


def test_what_no_machine_has_is_not_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(["show", "tiny/bert", "model.width=100000000"])
    assert "; wanted at most " in capsys.readouterr().err
    monkeypatch.setattr(machine_memory, "memory_limit", lambda: 1_000_000)  # what one machine lacks another may have
    cli.main(["show", "tiny/bert"])
    cli.main(["pretrain", "tiny/bert", "--dry-run", "--devices", "2"])
    capsys.readouterr()
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(["pretrain", "tiny/bert", "--dry-run"])
    assert "of memory with gradients and moments; wanted less than the 1 MB of this machine" in capsys.readouterr().err


def bert_of(model: bert.Bert) -> torch.nn.Module:
    return model.build(1000)


@pytest.mark.parametrize("many", [4, pytest.param(memory.MANY, marks=pytest.mark.long)])
def test_many_layers_are_counted_by_a_few(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(memory, "MANY", many)
    small = {"width": 8, "heads": 2, "positions": 16}
    for layers in (2, many, many + many // 2):
        model = bert.Bert(layers=layers, **small)
        with torch.device("meta"):
            exact = sum(t.numel() for t in bert_of(model).parameters())
        assert memory.parameters(model, bert_of) == exact
    assert memory.parameters(bert.Bert(layers=2, width=10**12, heads=2, positions=16), bert_of) is None


def test_room_is_shared_and_split(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(recipe())
    model, make = job.recipe.model, lambda model: job.recipe.objective.build(model, job.tokenizer)
    needed = 4 * 4 * memory.parameters(model, make)  # weights, slopes, two moments
    monkeypatch.setattr(machine_memory, "memory_limit", lambda: needed + 1)
    memory.check(job.recipe, model, job.ranks, make)
    monkeypatch.setattr(machine_memory, "memory_limit", lambda: needed)
    with pytest.raises(OrdsmedError, match=r"^model: found .* parameters, which need"):
        memory.check(job.recipe, model, job.ranks, make)
    split = Ranks(torch.device("cpu"), world=2, shape=(1, 2, 1))
    memory.check(job.recipe, model, split, make)
    monkeypatch.setattr(machine_memory, "memory_limit", lambda: needed * 2)
    two = Ranks(torch.device("cpu"), world=2, shape=(2, 1, 1), process=type(split.process)(0, 2, 0, 2))
    with pytest.raises(OrdsmedError, match=r"^model: "):
        memory.check(job.recipe, model, two, make)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "bert-mini", "tokens=1000000000000000"], "tokens: found 1,000,000,000,000,000, which need"),
        (["bench", "windows", "sentences=1000000000000000"], "sentences: found 1,000,000,000,000,000, which need"),
        (["bench", "bert-mini", "batch=1000000000000"], "batch: found "),
        (["bench", "bert-mini", "vocabulary=1000000000000"], "vocabulary: found 1,000,000,000,000, which need"),
    ],
)
def test_absurd_measurements(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(words)
    assert said in capsys.readouterr().err


@pytest.mark.long
def test_rows_that_are_being_made_hear_a_request_to_stop(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pretrain(str(recipe("whole", steps=6)), ["layout.micro=1"])
    real, made = MicroBatches.__getitem__, []

    def make(self: MicroBatches, index: int) -> object:
        made.append(index)
        if len(made) == 3 * 8 + 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, index)

    monkeypatch.setattr(MicroBatches, "__getitem__", make)
    with pytest.raises(Stopped) as stopped:
        pretrain(str(recipe("cut", steps=6)), ["layout.micro=1"])
    assert (stopped.value.step, stopped.value.by) == (3, signal.SIGTERM)
    assert len(made) == 3 * 8 + 2
    cut = whole.parent / "cut"
    assert Run(cut).status["state"] == "stopped"
    assert (cut / "checkpoints" / "step-000000003").is_dir()
    pretrain(str(cut))
    losses = [
        [json.dumps(line["loss"]) for line in read(folder / "metrics.jsonl") if "loss" in line]
        for folder in (whole, cut)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 6


def test_stopped_before_the_first_step(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = MicroBatches.__getitem__

    def make(self: MicroBatches, index: int) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(self, index)

    monkeypatch.setattr(MicroBatches, "__getitem__", make)
    with pytest.raises(Stopped):
        pretrain(str(recipe(steps=2)), ["layout.micro=1"])
    assert "stopped before its first step; resume it with:\n    ordsmed pretrain" in capsys.readouterr().err


def test_a_step_of_one_micro_batch_is_always_whole() -> None:
    class Some:
        def batch(self, numbers: np.ndarray) -> list[int]:
            return numbers.tolist()

    share = loader.Share(4, 4)
    ready = loader.load(Some(), share, 0, 2, workers=0, device=torch.device("cpu"), stop=lambda: 15)  # type: ignore[arg-type]
    assert list(ready) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]


def test_a_rank_whose_rows_are_cut_short_stops_all(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have whole steps; none takes the step, and all know that one was asked to stop."""
    job = job_of(recipe())
    batches = [job.rows(0).batch(np.arange(4))]
    change(job, ranks=Ranks(torch.device("cpu"), world=2, shape=(2, 1, 1)))
    for other, raised in (([0.0, 0.0], False), ([1.0, 0.0], False), ([1.0, 1.0], True)):
        job.state.vote = Vote()
        monkeypatch.setattr(
            torch.distributed,
            "all_reduce",
            lambda spoken, other=other: spoken[-2:].add_(torch.tensor(other, dtype=torch.float64)),
        )
        if raised:
            with pytest.raises(loop.RowsMissing):
                loop.total_counts(job, batches)
        else:
            assert loop.total_counts(job, batches)["mlm"] > 0
        assert job.state.vote.any_rank == bool(other[0])


@pytest.mark.parametrize("batches", [1, 2])
def test_a_step_cut_short_on_one_rank_alone(recipe: Recipe, batches: int) -> None:
    job = job_of(recipe())
    job.state.vote = Vote(15, rows_missing=True)
    with pytest.raises(loop.RowsMissing):
        loop.train_step(job, [job.rows(0).batch(np.arange(4))] * batches, 1e-3, 0, 0)


def test_a_measurement_that_is_ended_says_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> list[str]:
        raise Stopped(3, signal.SIGTERM)

    monkeypatch.setattr("ordsmed.measure.bench.bench.bench", stopped)
    with pytest.raises(SystemExit, match=r"^143$"):
        cli.main(["bench", "bert-mini"])


def recipe_of(batch: int = 1, length: int = 1, *, verb: str = "pretrain", micro: int = 1, **more: Any) -> Any:
    """As much of a recipe as its size is told from; its optimizer has two moments."""
    layout = SimpleNamespace(share=lambda *_: SimpleNamespace(micro=micro))
    usual = {"optimizer": SimpleNamespace(moments=2), "average": 0.0, "freeze": None, "adapters": None}
    phase = SimpleNamespace(batch=batch, length=length)
    return SimpleNamespace(verb=verb, phases=(phase,), layout=layout, **usual | more)


def ranks_of(data: int = 1, *, split: tuple[int, int] = (1, 1), local: int = 1) -> Any:
    return SimpleNamespace(
        device=torch.device("cpu"),
        shape=(data, *split),
        data_world=data,
        data_rank=0,
        process=SimpleNamespace(local_world=local),
    )


FLAT = SimpleNamespace(width=10, layers=3)


def fits(recipe: Any, ranks: Any, limit: int, monkeypatch: pytest.MonkeyPatch, weights: int = 1) -> str:
    """What is refused of so many weights, where a machine has so much; empty: nothing."""
    monkeypatch.setattr(machine_memory, "memory_limit", lambda: limit)
    try:
        memory.check(recipe, FLAT, ranks, lambda model: torch.nn.Linear(weights, 1, bias=False))
    except OrdsmedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("recipe", "ranks", "least"),
    [
        (recipe_of(), ranks_of(), 4 * 4 * 1000),  # weights, slopes and two moments
        (recipe_of(average=0.9), ranks_of(), 5 * 4 * 1000),
        (recipe_of(freeze="all"), ranks_of(), 4 * 1000),
        (recipe_of(adapters="some"), ranks_of(), 4 * 1000),
        (recipe_of(), ranks_of(split=(2, 4)), 2 * 1000),
        (recipe_of(), ranks_of(2, local=2), 2 * 4 * 4 * 1000),
    ],
)
def test_weights_take_what_they_learn_by(monkeypatch: pytest.MonkeyPatch, recipe: Any, ranks: Any, least: int) -> None:
    assert fits(recipe, ranks, least, monkeypatch, 1000).startswith("model: found 1,000 parameters, which need ")
    assert fits(recipe, ranks, least + ranks.process.local_world, monkeypatch, 1000) == ""


@pytest.mark.parametrize(
    ("recipe", "ranks", "least", "place"),
    [
        (recipe_of(50, 30), ranks_of(), 50 * 30 * 32, "phase[1].batch"),
        (recipe_of(50, 30), ranks_of(4), 13 * 30 * 32, "phase[1].batch"),
        (recipe_of(50, 30), ranks_of(4, local=4), 4 * 13 * 30 * 32, "phase[1].batch"),
        (recipe_of(50, 30, verb="finetune"), ranks_of(), 50 * 32, "phase[1].batch"),  # examples may be short
        (recipe_of(50, 30, micro=25), ranks_of(), 25 * 30 * 30 * 4, "layout.micro"),
    ],
)
def test_rows_take_what_they_hold(
    monkeypatch: pytest.MonkeyPatch, recipe: Any, ranks: Any, least: int, place: str
) -> None:
    assert fits(recipe, ranks, least, monkeypatch).startswith(f"{place}: found ")
    assert place not in fits(recipe, ranks, least + ranks.process.local_world, monkeypatch)


def test_what_cannot_be_counted_takes_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "parameters", lambda *_: None)
    told = fits(recipe_of(), ranks_of(split=(2, 1)), 10**14, monkeypatch)
    assert told.startswith("model: found more parameters than can be counted, which need 1,000 TB of memory")


def test_a_gpus_own_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80_000))
    assert memory.memory_of(SimpleNamespace(device=torch.device("cuda", 1))) == 80_000

"""What recipes say of a step: is it judged, saved, kept; which check was best, when it is enough; what cannot be."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.menu import load
from ordsmed.learn.objectives import mlm, rtd
from ordsmed.learn.phases import Phase
from ordsmed.learn.tasks import classify
from ordsmed.nn.models import bert, electra
from ordsmed.train.average import Tail
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.recipe import Pretraining

STEPS = range(1, 13)


def pretraining(**how: Any) -> Pretraining:
    phase = Phase(steps=12, length=8, batch=4, learning_rate=1e-3)
    said = {"data": "work/encode/a", "model": bert.Bert(), "objective": mlm.Mlm(), "phase": (phase,)}
    return Pretraining(**{**said, **how})


def finetuning(task: dict[str, Any] | None = None, **how: Any) -> Finetuning:
    own = classify.Classify(**{"train": "train.tsv", "dev": "dev.tsv", "length": 16, **(task or {})})
    return Finetuning(**{"task": own, "model": bert.Bert(), "tokenizer": "vocab.txt", **how})


def test_steps_of_a_pretraining_that_are_saved_and_judged() -> None:
    often = pretraining(save=5, validate=4)
    assert [step for step in STEPS if often.is_saved(step)] == [5, 10]
    assert [step for step in STEPS if often.validates(step)] == [4, 8, 12]
    never = pretraining(save=0, validate=0)
    assert not any(never.is_saved(step) or never.validates(step) or never.is_revision(step) for step in STEPS)


@pytest.mark.parametrize(("revisions", "wanted"), [("powers", [1, 2, 4, 8]), (5, [5, 10]), ((3, 7), [3, 7]), ((), [])])
def test_revisions_are_saved_and_kept(revisions: Any, wanted: list[int]) -> None:
    recipe = pretraining(save=0, revisions=revisions)
    assert [step for step in STEPS if recipe.is_revision(step)] == wanted
    assert [step for step in STEPS if recipe.is_saved(step)] == wanted


def test_one_name_of_data_is_a_blend_of_one() -> None:
    assert pretraining().data_of(0) == {"work/encode/a": 1.0}
    assert pretraining(data={"a": 0.7, "b": 0.0}).data_of(0) == {"a": 0.7, "b": 0.0}
    assert pretraining(data=("a", "b")).sources == ("a", "b")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"model": None}, "model: missing"),
        ({"phase": ()}, "phase: missing"),
        ({"data": {}}, "data: found {}"),
        ({"data": {"a": -1.0}}, "data: found"),
        ({"data": {"a": math.inf}}, "data: found"),
        ({"save": -1}, "save: found -1; wanted steps, 0 or more"),
        ({"validate": -1}, "validate: found -1; wanted steps, 0 or more"),
        ({"validate": 2.5}, "validate: found 2.5; wanted steps, 0 or more, or a share of all, to 1.0"),
        ({"save": math.inf}, "save: found inf"),
        ({"revisions": 0}, "revisions: found 0; wanted steps from 1 on"),
        ({"revisions": (2, 0)}, "revisions: found"),
        ({"validation_rows": 0}, "validation_rows: found 0; wanted 1 or more"),
        ({"layer_decay": 0.0}, "layer_decay: found 0.0"),
        ({"layer_decay": 1.1}, "layer_decay: found 1.1"),
        ({"average": 1.0}, "average: found 1.0; wanted 0 to below 1"),
        ({"average": -0.1}, "average: found -0.1"),
        ({"clip": -1.0}, "clip: found -1.0; wanted 0 or more"),
        ({"clip": math.inf}, "clip: found inf"),
        ({"keep": 0}, "keep: found 0; wanted 1 or more"),
        ({"log": 0}, "log: found 0; wanted 1 or more"),
    ],
)
def test_pretrainings_that_cannot_be(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pretraining(**how)
    least = pretraining(keep=1, log=1, validation_rows=1, revisions=1, layer_decay=1.0, average=0.0, clip=0.0)
    assert (least.model, least.init) == (bert.Bert(), None)
    assert pretraining(model=None, init="a run").init == "a run"


@pytest.mark.parametrize(
    ("share", "total", "steps"),
    [
        (0.5, (3, 4), [4]),
        (1 / 3, (9,), [3, 6, 9]),
        (0.01, (3,), [1, 2, 3]),
        (1e-9, (2,), [1, 2]),
        (0.0, (3,), []),
        (2, (5,), [2, 4]),
        (1, (3,), [1, 2, 3]),
        (1.0, (3, 1), [4]),
    ],
)
def test_a_share_of_all_steps(share: float, total: tuple[int, ...], steps: list[int]) -> None:
    """Rounded up, as the trainer of transformers does: an epoch's end is a share of them."""
    phases = tuple(Phase(steps=one, length=8, batch=1, learning_rate=1.0) for one in total)
    recipe = pretraining(save=share, validate=share, phase=phases)
    numbers = range(1, sum(total) + 1)
    assert [n for n in numbers if recipe.validates(n)] == [n for n in numbers if recipe.is_saved(n)] == steps
    assert recipe.validation_interval == (steps[0] if steps else 0)


def test_steps_of_a_fine_tuning_follow_from_examples() -> None:
    """Or are said; until the examples are counted there are none, and the phase goes by epochs."""
    assert (finetuning().updates, finetuning().phases[0].epochs) == (0, 3.0)
    counted = finetuning(examples=100, batch=8, epochs=2.5)
    assert counted.updates == round(2.5 * 100 / 8)
    assert (counted.phases[0].steps, counted.phases[0].epochs) == (31, 0.0)
    assert (counted.phases[0].length, counted.phases[0].batch) == (16, 8)
    assert finetuning(examples=1, batch=32, epochs=0.1).updates == 1
    assert finetuning(examples=100, steps=7).updates == 7


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"checks": 1}, [2, 5, 8, 10, 12]),  # 2.5 steps an epoch, to the nearest
        ({"checks": 2}, [1, 2, 4, 5, 6, 8, 9, 10, 11, 12]),
        ({"checks": 40}, list(STEPS)),  # never more than one a step
        ({"steps": 12}, [2, 5, 8, 10, 12]),
    ],
)
def test_dev_files_are_judged_so_often_an_epoch(how: dict[str, Any], wanted: list[int]) -> None:
    recipe = finetuning(**{"examples": 20, "batch": 8, **how})
    assert [step for step in STEPS if recipe.validates(step)] == wanted
    assert [step for step in STEPS if recipe.is_saved(step)] == wanted
    more = dataclasses.replace(recipe, save=7)
    assert [step for step in STEPS if more.is_saved(step)] == sorted({*wanted, 7})
    assert not any(recipe.is_revision(step) for step in STEPS)


def test_the_best_check_is_the_first_of_the_highest_score() -> None:
    recipe = finetuning()
    judged = [{"step": n, recipe.score: score} for n, score in ((3, 0.5), (6, 0.75), (9, 0.75), (12, 0.25))]
    assert recipe.score == recipe.task.record == "accuracy"
    assert recipe.best_of(judged) == recipe.best_of(judged[::-1]) == 6
    assert recipe.best_of([{"step": 3, "validation": 9.0}]) == recipe.best_of([]) == 0
    assert finetuning(best="macro_f1").score == "macro_f1"


def test_it_is_enough_after_so_many_checks_without_a_better_one() -> None:
    recipe = finetuning(patience=2)
    judged = [{"step": n, recipe.score: score} for n, score in ((3, 0.5), (6, 0.75), (9, 0.75), (12, 0.25))]
    assert [recipe.is_enough(judged[:count]) for count in range(5)] == [False, False, False, False, True]
    assert not finetuning().is_enough(judged)


def test_what_the_recipe_leaves_out_is_the_familys() -> None:
    usual = SimpleNamespace(
        learning_rate=7e-5, warmup=0.25, layer_decay=0.5, freeze=True, decay=0.125, betas=(0.5, 0.75), pool=None
    )
    network = SimpleNamespace(tuning=lambda: usual)
    assert not finetuning().complete
    whole = finetuning().fill_defaults(network)
    assert whole.complete
    assert (whole.model, whole.learning_rate, whole.warmup, whole.layer_decay, whole.freeze) == (
        network,
        7e-5,
        0.25,
        0.5,
        True,
    )
    assert (whole.optimizer.decay, whole.optimizer.betas, whole.optimizer.epsilon) == (0.125, (0.5, 0.75), 1e-6)
    said = finetuning(learning_rate=1e-3, warmup=0.0, layer_decay=1.0, freeze=False).fill_defaults(network)
    assert (said.learning_rate, said.warmup, said.layer_decay, said.freeze) == (1e-3, 0.0, 1.0, False)


@pytest.mark.parametrize(
    ("kind", "rates"),  # at widths of 768, 512, 384, 192 and 128
    [
        ("classify", [3e-5, 1e-4, 5e-4, 1e-3, 1.5e-3]),
        ("tag", [3e-5, 1e-4, 1e-3, 2e-3, 3e-3]),
        ("pairs", [3e-5, 1e-4, 1.5e-4, 3e-4, 4.5e-4]),
    ],
)
def test_narrow_networks_learn_faster_by_width_and_task(kind: str, rates: list[float]) -> None:
    """A rate that the recipe names stays."""
    recipe = dataclasses.replace(finetuning(), task=load("tasks", kind)(train="a", length=16))
    networks = [bert.Bert(width=width) for width in (768, 512, 384, 192, 128)]
    assert [recipe.fill_defaults(network).learning_rate for network in networks] == pytest.approx(rates)
    assert dataclasses.replace(recipe, learning_rate=1e-5).fill_defaults(networks[-1]).learning_rate == 1e-5


def test_a_grid_by_paths_or_tables_and_when_trials_are_asked_for() -> None:
    recipe = finetuning(grid={"learning_rate": [1e-5, 3e-5], "task": {"length": [8, 16]}})
    assert recipe.grid == {"learning_rate": [1e-5, 3e-5], "task.length": [8, 16]}
    assert [finetuning(**how).several for how in ({}, {"seeds": (1,)}, {"grid": {"learning_rate": [1.0]}})] == [
        False,
        True,
        True,
    ]
    assert finetuning(init="a run", step="all").several
    assert not finetuning(init="a run", step=3).several


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"tokenizer": None}, "init: missing"),
        ({"model": None}, "init: missing"),
        ({"task": {"train": ()}}, "task.train: missing"),
        ({"batch": 0}, "batch: found 0; wanted 1 or more"),
        ({"checks": 0}, "checks: found 0; wanted 1 or more"),
        ({"steps": -1}, "steps: found -1; wanted 0 or more"),
        ({"save": -1}, "save: found -1"),
        ({"patience": -1}, "patience: found -1"),
        ({"jobs": -1}, "jobs: found -1"),
        ({"epochs": 0.0}, "epochs: found 0.0; wanted above 0"),
        ({"epochs": math.inf}, "epochs: found inf"),
        ({"learning_rate": 0.0}, "learning_rate: found 0.0; wanted a finite number above 0"),
        ({"learning_rate": math.inf}, "learning_rate: found inf"),
        ({"warmup": -0.1}, "warmup: found -0.1"),
        ({"warmup": 9.0, "steps": 8}, "warmup: found 9; wanted 0 to 8 steps"),
        ({"step": 3}, "step: found 3 without init"),
        ({"patience": 1, "task": {"dev": ()}}, "patience: found 1 without task.dev"),
        ({"seeds": (1, 1)}, "seeds: found"),
        ({"grid": {"seed": [1]}}, "grid: found seed"),
        ({"grid": {"learning_rate": []}}, "grid.learning_rate: found"),
        ({"grid": {"learning_rate": 1e-5}}, "grid.learning_rate: found"),
        ({"layer_decay": 2.0}, "layer_decay: found 2.0"),
        ({"keep": 0}, "keep: found 0"),
    ],
)
def test_fine_tunings_that_cannot_be(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        finetuning(**how)
    assert finetuning(batch=1, checks=1, steps=1, warmup=1.0, jobs=0, patience=1, seeds=(1, 2)).updates == 1


def test_the_best_is_the_lowest_loss_of_the_last_phase() -> None:
    losses = [(0, 2, 0.1), (2, 1, 0.5), (4, 2, math.nan), (6, 2, 1.0), (8, 2, 1.0), (10, 2, 2.0)]
    judged = [{"step": step, "phase": phase, "validation": loss} for step, phase, loss in losses]
    two = (
        Phase(steps=2, length=16, batch=2, learning_rate=1e-3),
        Phase(steps=8, length=8, batch=2, learning_rate=1e-3),
    )
    assert pretraining(phase=two).best_of(judged) == 6
    assert pretraining(phase=two, keep_best=False).best_of(judged) == 0
    assert pretraining(phase=two, objective=rtd.Rtd(), model=electra.Electra()).best_of(judged) == 0
    enough = [pretraining(phase=two, patience=patience).is_enough(judged) for patience in (0, 1, 2, 3)]
    assert enough == [False, True, True, False]
    assert not pretraining(phase=two, patience=1).is_enough(judged[:2])
    like = (two[1], dataclasses.replace(two[1], steps=3, batch=4, learning_rate=1e-4, warmup=1.0, rewarm=True))
    assert pretraining(phase=like).best_of(judged) == 2, "phases that differ in how fast they learn are compared"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"patience": -1}, "found -1; wanted 0 or more"),
        ({"patience": 1, "objective": rtd.Rtd(), "model": electra.Electra()}, "losses of rtd cannot be compared"),
        ({"patience": 1, "average": Tail(0.2)}, "`average` needs the last steps"),
    ],
)
def test_patience_that_cannot_be_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"patience: .*{problem}"):
        pretraining(**changes)

"""The plan of a fine-tuning, part by part: files, what the family fills in, what learns and what a rank holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.task_files import task_files
from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.learn.tasks import classify
from ordsmed.nn.models import bert
from ordsmed.train.finetune import plan as plans
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.layout import Layout


def test_files_are_told_with_their_size_or_how_to_get_them(tmp_path: Path) -> None:
    for name in ("one.tsv", "many/a.tsv", "many/b.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x" * 10)
    paths = {"train": [f"{tmp_path}/one.tsv", f"{tmp_path}/many/*.tsv"], "dev": ["work/fetch/squad/dev.json", "no.tsv"]}
    recipe: Any = SimpleNamespace(task=SimpleNamespace(paths=lambda split: paths[split]))
    assert plans._files(recipe) == [
        f"task.train: {tmp_path}/one.tsv, 10 bytes",
        f"task.train: {tmp_path}/many/*.tsv, 2 files, 20 bytes",
        "task.dev: work/fetch/squad/dev.json does not exist; `ordsmed fetch squad` gets it",
        "task.dev: no.tsv does not exist",
    ]
    paths["dev"] = []
    assert plans._files(recipe)[-1] == "task.dev: none, so the last checkpoint is used and nothing is scored"


@pytest.mark.parametrize("learns", [True, False])
def test_what_a_rank_holds_of_a_fine_tuning(monkeypatch: pytest.MonkeyPatch, learns: bool) -> None:
    """Of weights that do not learn it holds no gradient and no moment."""
    made = torch.nn.Sequential(torch.nn.Linear(30, 10, bias=False), torch.nn.Linear(10, 10, bias=False))
    made[0].requires_grad_(learns)
    monkeypatch.setattr(plans, "built", lambda *_: made)
    monkeypatch.setattr(plans, "prepare", lambda task, recipe: task)
    recipe: Any = SimpleNamespace(
        examples=1, task=None, layout=Layout(), average=0.5, optimizer=SimpleNamespace(moments=2)
    )
    initial: Any = object()
    plan = FinetuningPlan(recipe=recipe, ranks=Ranks(torch.device("cpu")), initial=initial)
    if learns:
        wanted = ["network: 400 parameters with its head", *RankMemory(1600, 3).lines]
    else:
        wanted = [
            "network: 400 parameters with its head, of which 100 are trained",
            "memory a rank: weights 1.6 kB, gradients and moments 1.6 kB, and activations",
        ]
    assert [*plan.sizes(), *plan.memory().lines] == wanted
    assert plan.memory().bytes == (1600 * 5 if learns else 1600 + 400 * 4), (
        "weights; gradients, two moments and the mean"
    )


def test_several_trials_are_planned_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_start", lambda recipe, folder: (None, []))
    recipe: Any = Finetuning(
        task=classify.Classify(train="a.tsv"), init="x", seeds=(1, 2), grid={"learning_rate": [1e-3]}, step="all"
    )
    own = FinetuningPlan.of(recipe, None).recipe  # type: ignore[arg-type]
    assert (recipe.several, own.several, own.init) == (True, False, "x")


def test_what_is_left_to_the_family_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe: Any = SimpleNamespace(
        learning_rate=None, warmup=0.1, layer_decay=None, freeze=True, optimizer="x", task=SimpleNamespace(pool=None)
    )
    monkeypatch.setattr(plans.settings, "plain", lambda _: {"learning_rate": 3e-05, "layer_decay": None, "warmup": 0.5})
    monkeypatch.setattr(plans, "kind_of", lambda network: "bert")
    filled: Any = SimpleNamespace(model=None, task=SimpleNamespace(pool="mean"))
    told = plans._defaults_line(recipe, filled)
    assert told == "defaults of bert: learning_rate 3e-05, layer_decay -, task.pool mean"


def test_epochs_become_steps_by_the_entries_of_files_where_a_recipe_says_so(tmp_path: Path) -> None:
    """Long contexts are several examples; a share of warm-up is rounded down, as in the code that counts so."""
    files = task_files(tmp_path)
    table = {
        "model": {"kind": "bert", "width": 8, "layers": 1, "heads": 1, "positions": 32},
        "learning_rate": 1e-3,
        "freeze": False,
        "layer_decay": 1.0,
        "optimizer": {"kind": "adamw"},
        "tokenizer": str(files / "vocab.txt"),
        "features": "",
        "task": {
            "kind": "squad",
            "version": "2.0",
            "train": str(files / "train.json"),
            "length": 14,
            "stride": 2,
            "longest_question": 4,
        },
        "batch": 10,
        "epochs": 2.5,
        "warmup": 0.3,
        "epoch_steps": "records",
        "out": str(tmp_path / "out"),
    }
    ranks = Ranks(torch.device("cpu"))
    counted = FinetuningPlan.of(settings.decode(Finetuning, table, "finetune"), ranks).completed(make=False).recipe
    assert counted.examples > 2 * counted.records == 2 * 48
    assert (counted.updates, counted.phases[0].warmup) == (12, 3.0)  # 48 / 10 x 2.5, and 0.3 of them
    exact = settings.decode(Finetuning, {**table, "epoch_steps": "exact"}, "finetune")
    exact = FinetuningPlan.of(exact, ranks).completed(make=False).recipe
    assert (exact.records, exact.updates) == (0, round(2.5 * exact.examples / 10))
    late = settings.decode(Finetuning, {**table, "warmup": 13.0}, "finetune")
    with pytest.raises(RecipeError, match="warmup: found 13; wanted 0 to 12 steps"):
        FinetuningPlan.of(late, ranks).completed(make=False)
    longer = settings.decode(Finetuning, {**table, "warmup": 13.0, "course": "epochs"}, "finetune")
    laid = FinetuningPlan.of(longer, ranks).completed(make=False).recipe
    assert laid.phases[0].schedule.over == int(2.5 * laid.examples / 10) + 1 >= 13


@pytest.mark.parametrize("length", [32, 33])
def test_an_example_may_be_as_long_as_the_network_reads(length: int) -> None:
    recipe = Finetuning(task=classify.Classify(train="a.tsv", length=length), init="x", learning_rate=1e-3)
    network, ranks = bert.Bert(width=16, layers=1, heads=2, positions=32), Ranks(torch.device("cpu"))
    if length > network.longest():
        with pytest.raises(RecipeError, match=r"found 33, more than the model's 32 positions; use task.length=32"):
            plans.check(recipe, network, ranks)
    else:
        plans.check(recipe, network, ranks)

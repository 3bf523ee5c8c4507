"""Which recipe and folder the words of a training mean, and what is planned of them before anything is made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.files import write_text
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.train import plan as plans
from ordsmed.train import request
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.plan import layout_lines
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.request import requested

RECIPE = """
data = "there"
model = { kind = "bert", width = 64, layers = 2, heads = 2 }
objective = "mlm"
phase = [{ steps = 5, length = 8, batch = 4, learning_rate = 1.0 }]
layout = { shard = 2 }
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "own.toml", RECIPE)
    return "own.toml"


def test_a_recipe_means_the_folder_it_would_make(recipe: str) -> None:
    own = requested(Pretraining, recipe, ["seed=3"], "1x2x2", "", devices=4)
    assert (own.folder, own.is_run, own.devices, own.changed) == (Path("work/pretrain/own"), False, 4, "")
    assert (own.recipe.seed, own.recipe.layout.shard, own.recipe.layout.tensor) == (3, 2, 2)
    assert requested(Pretraining, recipe, [], "auto", "").recipe.layout == Layout(shard=2)
    assert requested(Pretraining, recipe, [], "", "").devices == 0
    assert requested(Pretraining, recipe, [], "", "", shown=True).devices == 2
    assert requested(Pretraining, recipe, [], "", "", shown=True, devices=6).devices == 6


@pytest.mark.parametrize(
    ("before", "overrides", "wanted"),
    [
        ([], [], 2),
        ([4, 6], [], 6),  # as it lay last
        ([6, 5], [], 2),  # on which it lay with another layout
        ([4, 6], ["layout.shard=2"], 2),
    ],
)
def test_a_run_is_shown_on_as_many_processes_as_it_lay_on(
    recipe: str, monkeypatch: pytest.MonkeyPatch, before: list[int], overrides: list[str], wanted: int
) -> None:
    Path("run").mkdir()
    write_text(Path("run/recipe.toml"), RECIPE)
    Run(Path("run")).set(verb="pretrain", layouts=[{"processes": count} for count in before])
    monkeypatch.setattr(request, "fit_layout", lambda recipe, folder, world, asked: (recipe, f"{folder} on {world}"))
    shown = requested(Pretraining, "run", overrides, "", "", shown=True)
    assert (shown.is_run, shown.folder, shown.devices) == (True, Path("run"), wanted)
    assert shown.changed == f"run on {wanted}"
    assert requested(Pretraining, "run", overrides, "", "").changed == "run on 1", "as many as there are"
    with pytest.raises(RecipeError, match=r"run: is a run, which cannot be resumed with seed=2; a resumed run keeps"):
        requested(Pretraining, "run", ["seed=2"], "", "")


@pytest.mark.parametrize("devices", [0, 2])
def test_what_is_only_shown_is_held_against_what_there_may_be(
    recipe: str, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    asked: list[Any] = []

    class Planned(PretrainingPlan):
        @classmethod
        def of(cls, recipe: Any, ranks: Ranks, folder: Any = None, *, here: bool = True) -> Any:
            asked.append((ranks.world, folder, here))
            return cls(recipe=recipe, ranks=ranks)

        def completed(self, *, make: bool, here: bool = True) -> Any:
            asked.append((make, here))
            return self

    monkeypatch.setattr(plans, "planned", lambda layout, count: Ranks(torch.device("cpu"), world=count))
    assert Planned.read(recipe, ["seed=5"], devices=devices).recipe.seed == 5
    assert asked == [(2, None, False), (False, False)]
    Path("run").mkdir()
    write_text(Path("run/recipe.toml"), RECIPE)
    Run(Path("run")).set(verb="pretrain")
    monkeypatch.setattr(request, "fit_layout", lambda recipe, *_: (recipe, "another layout"))
    assert Planned.read("run", devices=devices).changed == "another layout"
    assert asked[2][1:] == (Path("run"), False)


def test_what_would_change_is_told_last(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PretrainingPlan, "sizes", lambda _: ["sizes"])
    monkeypatch.setattr(PretrainingPlan, "by_phase", ())
    monkeypatch.setattr(PretrainingPlan, "memory", lambda _: RankMemory(100))
    ranks = Ranks(torch.device("cpu"), world=2, shape=(1, 2, 1))
    plan = PretrainingPlan(recipe=requested(Pretraining, recipe, [], "", "").recipe, ranks=ranks, notes=("note",))  # type: ignore[arg-type]
    lines = plan.lines()
    parts = ["note", "sizes", "layout", "phase", "layout.precision", "memory"]
    assert [line.split(":")[0].split()[0] for line in lines] == parts
    changed = dataclasses.replace(plan, changed="new layout")
    assert changed.lines() == [*lines, "new layout"]
    assert layout_lines(changed) == [*lines[2:], "new layout"]

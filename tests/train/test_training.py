"""What every training's recipe refuses, and whose key a complaint is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.learn.objectives import mlm
from ordsmed.nn.models import bert
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.training import check_seed, named


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("phase[2].batch", "r.toml: phase[2].batch"),
        ("layout.micro", "r.toml: layout.micro"),
        ("out", "r.toml: out"),
        ("--devices", "--devices"),
        ("task.length", "task.length"),
        ("/some/folder", "/some/folder"),
    ],
)
def test_a_key_is_told_with_its_recipe(place: str, told: str) -> None:
    """Of other things there is nothing to add."""
    with pytest.raises(RecipeError) as error, named("r.toml", Pretraining):
        raise RecipeError(place, "found", "wanted", "remedy")
    assert (error.value.place, error.value.found, error.value.wanted, error.value.remedy) == (
        told,
        "found",
        "wanted",
        "remedy",
    )
    with pytest.raises(RecipeError, match=r"^r: task.length: "), named("r", Finetuning):
        raise RecipeError("task.length", "x")


def test_a_negative_seed_is_refused() -> None:
    for seed, seeds, said in ((-1, (), "r: seed: found -1"), (3, (0, -2), "r: seeds: found -2"), (0, (0, 1), "")):
        recipe: Any = SimpleNamespace(seed=seed, seeds=seeds)
        if said:
            with pytest.raises(RecipeError, match=f"^{said}; wanted 0 or more$"):
                check_seed(recipe, "r")
        else:
            check_seed(recipe, "r")
    check_seed(SimpleNamespace(seed=0), "r")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("layer_decay", (0.1, 1.0), (0.0, 1.1)),
        ("average", (0.0, 0.999), (-0.1, 1.0)),
        ("clip", (0.0, 5.0), (-1.0, float("inf"))),
        ("keep", (1,), (0,)),
        ("log", (1,), (0,)),
    ],
)
def test_bounds(name: str, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    from ordsmed.learn.phases import Phase

    how = {
        "data": "x",
        "objective": mlm.Mlm(),
        "model": bert.Bert(),
        "phase": (Phase(steps=1, length=8, batch=1, learning_rate=1.0),),
    }
    for value in good:
        assert getattr(Pretraining(**how, **{name: value}), name) == value
    for value in bad:
        with pytest.raises(ValueError, match=f"^{name}: found "):
            Pretraining(**how, **{name: value})

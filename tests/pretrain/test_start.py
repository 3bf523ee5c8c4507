"""What a pretraining starts from: a run goes on with its moments and its chance; what cannot be is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kit.makers import change, job_of
from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.nn import boxes
from ordsmed.pretrain.plan import PretrainingPlan
from ordsmed.train import loop
from ordsmed.train.saving import Saving

Recipe = Callable[..., Path]
SMALL = ("model.width=16", "model.layers=1")


@pytest.fixture
def begun(recipe: Recipe, tmp_path: Path) -> Path:
    """The folder of a run that was stopped after a step, in the fifth phase of all."""
    own = job_of(recipe("begun"), *SMALL)
    change(own, phases_before=4)
    loop.update(own, next(loop.load(own.rows(0), own.share(0), 0, 1, workers=0, device=own.ranks.device)), 1e-3, 0, 0)
    folder = tmp_path / "begun"
    Run(folder).begin(own.recipe, fingerprint="x")
    Saving(own, folder).save(1, final=True)
    return folder


def test_a_run_that_starts_from_another_goes_on_with_its_moments_and_chance(recipe: Recipe, begun: Path) -> None:
    own, plain = job_of(recipe(), *SMALL, f'init="{begun}"', "seed=3"), job_of(recipe(), *SMALL, "seed=3")
    assert own.phases_before == 5, "as many as that run has, so that no row comes again in its order"
    held = boxes.read_weights(begun / "checkpoints" / "step-000000001")
    for name, tensor in own.objective.state_dict().items():
        assert torch.equal(tensor, held.get(name, tensor)), name
    assert not torch.equal(plain.parts[0].local, own.parts[0].local)
    assert all(float(own.optimizer.state[part.local]["step"]) == 1 for part in own.parts)
    assert own.began_with != plain.began_with != ""
    state = {"phases": 6, "step": 1}
    gone_on = PretrainingPlan.of(own.recipe, own.ranks).completed(make=True).build(gone_on=state)
    assert gone_on.phases_before == 5, "its own phase is one of the six"
    assert gone_on.began_with == ""
    assert not torch.equal(gone_on.parts[0].local, own.parts[0].local), "a checkpoint will be put in"


def test_a_start_that_cannot_be(recipe: Recipe, begun: Path, tmp_path: Path) -> None:
    def start(*words: str) -> None:
        job_of(recipe(), *SMALL, *words)

    with pytest.raises(RecipeError, match=r"init: found .*nowhere, no such folder"):
        start(f'init="{tmp_path}/nowhere"')
    with pytest.raises(RecipeError, match="model: found"):
        job_of(recipe(), "model.width=32", f'init="{begun}"')
    state = begun / "checkpoints" / "step-000000001" / "state.json"
    files.write_json(state, {**files.read_json(state), "tokenizer": "another"})
    with pytest.raises(RecipeError, match=r"was trained with tokenizer another; wanted .*; use data encoded with"):
        start(f'init="{begun}"')
    shutil.rmtree(begun / "checkpoints")
    with pytest.raises(RecipeError, match="has no checkpoint; wanted a run that saved one"):
        start(f'init="{begun}"')

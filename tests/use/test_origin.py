"""Every kind of model folder is opened by the same function, and other folders give the same error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import FolderKind
from ordsmed.base.run import Run
from ordsmed.learn.objective import fresh
from ordsmed.learn.objectives import mlm
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import modern
from ordsmed.weights import weights
from ordsmed.weights.export import export
from ordsmed.weights.foreign import Networks
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model


@pytest.fixture
def places(tiny_run: Any, tmp_path: Path) -> dict[str, Path]:
    """The same model as a run, as its weights alone, and as others load it."""
    alone = shutil.copytree(tiny_run.bert / "weights", tmp_path / "alone")
    return {"run": tiny_run.bert, "weights": alone, "hub": export(tiny_run.bert, tmp_path / "hub")}


@pytest.mark.parametrize(
    ("place", "kind"),
    [("run", FolderKind.PRETRAINING), ("weights", FolderKind.IMPORT), ("hub", FolderKind.HUGGING_FACE)],
)
def test_wherever_it_stands_network_tokenizer_and_weights_are_the_same(
    places: dict[str, Path], place: str, kind: FolderKind
) -> None:
    origin, run = Origin.of(places[place]), open_model(places["run"])
    assert (origin.kind, origin.is_run) == (kind, place == "run")
    assert origin.network() == run.settings
    assert origin.tokenizer().fingerprint == run.tokenizer.fingerprint
    objective = fresh(run.learned, run.settings, run.tokenizer, 5)
    assert weights.digest(own_tensors(objective)) != weights.digest(own_tensors(run.objective))
    start = origin.load_into(objective, run.tokenizer)
    assert weights.digest(own_tensors(objective)) == weights.digest(own_tensors(run.objective))
    assert (start[0].name if start else None) == ("step-000000012" if place == "run" else None)


def test_a_published_name_leads_to_its_folder(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models.toml").write_text('[names]\n"somebody/small" = "hub"\n', encoding="utf-8")
    origin = Origin.of("somebody/small")
    assert (origin.name, origin.folder.resolve()) == ("somebody/small", places["hub"].resolve())
    assert open_model("somebody/small").settings == open_model(places["hub"]).settings


def test_weights_inside_a_run_are_that_runs(tiny_run: Any, places: dict[str, Path]) -> None:
    inside = Origin.of(tiny_run.bert / "weights")
    assert (inside.kind, inside.owner.folder) == (FolderKind.IMPORT, tiny_run.bert)
    assert inside.owner.is_run
    assert Origin.of(places["weights"]).owner == Origin.of(places["weights"])
    moved = shutil.copytree(places["weights"], places["weights"].parent / "weights")
    (moved.parent / "recipe.toml").write_text("# of no run", encoding="utf-8")
    assert Origin.of(moved).owner.folder == moved


def test_steps_are_those_that_open(tiny_run: Any, tmp_path: Path) -> None:
    run = shutil.copytree(tiny_run.bert, tmp_path / "run")
    assert Origin.of(run).steps() == [0, 8, 12]
    assert Origin.of(run).last() == 12
    (run / "checkpoints" / "step-000000008" / "model.safetensors").write_bytes(b"")
    shutil.rmtree(run / "checkpoints" / "step-000000012")
    assert Origin.of(run).steps() == [0, 12]
    Run(run).set(verb="finetune")  # whose first weights come again by no seed
    assert Origin.of(run).steps() == [12]
    with pytest.raises(RecipeError, match=r"^--step: found 7, but .* has no checkpoint of it; wanted one of 8, 12$"):
        Origin.of(run).source(7)
    Run(run).set(verb="pretrain", state="stopped")
    assert Origin.of(run).steps() == [0]
    assert Origin.of(run).last() is None


def test_a_step_of_what_is_no_run_is_refused_by_who_asked(places: dict[str, Path]) -> None:
    Origin.of(places["run"]).check_one_step(3)
    with pytest.raises(RecipeError, match=r"^--step: found 3, but .*hub is a Hugging Face folder; wanted a run's"):
        Origin.of(places["hub"]).check_one_step(3)
    with pytest.raises(RecipeError, match=r"^step: found 3, but .*alone has the weights of a single step"):
        Origin.of(places["weights"]).check_one_step(3, "step")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nothing", "no such folder"),
        ("texts.txt", "is a file"),
        ("encode-bert", "is the folder of a `encode`"),
        (".", "is neither a run nor a model of a known format"),
    ],
)
def test_what_holds_no_model_is_refused_by_its_name_or_by_the_setting_that_named_it(
    tiny_run: Any, name: str, what: str
) -> None:
    place = tiny_run.folder / name
    with pytest.raises(RecipeError) as by_name:
        Origin.of(place)
    assert str(by_name.value).startswith(f"{place}: {what}; wanted a run's folder")
    with pytest.raises(RecipeError) as by_key:
        Origin.of(place, key="init")
    assert str(by_key.value).startswith(f"init: found {place}, {what.removeprefix('is ')}; wanted a run's folder")


def test_what_is_sought_may_be_absent_but_not_of_another_kind(tiny_run: Any) -> None:
    assert Origin.find(None) is None
    assert Origin.find(tiny_run.folder / "nothing") is None
    with pytest.raises(RecipeError, match=r"init: found .*encode-bert, the folder of a `encode`"):
        Origin.find(tiny_run.folder / "encode-bert", key="init")


def test_weights_go_only_under_the_tokenizer_they_learned_with(tiny_run: Any, places: dict[str, Path]) -> None:
    run, other = open_model(tiny_run.bert), Origin.of(tiny_run.gpt2).tokenizer()
    with pytest.raises(RecipeError, match=r"init: .*bert was trained with tokenizer .*; use data encoded with its"):
        Origin.of(tiny_run.bert).load_into(run.objective, other)
    for place in ("weights", "hub"):
        with pytest.raises((RecipeError, DataError), match=r"gives \d+ tokens other ids than the data"):
            Origin.of(places[place]).load_into(run.objective, other)


@pytest.mark.parametrize(
    ("step", "theta", "mask_prob"),
    [(0, 2e4, 0.3), (4, 2e4, 0.3), (5, 2e4, 0.4), (7, 2e4, 0.4), (8, 8e4, 0.3), (10, 8e4, 0.3), (99, 8e4, 0.3)],
)
def test_a_network_is_as_the_phase_of_a_step_has_it(step: int, theta: float, mask_prob: float, tmp_path: Path) -> None:
    usual = Networks(objective=mlm.Mlm(mask_prob=0.3), model=modern.ModernBert(width=16, layers=1, heads=2))
    first, second = {"steps": 4, "model": {"theta": 2e4}}, {"steps": 3, "objective": {"mask_prob": 0.4}}
    recipe = {"phase": [first, second, {"steps": 3, "model": {"theta": 8e4}}]}
    found = Origin("run", tmp_path, FolderKind.PRETRAINING)._in_phase(usual, recipe, step)
    assert (found.model.theta, found.objective.mask_prob) == (theta, mask_prob)

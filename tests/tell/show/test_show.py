"""Parts of `show`: the folder of a run, memory, missing files, and the documents of a step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.tell.show import show
from ordsmed.train import request
from ordsmed.train.mesh.layout import Layout


def phase(steps: int, length: int = 8, batch: int = 2, **more: Any) -> Phase:
    return Phase(steps=steps, length=length, batch=batch, learning_rate=1.0, **more)


@pytest.mark.parametrize(("count", "said"), [(3, "t0 t1 t2"), (5, "t0 t1 t2 ... and 2 others")])
def test_the_first_trials_are_named(monkeypatch: pytest.MonkeyPatch, count: int, said: str) -> None:
    made = [SimpleNamespace(name=f"t{n}") for n in range(count)]
    monkeypatch.setattr(show, "trials_of", lambda *_: SimpleNamespace(runs=made))
    recipe: Any = SimpleNamespace(step=None)
    assert show._trials(recipe, "r") == [f"trials: {count}, each trained on one device: {said}"]


def test_two_recipes_differ_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    deeds = {"a": Layout(shard=2), "b": Layout(shard=2, device="cpu", threads=3)}
    monkeypatch.setattr(show, "read", lambda name, overrides=(): (deeds[name], "pretrain"))
    assert show.difference("a", "a") == ["a and a: the same settings"]
    assert show.difference("a", "b") == ["         a | b", "device   auto | cpu", "threads  0 | 3"]


def test_an_imported_folder_is_told_by_its_settings_and_size(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[model]\nkind = "bert"\n')
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5)}, tmp_path / "model.safetensors")
    assert show.show(str(tmp_path)) == [
        f"{tmp_path}: weights without a run",
        "  [model]",
        '  kind = "bert"',
        "17 numbers",
    ]
    with pytest.raises(RecipeError, match="is a folder, but width=3 is given; wanted no override"):
        show.show(str(tmp_path), ["width=3"])


def test_of_a_folder_whose_data_are_gone_its_state_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(tmp_path).set(verb="encode", state="done")

    def gone(*_: Any, **__: Any) -> Any:
        raise DataError("store", "no such folder")

    recipe = object.__new__(show.Pretraining)
    monkeypatch.setattr(show, "read", lambda *_, **__: (recipe, "encode"))
    monkeypatch.setattr(show.settings, "plain", lambda recipe: {"layout": {"shard": 1, "tensor": 1}})
    monkeypatch.setattr(show.settings, "without_defaults", lambda recipe: {"layout": {"shard": 1}})
    plan = SimpleNamespace(read=gone)
    monkeypatch.setitem(show.PLANS, "encode", plan)
    assert show.show(str(tmp_path)) == [
        f"{tmp_path}: encode",
        "state: done",
        "cost: unknown: store: no such folder",
        f"settings: `ordsmed show {tmp_path} --settings`",
    ]
    own = show.show(str(tmp_path), own_settings=True)
    rest = f"settings at their defaults: `ordsmed show {tmp_path} --all`"
    assert own[3:] == ["", "  [layout]", "  shard = 1", rest]
    assert show.show(str(tmp_path), defaults=True)[3:] == ["", "  [layout]", "  shard = 1", "  tensor = 1"]


def test_which_documents_a_step_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def spans(numbers: Any) -> list[Any]:
        asked.append(numbers.tolist())
        return [SimpleNamespace(number=int(numbers[0]), source=0, document=1, start=12, stop=50)]

    def rows(*given: Any, stretch: Any) -> Any:
        asked.append(given[3:6])
        return SimpleNamespace(spans=spans)

    train = SimpleNamespace(tokens=np.arange(100), lexicon=None, document_starts=np.array([0, 10]))
    told = SimpleNamespace(decode=lambda ids: f"ids {ids[0]} to {ids[-1]}", fingerprint="own")
    recipe = SimpleNamespace(
        phase=(phase(3), phase(4, batch=5)),
        sources=["corpus"],
        seed=9,
        tokenizer=None,
        data_of=lambda index: {"corpus": 1.0},
        objective_of=lambda index: SimpleNamespace(rows=rows),
    )
    Run(tmp_path).set(verb="pretrain", phases_before=2)
    monkeypatch.setattr(show.run, "read_recipe", lambda *_: recipe)
    monkeypatch.setattr(show.run, "obtain", lambda *_: tmp_path)
    facts = {"tokenizer": "own"}
    monkeypatch.setattr(show, "Encoded", lambda _: SimpleNamespace(train=train, tokenizer=told, facts=facts))
    monkeypatch.setattr(show, "_origin", lambda *_: " (page 7)")
    lines = show.documents(str(tmp_path), 5)
    assert asked == [(recipe.phase[1], 9, 3), [5, 6, 7, 8, 9]]
    assert lines == [
        f"{tmp_path}: step 5 (phase 2, its step 2): 5 rows, 1 piece of documents",
        "  row 5: corpus document 1 (page 7), tokens 2 to 40: ids 12 to 35",
    ]
    assert show.documents(str(tmp_path), 7)
    Run(tmp_path).set(phases_before=None)
    asked.clear()
    show.documents(str(tmp_path), 5)
    assert asked[0] == (recipe.phase[1], 9, 1)
    for step in (0, 8):
        with pytest.raises(RecipeError, match=f"--step: found {step}; wanted 1 to 7"):
            show.documents(str(tmp_path), step)


def test_a_run_is_shown_with_what_may_change_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its site's settings go over its own, those of the command line over these; a run's seed is as it was."""
    recipe = object.__new__(show.Pretraining)
    monkeypatch.setattr(show.settings, "decode", lambda kind, table, place: tables.append(table) or recipe)
    monkeypatch.setattr(request, "check_seed", lambda recipe, name: checked.append(name))
    monkeypatch.setattr(request, "site_layout", lambda site: {"threads": 4, "workers": 2})
    checked: list[str] = []
    tables: list[Any] = []
    text = "seed = -1\n[layout]\nthreads = 1\nshard = 2\n"
    (tmp_path / "recipe.toml").write_text(text)
    Run(tmp_path).set(verb="pretrain")
    verb = show.read(str(tmp_path), ["layout.workers=3"], site="big")[1]
    assert (verb, tables[-1]["layout"]) == ("pretrain", {"precision": "fp32", "threads": 4, "workers": 3, "shard": 2})
    with pytest.raises(RecipeError, match="is a run, which cannot be resumed with seed=2"):
        show.read(str(tmp_path), ["layout.workers=3", "seed=2"])
    assert not checked
    (tmp_path / "own.toml").write_text(text)
    show.read(str(tmp_path / "own.toml"), verb="pretrain")
    assert checked == [str(tmp_path / "own.toml")]
    Run(tmp_path).set(verb="predict")
    with pytest.raises(RecipeError, match="was not written by ordsmed"):
        show.read(str(tmp_path))

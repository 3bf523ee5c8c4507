"""What is shown of recipes and runs, part by part: where a run lay, what is held, which files lack, what a step saw."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.mesh.layout import Layout, memory
from ordsmed.show import show


def phase(steps: int, length: int = 8, batch: int = 2, **more: Any) -> Phase:
    return Phase(steps=steps, length=length, batch=batch, rate=1.0, **more)


@pytest.mark.parametrize(
    ("before", "asked", "devices", "verb", "wanted"),
    [
        ([], [], 0, "", 2),  # as many as it is for
        ([], [], 6, "", 6),
        ([], [], 0, "pretrain", 0),  # as many as there are
        ([4, 6], [], 0, "", 6),  # as it lay last
        ([6, 5], [], 0, "", 2),  # on which it lay with another layout
        ([4, 6], ["layout.shard=2"], 0, "", 2),
    ],
)
def test_a_run_is_shown_on_as_many_processes_as_it_lay_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[int], asked: list[str], devices: int, verb: str,
    wanted: int,
) -> None:  # fmt: skip
    Run(tmp_path).set(layouts=[{"processes": count} for count in before])
    monkeypatch.setattr(show, "laid", lambda deed, folder, world, asked: (deed, f"on {world}"))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    deed = SimpleNamespace(layout=Layout(shard=2))
    assert show._laid(deed, tmp_path, asked, verb, "", "", devices) == (deed, wanted, [f"on {wanted or 1}"])
    alone = show._laid(deed, None, [], "", "", "", 0)
    assert alone == (deed, 2, [])


def test_what_takes_part_in_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is what is below `model.`; rows of all steps count; a phase of epochs has no end yet."""
    sizes = {"model.a": 1000, "model.b": 200, "head.c": 30}
    objective = SimpleNamespace(flops=lambda batch, length: float(batch * length * 10))
    monkeypatch.setattr(show, "_network", lambda *_, **__: (["net"], objective, SimpleNamespace(vocabulary=50)))
    monkeypatch.setattr(show, "_sizes", lambda _: sizes)
    monkeypatch.setattr(show, "_spread", lambda *_: ["spread"])
    monkeypatch.setattr(show.run, "finished", lambda *_: False)
    monkeypatch.setattr(show, "standing", Path)
    recipe: Any = SimpleNamespace(sources={"x": 1.0}, phase=(phase(3), phase(2, 16, 4)))
    assert show._cost(recipe, 1, here=False) == [
        "net", "network: 1,230 parameters, 1,200 without heads; vocabulary 50",
        "phase 1: 160 FLOPs a step", "phase 2: 640 FLOPs a step", "in all: 5 steps, 176 tokens, 1.76e+03 FLOPs",
        "spread",
    ]  # fmt: skip
    recipe.phase = (phase(3), phase(0, epochs=2.0))
    assert show._cost(recipe, 1, here=False)[-2].startswith("in all: how many steps epochs are is known when")


def test_what_a_rank_holds_of_a_pretraining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "held_by_rank", lambda *_: 1000)
    monkeypatch.setattr(show.jobs, "check", lambda *_: None)
    monkeypatch.setattr(show, "_planned", lambda *_: Ranks(torch.device("cpu")))
    objective = SimpleNamespace(model_settings=None, told=lambda device: [f"told of {device}"])
    recipe: Any = SimpleNamespace(layout=Layout(), phase=(phase(3),), average=0.9, optimizer=SimpleNamespace(moments=2))
    lines = show._spread(recipe, 2, objective, None)
    assert lines[0].startswith("layout: 2 x 1 x 1")
    assert lines[1] == "told of cpu"
    assert lines[2].endswith("batch = micro 1 x accumulation 1 x devices 2")
    assert lines[3] == memory(4000, 3)


def test_room_is_asked_for_as_many_as_split_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Ranks] = []
    monkeypatch.setattr(show.room, "check", lambda recipe, model, ranks, make, here: asked.append(ranks))
    monkeypatch.setattr(show, "_planned", lambda *_: Ranks(torch.device("cpu"), world=1))
    for devices in (0, 12):
        show._fits(SimpleNamespace(layout=Layout(shard=2, tensor=3)), None, devices, lambda _: None, here=False)  # type: ignore[arg-type, return-value]
    assert [(ranks.world, ranks.shape) for ranks in asked] == [(6, (1, 2, 3)), (12, (1, 2, 3))]


def test_gpus_may_stand_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.base.ranks.plan", lambda device: f"here on {device}")
    for there, wanted in ((False, Ranks(torch.device("cuda"))), (True, "here on cuda:1")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert show._planned(Layout(device="cuda:1"), 4) == wanted
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert show._planned(Layout(device="cuda"), 0) == "here on cuda"
    assert show._planned(Layout(device="cpu"), 4) == "here on cpu"


def test_files_are_told_with_their_size_or_how_to_get_them(tmp_path: Path) -> None:
    for name in ("one.tsv", "many/a.tsv", "many/b.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x" * 10)
    paths = {"train": [f"{tmp_path}/one.tsv", f"{tmp_path}/many/*.tsv"], "dev": ["work/fetch/squad/dev.json", "no.tsv"]}
    recipe: Any = SimpleNamespace(task=SimpleNamespace(paths=lambda split: paths[split]))
    assert show._files(recipe) == [
        f"task.train: {tmp_path}/one.tsv, 0.01 kB", f"task.train: {tmp_path}/many/*.tsv, 2 files, 0.02 kB",
        "task.dev: work/fetch/squad/dev.json is not there; `ordsmed fetch squad` gets it",
        "task.dev: no.tsv is not there",
    ]  # fmt: skip
    paths["dev"] = []
    assert show._files(recipe)[-1] == "task.dev: none, so the last checkpoint is left, and no score is told"


@pytest.mark.parametrize(("count", "said"), [(3, "t0 t1 t2"), (5, "t0 t1 t2 ... and 2 others")])
def test_the_first_trials_are_named(monkeypatch: pytest.MonkeyPatch, count: int, said: str) -> None:
    made = [SimpleNamespace(name=f"t{n}") for n in range(count)]
    monkeypatch.setattr(show.trials, "plan", lambda *_: made)
    monkeypatch.setattr(show.run, "place", lambda *_: Path("out"))
    recipe: Any = SimpleNamespace(step=None)
    assert show._trials(recipe, "r") == [f"trials: {count}, each a run on a device of its own: {said}"]


@pytest.mark.parametrize("learns", [True, False])
def test_what_a_rank_holds_of_a_fine_tuning(monkeypatch: pytest.MonkeyPatch, learns: bool) -> None:
    """Of weights that do not learn it holds no gradient and no moment."""
    made = torch.nn.Sequential(torch.nn.Linear(30, 10, bias=False), torch.nn.Linear(10, 10, bias=False))
    made[0].requires_grad_(learns)
    monkeypatch.setattr(show, "built", lambda *_: made)
    monkeypatch.setattr(show, "prepared", lambda task, recipe: task)
    recipe: Any = SimpleNamespace(
        examples=1, task=None, layout=Layout(), average=0.5, optimizer=SimpleNamespace(moments=2)
    )
    begun: Any = SimpleNamespace(network=None, tokenizer=None)
    if learns:
        wanted = ["network: 400 parameters with its head", memory(1600, 3)]
    else:
        wanted = ["network: 400 parameters with its head, of which 100 learn",
                  "memory a rank: weights 1.6 kB, gradients and moments 1.6 kB, and activations"]  # fmt: skip
    assert show._learned(recipe, begun) == wanted


def test_what_is_left_to_the_family_is_told() -> None:
    class Network:
        pass

    usual = Layout(shard=3, device="cpu")
    recipe: Any = SimpleNamespace(rate=None, warmup=0.1, layer_decay=None, freeze=True, optimizer="x",
                                  settle=lambda network: usual)  # fmt: skip
    table = {"rate": 3e-05, "layer_decay": None, "warmup": 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(show.settings, "plain", lambda deed: table)
        patch.setattr(show, "kind_of", lambda network: "bert")
        told = show._filled_in(recipe, Network())
    assert told == "left to the family, as bert is usually fine-tuned: rate 3e-05, layer_decay -"


def test_two_recipes_differ_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    deeds = {"a": Layout(shard=2), "b": Layout(shard=2, device="cpu", threads=3)}
    monkeypatch.setattr(show, "read", lambda name, overrides=(): (deeds[name], "pretrain"))
    assert show.difference("a", "a") == ["a and a: the same settings"]
    assert show.difference("a", "b") == ["         a | b", "device   auto | cpu", "threads  0 | 3"]


def test_an_imported_folder_is_told_by_its_settings_and_size(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[model]\nkind = "bert"\n')
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5)}, tmp_path / "model.safetensors")
    assert show.show(str(tmp_path)) == [
        f"{tmp_path}: weights, of no run that stands here", "  [model]", '  kind = "bert"', "17 numbers"]  # fmt: skip
    with pytest.raises(RecipeError, match="is a folder, but width=3 is given; wanted no override"):
        show.show(str(tmp_path), ["width=3"])


def test_of_a_folder_whose_data_are_gone_its_state_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To be started it must have them."""
    Run(tmp_path).set(verb="encode", state="done")

    def gone(*_: Any) -> Any:
        raise DataError("store", "no such folder")

    monkeypatch.setattr(show, "read", lambda *_, **__: (Layout(), "encode"))
    monkeypatch.setattr(show, "_told", gone)
    assert show.show(str(tmp_path)) == [
        f"{tmp_path}: encode", "state: done", "cost: not known, for store: no such folder",
        f"settings: `ordsmed show {tmp_path} --settings` tells all"]  # fmt: skip
    assert "  shard = 1" in show.show(str(tmp_path), all_settings=True)
    with pytest.raises(DataError):
        show.show(str(tmp_path), verb="encode")


def test_which_documents_a_step_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def spans(numbers: Any) -> list[Any]:
        asked.append(numbers.tolist())
        return [SimpleNamespace(number=int(numbers[0]), source=0, document=1, start=12, stop=50)]

    def rows(*given: Any, stretch: Any) -> Any:
        asked.append(given[3:6])
        return SimpleNamespace(spans=spans)

    train = SimpleNamespace(tokens=np.arange(100), lexicon=None, document_starts=np.array([0, 10]))
    told = SimpleNamespace(decode=lambda ids: f"ids {ids[0]} to {ids[-1]}")
    recipe = SimpleNamespace(phase=(phase(3), phase(4, batch=5)), sources={"corpus": 1.0}, seed=9,
                             objective=SimpleNamespace(rows=rows))  # fmt: skip
    Run(tmp_path).set(verb="pretrain", phases_before=2)
    monkeypatch.setattr(show.run, "read_recipe", lambda *_: recipe)
    monkeypatch.setattr(show.run, "obtain", lambda *_: tmp_path)
    monkeypatch.setattr(show, "Encoded", lambda folder: SimpleNamespace(train=train, tokenizer=told))
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


@pytest.mark.parametrize(("verb", "devices", "here"), [("", 0, False), ("pretrain", 0, True), ("pretrain", 2, False)])
def test_room_is_that_of_this_machine_where_it_is_started_here(
    monkeypatch: pytest.MonkeyPatch, verb: str, devices: int, here: bool
) -> None:
    """What is planned for other machines is held against what there may be; what would change is told last."""
    recipe = object.__new__(show.Pretraining)
    asked: list[Any] = []
    monkeypatch.setattr(show, "_laid", lambda *_: (recipe, 2, ["changed"]))
    monkeypatch.setattr(show, "_cost", lambda deed, devices, here: asked.append((devices, here)) or ["cost"])
    assert show._told(recipe, "name", None, [], verb, "", "", devices) == (recipe, ["cost", "changed"])
    assert asked == [(2, here)]


def test_a_run_is_shown_with_what_may_change_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its site's settings go over its own, those of the command line over these; a run's seed is as it was."""
    monkeypatch.setattr(show.settings, "decode", lambda kind, table, place: table)
    monkeypatch.setattr(show, "check_seed", lambda deed, name: checked.append(name))
    monkeypatch.setattr(show, "site_layout", lambda site: {"threads": 4, "workers": 2})
    checked: list[str] = []
    text = "seed = -1\n[layout]\nthreads = 1\nshard = 2\n"
    (tmp_path / "recipe.toml").write_text(text)
    Run(tmp_path).set(verb="pretrain")
    table, verb = show.read(str(tmp_path), ["layout.workers=3"], site="big")
    assert (verb, table["layout"]) == ("pretrain", {"threads": 4, "workers": 3, "shard": 2})
    with pytest.raises(RecipeError, match="is a folder, but seed=2 is given"):
        show.read(str(tmp_path), ["layout.workers=3", "seed=2"])
    assert not checked
    (tmp_path / "own.toml").write_text(text)
    show.read(str(tmp_path / "own.toml"), verb="pretrain")
    assert checked == [str(tmp_path / "own.toml")]
    Run(tmp_path).set(verb="predict")
    with pytest.raises(RecipeError, match="is no folder of a deed"):
        show.read(str(tmp_path))

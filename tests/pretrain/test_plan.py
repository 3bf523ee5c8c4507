"""The plan of a pretraining, part by part: what its data are, which tokenizer is expected, what a step costs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.makers import make_store
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.mesh.layout import Layout, memory
from ordsmed.pretrain import plan as plans
from ordsmed.pretrain.plan import PretrainingPlan
from ordsmed.train import plan as train_plans


def phase(steps: int, length: int = 8, batch: int = 2, **more: Any) -> Phase:
    return Phase(steps=steps, length=length, batch=batch, rate=1.0, **more)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def encoded() -> Path:
    """A store with the recipe it would have been made by."""
    store = make_store(Path("store"))
    (store / "recipe.toml").write_text('corpus = "nowhere"\ntokenizer = "store/tokenizer"\n')
    return store


def test_a_tokenizer_that_will_be_made() -> None:
    """A file and a finished folder are opened; of a recipe, and of a folder that is half made, its size is believed."""
    store = make_store(Path("store"))
    own = plans.read_tokenizer(str(store / "tokenizer"))
    assert plans._expected("store/vocab.txt").vocabulary == own.vocabulary
    assert plans._expected("store/tokenizer").vocabulary == own.vocabulary
    Path("t.toml").write_text('corpus = "stdlib"\nout = "made"\n[tokenizer]\nkind = "wordpiece"\nsize = 77\n')
    assert vars(plans._expected("t.toml")) == {"vocabulary": 77, "pad": 0, "mask": 0}
    Path("made").mkdir()
    Run(Path("made")).set(verb="tokenizer", state="running")
    (Path("made") / "recipe.toml").write_text(Path("t.toml").read_text().replace("77", "78"))
    assert plans._expected("made").vocabulary == 78
    own.save(Path("made"))
    Run(Path("made")).set(state="done")
    assert plans._expected("t.toml").vocabulary == own.vocabulary
    assert plans._expected("made").vocabulary == own.vocabulary
    Path("t.toml").write_text('corpus = "stdlib"\n[tokenizer]\nkind = "wordpiece"\nfile = "store/vocab.txt"\n')
    assert plans._expected("t.toml").vocabulary == own.vocabulary


def test_what_the_data_of_a_recipe_are() -> None:
    """A store is opened, one that will be made has its tokenizer read; the first source's tokenizer counts."""
    encoded()
    Path("e.toml").write_text('corpus = "stdlib"\ntokenizer = "t.toml"\nout = "encoded"\n')
    Path("t.toml").write_text('corpus = "stdlib"\n[tokenizer]\nkind = "wordpiece"\nsize = 77\n')
    facts = plans.Encoded(Path("store")).train
    stands = f"data: store, {facts.token_count:,} tokens in 60 documents"
    later = "data: encoded does not stand yet; it will be made from e.toml"
    for names, lines, size in (
        (["store"], [stands], 126), (["e.toml"], [later], 77), (["store", "e.toml"], [stands, later], 126),
        (["e.toml", "store"], [later, stands], 77),
    ):  # fmt: skip
        told, tokenizer = plans._inputs(SimpleNamespace(sources=dict.fromkeys(names, 1.0)))  # type: ignore[arg-type]
        assert (told, tokenizer.vocabulary) == (lines, size)
    with pytest.raises(OrdsmedError):
        plans._inputs(SimpleNamespace(sources={"nothing": 1.0}))  # type: ignore[arg-type]


def planned(monkeypatch: pytest.MonkeyPatch, world: int = 1, **objective: Any) -> tuple[Any, PretrainingPlan]:
    """A plan over networks that are as large as the test says."""
    recipe: Any = SimpleNamespace(layout=Layout(), phase=(phase(3),), average=0.9, objective=None,
                                  optimizer=SimpleNamespace(moments=2))  # fmt: skip
    recipe.phases = recipe.phase
    monkeypatch.setattr(plans, "built", lambda *_: SimpleNamespace(**objective))
    tokenizer = SimpleNamespace(vocabulary=50)
    ranks = Ranks(torch.device("cpu"), world=world, shape=(world, 1, 1))
    return recipe, PretrainingPlan(recipe=recipe, ranks=ranks, tokenizer=tokenizer)


def test_what_takes_part_in_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is what is below `model.`; rows of all steps count; a phase of epochs has no end yet."""
    sizes = {"model.a": torch.zeros(1000), "model.b": torch.zeros(200), "head.c": torch.zeros(30)}
    monkeypatch.setattr(plans.weights, "own_tensors", lambda _: sizes)
    recipe, plan = planned(monkeypatch, flops=lambda batch, length: float(batch * length * 10))
    recipe.phase = (phase(3), phase(2, 16, 4))
    assert plan.sizes() == [
        "network: 1,230 parameters, 1,200 without heads; vocabulary 50",
        "phase 1: 160 FLOPs a step", "phase 2: 640 FLOPs a step", "in all: 5 steps, 176 tokens, 1.76e+03 FLOPs",
    ]  # fmt: skip
    recipe.phase = (phase(3), phase(0, epochs=2.0))
    assert plan.sizes()[-1].startswith("in all: how many steps epochs are is known when")


def test_what_a_rank_holds_of_a_pretraining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "held_by_rank", lambda *_: 1000)
    _, plan = planned(monkeypatch, 2, describe=lambda device: [f"told of {device}"])
    lines = [*plan.spread(), *plan.memory()]
    assert lines[0].startswith("layout: 2 x 1 x 1")
    assert lines[1] == "told of cpu"
    assert lines[2].endswith("batch = micro 1 x accumulation 1 x devices 2")
    assert lines[3] == memory(4000, 3)


@pytest.mark.parametrize("here", [True, False])
def test_room_is_asked_for_on_the_mesh_that_is_meant(monkeypatch: pytest.MonkeyPatch, here: bool) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(train_plans.room, "check", lambda *given, here: asked.append((*given, here)))
    recipe, plan = planned(monkeypatch, 6)
    plan.fits(len, here=here)  # type: ignore[arg-type]
    assert asked == [(recipe, plan.network, plan.ranks, len, here)]


def test_gpus_may_stand_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        train_plans.processes, "plan", lambda device: Ranks(torch.device("cpu"), rank=1, world=2, threads=5)
    )
    for there, wanted in ((False, ("cuda", 4, (4, 1, 1), 1)), (True, ("cpu", 4, (4, 1, 1), 5))):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        found = train_plans.planned(Layout(device="cuda:1"), 4)
        assert (found.device.type, found.world, found.shape, found.threads) == wanted
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for layout, devices, shape in (
        (Layout(device="cuda"), 0, (2, 1, 1)),
        (Layout(device="cpu", shard=2), 4, (2, 2, 1)),
    ):
        found = train_plans.planned(layout, devices)
        assert (found.threads, found.shape) == (5, shape)

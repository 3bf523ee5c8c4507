"""What a pretraining starts from: a run goes on with its moments and its chance; what cannot be is refused."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.makers import change, job_of, make_store, make_words
from ordsmed.base import files
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.tell.show.picture import draw
from ordsmed.tell.show.show import show
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train import checkpoint, loop
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.saving import Saving
from ordsmed.weights import boxes
from ordsmed.weights.trained_model import open_model

Recipe = Callable[..., Path]
SMALL = ("model.width=16", "model.layers=1")


@pytest.fixture
def begun(recipe: Recipe, tmp_path: Path) -> Path:
    """The folder of a run that was stopped after a step, in the fifth phase of all."""
    own = job_of(recipe("begun"), *SMALL)
    change(own, phases_before=4)
    batches = next(loop.load(own.rows(0), own.share(0), 0, 1, workers=0, device=own.ranks.device))
    loop.train_step(own, batches, 1e-3, 0, 0)
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
    resume_state = PretrainingPlan.of(own.recipe, own.ranks).completed(make=True).build(resume_state=state)
    assert resume_state.phases_before == 5, "its own phase is one of the six"
    assert resume_state.began_with == ""
    assert not torch.equal(resume_state.parts[0].local, own.parts[0].local), "a checkpoint will be put in"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Text of the same words; two special tokens have changed places, and there is a word more."""
    return make_store(tmp_path / "other", specials=["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "w0w1"])


def test_another_vocabulary_is_moved_to(recipe: Recipe, begun: Path, other: Path, store: Path) -> None:
    def start(how: str) -> Job:
        return job_of(recipe(data=str(other)), *SMALL, f'init="{begun}"', f'vocabulary="{how}"')

    own, fresh, plain = start("transplant"), start("fresh"), job_of(recipe(data=str(other)), *SMALL)
    held = boxes.read_weights(begun / "checkpoints" / "step-000000001")
    theirs = Tokenizer.load(store / "tokenizer").pipeline.token_to_id
    table, bias = own.objective.model.words.weight, own.objective.head.bias
    for number in (1, 4, 6, 60):  # [PAD], [MASK], words
        same = theirs(own.tokenizer.piece(number))
        assert torch.equal(table[number], held["model.words.weight"][same])
        assert torch.equal(bias[number], held["head.bias"][same])
    for job in (own, fresh):
        body = {name: tensor for name, tensor in job.objective.state_dict().items() if name in held}
        assert all(torch.equal(body[n], held[n]) for n in held if "words" not in n and n != "head.bias")
        assert job.phases_before == 0
        assert not job.optimizer.state, "moments begin anew"
        assert job.began_with != ""
    assert torch.equal(fresh.objective.model.words.weight, plain.objective.model.words.weight)
    facts = own.initial_facts["vocabulary"]
    assert {name: facts[name] for name in facts if "validation" not in name} == {"kept": 125, "new": 1}
    assert facts["validation"] == own.data.validate(own, 0)["validation"]
    assert facts["validation_of_random"] == pytest.approx(fresh.data.validate(fresh, 0)["validation"], rel=1e-6)
    assert fresh.initial_facts == {"vocabulary": {"kept": 0, "new": 126}}
    assert plain.initial_facts == {}
    with pytest.raises(
        RecipeError, match=r'use data encoded with its tokenizer, or move it .*vocabulary = "transplant"'
    ):
        start("same")


def test_an_elmo_goes_on_with_other_words(tmp_path: Path) -> None:
    """Its rows carry states: the losses before the first step are those of any validation."""

    def written(name: str, seed: int, *more: str) -> Path:
        store, path = make_words(tmp_path / f"words-{name}", seed, 20), tmp_path / f"{name}.toml"
        lines = [
            f'data = "{store}"',
            f'out = "{tmp_path / name}"',
            *more,
            "validation_rows = 8",
            "[layout]",
            'device = "cpu"',
            "threads = 1",
            "[model]",
            'kind = "elmo"',
            "width = 8",
            "cells = 12",
            "layers = 1",
            "highways = 1",
            "filters = [[1, 4]]",
            "letter = 4",
            "[objective]",
            'kind = "bilm"',
            "samples = 0",
            "[[phase]]",
            "steps = 2",
            "length = 8",
            "batch = 4",
            "learning_rate = 1e-3",
        ]
        path.write_text("\n".join(lines) + "\n")
        return path

    begun = pretrain(str(written("theirs", 0)))
    own = job_of(written("ours", 1, f'init = "{begun}"', 'vocabulary = "transplant"'))
    facts = own.initial_facts["vocabulary"]
    assert facts["kept"] + facts["new"] == own.tokenizer.vocabulary
    assert 3 < facts["kept"] < own.tokenizer.vocabulary, "words that both drew, and the signs"
    assert facts["validation"] == own.data.validate(own, 0)["validation"]
    assert facts["validation_of_random"] != facts["validation"]


def test_it_goes_on_after_a_kill_and_its_first_weights_come_again(
    recipe: Recipe, begun: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, f'init="{begun}"', 'vocabulary="transplant"']
    whole = pretrain(str(recipe("whole", steps=4, data=str(other), save=2)), words)
    update, killed = loop.train_step, recipe("killed", steps=4, data=str(other), save=2)

    def until_the_fourth(*given: Any, step: int) -> Any:
        if step == 4:
            raise KeyError("killed")
        return update(*given, step=step)

    monkeypatch.setattr(loop, "train_step", until_the_fourth)
    with pytest.raises(KeyError, match="killed"):
        pretrain(str(killed), words)
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()
    assert checkpoint.steps(tmp_path / "killed" / "checkpoints") == [2]
    assert Run(tmp_path / "killed").status["vocabulary"] == Run(whole).status["vocabulary"]
    monkeypatch.setattr(loop, "train_step", update)
    first = open_model(tmp_path / "killed", 0).objective.model.words.weight
    assert torch.equal(first, job_of(recipe(data=str(other)), *words).objective.model.words.weight)
    begun.rename(tmp_path / "gone")
    resume_state = pretrain(str(tmp_path / "killed"))
    ends = [boxes.read_weights(folder / "checkpoints" / "step-000000004") for folder in (whole, resume_state)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert Run(resume_state).status["vocabulary"]["kept"] == 125


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


def test_how_well_known_weights_do_is_told_before_the_first_step(
    recipe: Recipe, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, f'init="{begun}"']
    start = job_of(recipe("twin", steps=4), *words)
    loss = start.data.validate(start, 0)["validation"]
    monkeypatch.setenv("ORDSMED_STOP_AT", "1")
    with pytest.raises(Stopped):
        pretrain(str(recipe("taught", steps=4)), words)
    assert f"before the first step: validation loss {loss:.4f} (mlm " in capsys.readouterr().err
    shutil.rmtree(tmp_path / "taught" / "checkpoints")  # it begins again, and has this line already
    monkeypatch.delenv("ORDSMED_STOP_AT")
    folder = pretrain(str(tmp_path / "taught"))
    assert [line["step"] for line in read(folder / "metrics.jsonl") if "validation" in line] == [0, 4]
    assert read(folder / "metrics.jsonl")[0]["validation"] == loss
    assert Run(folder).status["validation_before"] == files.read_json(folder / "scores.json")["validation_before"]
    assert f"validation before the first step: loss {loss:.4f} (mlm " in "\n".join(show(str(folder)))
    draw(folder, "taught")
    assert f"{loss:.3f} before the first step" in (folder / "loss.svg").read_text()
    plain = pretrain(str(recipe("plain", steps=4)), SMALL)
    assert "validation_before" not in Run(plain).status, "fresh weights know nothing"

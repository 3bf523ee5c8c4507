"""The loop's arithmetic: equal layouts are equal, phases hand over, starting weights are taken, learning happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import job_of, learned, make_store
from ordsmed.base import run, say, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.cli import main
from ordsmed.nn.shards import LocalParameter, total_norm
from ordsmed.train import checkpoint, loop
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.meters import read
from ordsmed.train.pretrain import texts
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining

Recipe = Callable[..., Path]
KINDS = [("bert", "mlm"), ("gpt2", "clm")]


def trained(path: Path, *overrides: str, steps: int = 10) -> list[tuple[float, float]]:
    """Loss and gradient norm of the first steps, dropout off."""
    return learned(job_of(path, "model.dropout=0.0", "model.attention_dropout=0.0", *overrides), steps)


@pytest.mark.parametrize(("kind", "objective"), KINDS)
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_accumulation_changes_nothing(recipe: Recipe, kind: str, objective: str, micro: int) -> None:
    path = recipe(kind=kind, objective=objective)
    assert np.allclose(trained(path), trained(path, f"layout.micro={micro}"), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("kind", "objective"), KINDS)
def test_ragged_micro_batches_are_divided_by_the_global_count(recipe: Recipe, kind: str, objective: str) -> None:
    """One document a row leaves rows of very different length: means of means would differ."""
    path = recipe(kind=kind, objective=objective, extra="pack = false")
    job = job_of(path)
    share = Layout(micro=2).share(job.phases[0], 1, "cpu")
    batch = next(loop.load(job.rows(0), share, 0, 1, workers=0, device=job.ranks.device))
    counts = {float(job.objective.count(b)[objective]) for b in batch}
    assert len(counts) > 1
    assert np.allclose(trained(path), trained(path, "layout.micro=2"), rtol=1e-5, atol=0)


def test_dropout_is_on_in_training_and_off_in_validation(recipe: Recipe) -> None:
    job = job_of(recipe())
    rows = job.data.validation(0)
    assert rows is not None
    assert texts.validate(job, rows, 8) == texts.validate(job, rows, 8)
    batch = next(loop.load(job.rows(0), job.share(0), 0, 1, workers=0, device=job.ranks.device))
    assert job.objective.training
    seen = []
    for micro in (0, 0, 1):
        loop.begin_micro_batch(0, 0, 0, micro, 0)
        seen.append(float(job.objective(batch[0])["mlm"].detach()))
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "objective"), KINDS)
def test_a_network_learns_what_follows_what(recipe: Recipe, kind: str, objective: str) -> None:
    """Every word has a favourite follower: guessing by frequency stays near log(120) = 4.8, the text allows 1.6."""
    path = recipe(kind=kind, objective=objective, steps=300, validation_rows=64, save=0, validate=0)
    words = ["phase.batch=64", "phase.length=8", "phase.learning_rate=3e-3", "phase.warmup=20", "model.width=64"]
    words += ["model.dropout=0.0", "model.attention_dropout=0.0", "model.initializer_std=0.1"]
    words += ["objective.mask_prob=0.3"] if objective == "mlm" else []
    folder = pretrain(str(path), words)
    status = run.Run(folder).status
    assert status["validation"] < 0.8 * status["unigram"]


@pytest.mark.parametrize("leave", ["phase", "run"])
def test_phases_hand_over(recipe: Recipe, tmp_path: Path, leave: str) -> None:
    """Two phases in one run equal two runs, the second of which starts from the first one's folder."""
    second = "[[phase]]\nsteps = 6\nlength = 64\nbatch = 4\nrate = 1e-3\nwarmup = 3\n"
    whole = pretrain(str(recipe("whole", steps=6, extra=second)))
    lines = [line for line in read(whole / "metrics.jsonl") if "validation" not in line]
    rates = [line["rate"] for line in lines[6:]]
    assert rates[:3] == pytest.approx([1e-3 / 3, 2e-3 / 3, 1e-3])  # the rate begins anew
    if leave == "run":
        first = pretrain(str(recipe("first", steps=6)))
        text = recipe("second", steps=6).read_text()
        head, _, _ = text.partition("[[phase]]")
        (tmp_path / "second.toml").write_text(f'init = "{first}"\n' + head + second)
        folder = pretrain(str(tmp_path / "second.toml"))
        after = [line for line in read(folder / "metrics.jsonl") if "validation" not in line]
    else:  # stopped inside phase 2 and gone on with: nothing is reset
        folder = pretrain(str(recipe("cut", steps=6, extra=second)))
        import shutil

        shutil.rmtree(folder / "checkpoints" / "step-000000012")
        assert checkpoint.steps(folder / "checkpoints")[-1] == 8
        run.Run(folder).set(state="running")
        pretrain(str(folder))
        after = [line for line in read(folder / "metrics.jsonl") if "validation" not in line][6:]
    assert [(x["loss"], x["norm"], x["rate"]) for x in after] == [(x["loss"], x["norm"], x["rate"]) for x in lines[6:]]


def test_another_size_or_vocabulary_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    first = pretrain(str(recipe("first", steps=2)))
    with pytest.raises(RecipeError, match="model"):
        pretrain(str(recipe("wide")), [f'init="{first}"', "model.width=64"])
    other = make_store(tmp_path / "other", seed=1)
    words = other / "vocab.txt"
    assert words.exists()
    text = recipe("other").read_text().replace(str(first.parent / "data"), "x")
    assert text
    from ordsmed.text.tokenizer import Tokenizer

    words.write_text(words.read_text().replace("w7\n", "z7\n"))
    Tokenizer.load(words).save(other / "tokenizer")
    run.Run(other).set(tokenizer=Tokenizer.load(words).fingerprint)
    with pytest.raises(RecipeError, match="tokenizer"):
        pretrain(str(recipe("vocabulary")), [f'init="{first}"', f'data="{other}"'])
    with pytest.raises(RecipeError, match="encode again or change `tokenizer`"):
        pretrain(str(recipe("named")), [f'data="{other}"', f'tokenizer="{first / "weights" / "tokenizer"}"'])


def test_a_batch_that_does_not_divide_is_refused(recipe: Recipe) -> None:
    with pytest.raises(RecipeError, match=r"phase\[1\].batch: found 8, not a multiple of micro 3 .*; use 6 or 9, or"):
        job_of(recipe(), "layout.micro=3")


def test_bf16_learns_almost_the_same(recipe: Recipe) -> None:
    exact, rough = trained(recipe()), trained(recipe(), 'layout.precision="bf16"')
    assert np.allclose(exact, rough, rtol=0.05)
    assert exact != rough


def test_clip_scales_to_the_limit() -> None:
    for limit, wanted in ((1.0, 1.0), (100.0, 5.0), (0.0, 5.0)):
        p = torch.nn.Parameter(torch.zeros(2))
        p.grad = torch.tensor([3.0, 4.0])
        part = LocalParameter.of("p", p)
        norm = total_norm([part])
        assert float(norm) == pytest.approx(5.0)
        loop.clip([part], norm, limit)
        assert float(p.grad.norm()) == pytest.approx(wanted, rel=1e-5)


def test_the_recipe_in_the_folder_is_resolved(recipe: Recipe) -> None:
    folder = pretrain(str(recipe(steps=2)))
    table = settings.read(folder / "recipe.toml")
    assert table["model"]["inner"] == 128
    assert table["optimizer"]["kind"] == "adamw"


def test_an_optimizer_needs_no_kind_to_be_changed(recipe: Recipe) -> None:
    assert job_of(recipe(), "optimizer.decay=0.5").recipe.optimizer.decay == 0.5


def test_a_blend_of_stores_takes_rows_by_weight(recipe: Recipe, store: Path, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other", seed=1)
    job = job_of(recipe(), f'data={{ "{store}" = 3.0, "{other}" = 1.0 }}')
    spans = job.rows(0).spans(np.arange(2_000))
    share = len({s.number for s in spans if s.source == 0}) / len({s.number for s in spans})
    assert share == pytest.approx(0.75, abs=0.03)
    assert len(trained(recipe(), f'data={{ "{store}" = 3.0, "{other}" = 1.0 }}', steps=2)) == 2


def test_a_run_needs_its_start_only_to_begin(recipe: Recipe) -> None:
    import shutil

    first = pretrain(str(recipe("first", steps=4)))
    folder = pretrain(str(recipe("second")), [f'init="{first}"'])
    shutil.rmtree(first)
    shutil.rmtree(folder / "checkpoints" / "step-000000012")
    lines = read(folder / "metrics.jsonl")
    pretrain(str(folder))
    assert [x.get("loss") for x in read(folder / "metrics.jsonl")] == [x.get("loss") for x in lines]
    with pytest.raises(RecipeError, match="no such folder"):
        pretrain(str(recipe("third")), [f'init="{first}"'])


def test_a_run_that_has_enough_ends_at_that_validation(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(recipe(steps=5, validate=2), "model.width=16", "model.layers=1")
    monkeypatch.setattr(type(job.recipe), "is_enough", lambda self, judged: len(judged) == 2)
    assert loop.train(job, tmp_path, 0, 1e9) == 4
    assert [line["step"] for line in job.state.validations] == [2, 4]


def test_a_run_stops_at_a_step_that_is_told_and_goes_on(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two checkpoints, as if asked to, but well: its status is 0; a step that is past stops nothing."""
    whole = pretrain(str(recipe("whole", steps=6)))
    parts = recipe("parts", steps=6)
    monkeypatch.setenv(loop.STOP_AT, "2")
    with pytest.raises(SystemExit) as ended:
        main(["pretrain", str(parts)])
    assert ended.value.code == 0
    folder = run.output_folder(*run.load(Pretraining, str(parts), []))
    assert (run.Run(folder).status["state"], run.Run(folder).status["step"]) == ("stopped", 2)
    assert f"saved at step 2 of 6; resume it with:\n    ordsmed pretrain {folder}" in capsys.readouterr().err
    pretrain(str(parts))
    assert [x.get("loss") for x in read(folder / "metrics.jsonl")] == [
        x.get("loss") for x in read(whole / "metrics.jsonl")
    ]
    monkeypatch.setenv(loop.STOP_AT, "soon")
    with pytest.raises(RecipeError, match="ORDSMED_STOP_AT: found soon; wanted a step of the run"):
        loop.train(job_of(recipe(steps=2)), tmp_path, 0, 1e9)


def test_all_processes_stop_at_the_step_that_the_first_was_told(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(loop.STOP_AT, "")
    monkeypatch.setattr(loop, "on_rank0", lambda ranks, act: 1 if act is loop.read_stop_at else act())
    with pytest.raises(Stopped) as ended:
        loop.train(job_of(recipe(steps=2)), tmp_path, 0, 1e9)
    assert (ended.value.step, ended.value.by) == (1, 0)
    assert loop.read_stop_at() == 0


def test_how_to_go_on_is_logged_though_nobody_reads(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*words: object, **how: object) -> None:
        raise BrokenPipeError

    update, asked = loop.train_step, recipe("unread", steps=6)

    def last_read(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(say, "print", lost, raising=False)
        say.say("unread")
        return update(*given, **more)

    monkeypatch.setattr(loop, "train_step", last_read)
    with pytest.raises(Stopped) as ended:
        pretrain(str(asked))
    folder = asked.with_suffix("")
    assert ended.value.by == signal.SIGPIPE
    assert f"saved at step {ended.value.step} of 6; resume it with:\n" in (folder / "log.txt").read_text()


def test_a_reader_that_went_away_asks_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*words: object, **how: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(say, "print", lost, raising=False)
    with loop.catch_stop_signals() as asked:
        say.say("one")
        assert asked() == signal.SIGPIPE
    with loop.catch_stop_signals() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        say.say("two")
        assert asked() == signal.SIGTERM
    with pytest.raises(BrokenPipeError):
        say.say("three")

"""How runs are shown: state, scores and losses first, settings on request; and what is refused in words."""

from __future__ import annotations

import json
import math
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base import say
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.run import Run, locked
from ordsmed.tell.show import state
from ordsmed.tell.show.picture import Pictures
from ordsmed.tell.show.show import show
from ordsmed.train.finetune import summary
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain

Recipe = Callable[..., Path]


@pytest.mark.long
def test_a_run_is_shown_by_its_state(recipe: Recipe) -> None:
    folder = pretrain(str(recipe()), callbacks=[Pictures()])
    told, lines = show(str(folder)), read(folder / "metrics.jsonl")
    training = [line["loss"] for line in lines if "validation" not in line][-10:]
    assert told[:4] == [
        f"{folder}: pretrain",
        "state: done",
        "step 12 of 12, phase 1",
        f"loss {sum(training) / 10:.4f}, the mean of steps 3 to 12",
    ]
    judged = lines[-1]
    found = f"loss {judged['validation']:.4f} (mlm {judged['mlm_right']:.1%} right)"
    assert told[4] == f"validation at step 12: {found}"
    assert told[5] == f"guessing by frequency: loss {Run(folder).status['unigram']:.4f}"
    assert re.fullmatch(r"began: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; training took \d+ s", told[6])
    assert told[7] == f"picture: {folder}/loss.svg"
    assert told[-1] == f"settings: `ordsmed show {folder} --settings`"
    assert len(told) < 20
    own, whole = show(str(folder), own_settings=True), show(str(folder), defaults=True)
    assert {"  [model]", "  width = 32"} <= set(own) < {*whole, own[-1]}
    assert own[-1] == f"settings at their defaults: `ordsmed show {folder} --all`"
    assert "  tied = true" in set(whole) - set(own)
    assert whole[:8] == own[:8] == told[:8]


def test_what_nobody_works_on_any_more_is_told_so(tmp_path: Path) -> None:
    """By its lock, if it was started on this machine; otherwise it is unknown."""
    folder, left = tmp_path / "run", "state: running, but no process is working on it; run its command again"
    folder.mkdir()
    Run(folder).set(verb="corpus", state="running")
    here, elsewhere = json.dumps({"host": platform.node()}), json.dumps({"host": "hall"})
    with locked(folder):
        (folder / "environment.json").write_text(here)
        assert state.lines(folder) == ["state: running"]
    assert state.lines(folder) == [left]
    for other in (elsewhere, "[]"):
        (folder / "environment.json").write_text(other)
        assert state.lines(folder) == ["state: running"]
    (folder / "environment.json").write_text(here)
    Run(folder).set(state="done")
    assert state.lines(folder) == ["state: done"]


def test_a_folder_that_is_hardly_begun_is_shown(tmp_path: Path) -> None:
    Run(tmp_path).set(verb="corpus", state="running", began=0, documents=3, stood_in="/x", folder="y")
    told = state.lines(tmp_path)
    assert told[:2] == ["state: running", "  documents: 3"]
    assert told[2].startswith("began: 19")
    assert len(told) == 3


@pytest.mark.long
def test_a_run_without_its_data_is_shown(recipe: Recipe, store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store")
    folder = pretrain(str(recipe(data=str(tmp_path / "store"))))
    shutil.rmtree(tmp_path / "store")
    told = show(str(folder))
    assert told[1] == "state: done"
    assert any(line.startswith("cost: unknown: ") for line in told)


@pytest.mark.long
def test_what_differs_from_init_is_named(recipe: Recipe) -> None:
    folder = pretrain(str(recipe()))
    wanted = rf"wanted layers 2, as {folder} has; leave \[model\] out \(`model=none`\)$"
    with pytest.raises(RecipeError, match=f"model: found layers 3; {wanted}"):
        pretrain(str(recipe("other")), [f"init={folder}", "model.layers=3"])
    with pytest.raises(RecipeError, match=r"model: found width 64, inner 256; wanted width 32, inner 128, as "):
        pretrain(str(recipe("other")), [f"init={folder}", "model.width=64"])
    with pytest.raises(RecipeError, match=r"model: found kind gpt2; wanted kind bert, as "):
        pretrain(str(recipe("other", "gpt2", "clm")), [f"init={folder}"])
    pretrain(str(recipe("other")), [f"init={folder}", "model.dropout=0.3", "model.initializer_std=0.1"])


@pytest.mark.long
def test_a_start_from_a_run_that_did_not_end_is_told(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pretrain(str(recipe()))
    shutil.rmtree(folder / "checkpoints" / "step-000000012")
    Run(folder).set(state="stopped")
    capsys.readouterr()
    pretrain(str(recipe("next")), [f"init={folder}"])
    said = f"{folder}: step 8 of 12: it was stopped; `ordsmed pretrain {folder}` resumes it\n"
    assert said in capsys.readouterr().err
    pretrain(str(recipe("next")), [f"init={folder}"])  # the same recipe: no weights of others are taken again
    assert "of 12: it was" not in capsys.readouterr().err


def test_a_negative_seed_is_refused_to_begin_with(recipe: Recipe) -> None:
    for begin in (lambda: show(str(recipe()), ["seed=-1"]), lambda: pretrain(str(recipe()), ["seed=-1"])):
        with pytest.raises(RecipeError, match=r"run.toml: seed: found -1; wanted 0 or more"):
            begin()


@pytest.mark.parametrize(
    ("count", "noun", "told"),
    [
        (1, "question", "1 question"),
        (0, "question", "0 questions"),
        (5463, "question", "5,463 questions"),
        (2, "process", "2 processes"),
        (3, "entry", "3 entries"),
        (2, "day", "2 days"),
        (4, "batch", "4 batches"),
    ],
)
def test_what_is_counted(count: int, noun: str, told: str) -> None:
    assert say.many(count, noun) == told


def test_a_loss_is_told_beside_guessing_of_the_same() -> None:
    """Of several terms each by itself: a sum is nothing to compare with guessing words."""
    from ordsmed.tell.show.state import _guessing

    one = {"unigram": 6.5, "guessing": {"validation": 6.5, "mlm": 6.5, "mlm_right": 0.1}, "mlm": 6.0, "mlm_right": 0.2}
    assert _guessing(one) == ["guessing by frequency: loss 6.5000"] == _guessing({"unigram": 6.5})
    two = {
        "unigram": 6.5,
        "guessing": {"mlm": 6.5, "mlm_right": 0.1, "pair": 0.69, "pair_right": 0.6},
        "mlm": 6.0,
        "mlm_right": 0.2,
        "pair": 0.7,
        "pair_right": 0.5,
    }
    assert _guessing(two) == [
        "mlm: 20.0% right, 10.0% by guessing; loss 6.0000, 6.5000 by guessing",
        "pair: 50.0% right, 60.0% by guessing; loss 0.7000, 0.6900 by guessing",
    ]
    assert _guessing({"step": 2}) == []
    older = {"unigram": 6.5, "validation": 6.7, "mlm": 6.0, "pair": 0.7}
    assert _guessing(older) == ["guessing by frequency: loss 6.5000 of tokens, not of the whole"]
    assert _guessing({"unigram": 6.5, "validation": 6.0, "mlm": 6.0}) == ["guessing by frequency: loss 6.5000"]


def written_down(folder: Path, *lines: dict[str, object]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def learned(*steps: int) -> list[dict[str, object]]:
    return [{"step": step, "phase": 1, "loss": float(step), "rate": 0.1} for step in steps]


@pytest.mark.parametrize(
    ("steps", "told"),
    [(range(1, 15), "loss 9.5000, the mean of steps 5 to 14"), ([2, 3], "loss 2.5000, the mean of steps 2 to 3")],
)
def test_the_last_losses_and_the_last_validation_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int], told: str
) -> None:
    monkeypatch.setattr(state, "where", lambda folder: "step 14 of 20, phase 2")
    judged = [
        {"step": n, "phase": 1.5, "validation": n / 2, "mlm": n / 2, "mlm_right": 0.25, "right_share": 0.5, "rows": 3}
        for n in (7, 12)
    ]
    written_down(tmp_path, *learned(*steps), *judged)
    Run(tmp_path).set(
        verb="pretrain",
        state="failed",
        why="a disk",
        deadline=7200,
        steps_asked=[99],
        left_out=[{"first": 2, "last": 4, "why": "a jump"}, {"first": 6, "last": 6, "why": "no number"}],
    )
    assert state.lines(tmp_path) == [
        "state: failed",
        "why: a disk",
        "step 14 of 20, phase 2",
        told,
        "validation at step 12: loss 6.0000 (mlm 25.0% right, right_share 0.5)",
        "left out: 4 steps skipped, the last for no number",
        "deadline 2 h: steps were adjusted from [99]",
    ]
    for name in ("loss.svg", "trials.svg"):
        (tmp_path / name).touch()
    assert state.lines(tmp_path)[-2:] == [f"picture: {tmp_path}/{name}.svg" for name in ("trials", "loss")]


def fine_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    """A folder whose recipe trains 20 steps and selects by accuracy."""
    best = lambda judged: max(judged, key=lambda line: line.get("accuracy", 0.0))["step"]  # noqa: E731
    phases = (SimpleNamespace(steps=20),)
    judged = SimpleNamespace(examples=examples, phases=phases, score="accuracy", best_of=best)
    monkeypatch.setattr(state.run, "read_recipe", lambda kind, folder: judged)
    (tmp_path / "scores.json").write_text(
        json.dumps({"step": 5, "validation": 0.4, "accuracy": 81.0, "f1": 70.0, "guessing": {"accuracy": 50.0}})
    )


def test_a_fine_tuning_tells_its_checks_and_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine_tuned(tmp_path, monkeypatch, examples=7)
    judged = [
        {"step": 3, "validation": 0.5, "accuracy": 70.0},
        {"step": 5, "validation": 0.5, "accuracy": 80.0},
        {"step": 9, "validation": 0.25},
    ]
    written_down(tmp_path, *learned(5, 12), *judged)
    Run(tmp_path).set(verb="finetune", state="running", began=0, training_seconds=61)
    told = state.lines(tmp_path)
    checks = [
        "  step 3: accuracy 70.00, dev loss 0.5000",
        "  step 5: accuracy 80.00, dev loss 0.5000  <- best",
        "  step 9: dev loss 0.2500",
    ]
    assert told[:5] == ["state: running", "step 9 of 20", *checks]  # no scores before it is done
    assert told[5].endswith("; training took 1 min 1 s")
    Run(tmp_path).set(state="done", seconds=70)
    told = state.lines(tmp_path)
    assert told[1] == "scores: accuracy 81.00 (guessing 50.00), f1 70.00"
    assert told[-1].endswith("; took 1 min 10 s")


def test_trials_tell_how_many_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine_tuned(tmp_path, monkeypatch, examples=0)
    (tmp_path / "trials.toml").touch()
    (tmp_path / "trials.md").write_text("# t: 3 trials\n\nmeans\nrows\n")
    for name, how in (("a", "done"), ("b", "running")):
        (tmp_path / "trials" / name).mkdir(parents=True)
        Run(tmp_path / "trials" / name).set(state=how)
    for name in "abc":
        (tmp_path / "trials" / f"{name}.toml").touch()
    Run(tmp_path).set(verb="finetune", state="running")
    assert state.lines(tmp_path) == ["state: running", "trials: 1 done of 3", "means", "rows"]


@pytest.mark.parametrize(
    "line",
    [
        [1],
        None,
        {"validation": 0.5},
        {"step": "x", "validation": 0.5},
        {"step": 9, "validation": None},
        {"step": 9, "loss": {}},
        {"step": 9, "validation": 0.5, "accuracy": "x"},
        {"step": math.inf, "validation": 0.5},
        {"step": 9, "validation": 0.5, "accuracy": None},
        {"step": 9, "loss": 0.5, "norm": "x"},
    ],
)
def test_a_line_that_is_damaged_is_named(line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine_tuned(tmp_path, monkeypatch, examples=7)
    Run(tmp_path).set(verb="finetune", state="running", began=0)
    written_down(tmp_path, {"step": 5, "loss": 0.5, "norm": None}, line)
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 2 is damaged"):
        state.lines(tmp_path)


@pytest.mark.parametrize("text", ["[]", '"a"', "nul", '{"guessing": 3, "f1": 2.0}', "null"])
def test_a_fine_tuning_whose_scores_are_damaged_is_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('init = "x"\ntask = { kind = "classify", train = "a.tsv", dev = "b.tsv" }\n')
    (tmp_path / "scores.json").write_text(text)
    Run(tmp_path).set(verb="finetune", state="done", began=0)
    told = state.lines(tmp_path)
    assert told[1].startswith(f"scores: unknown: {tmp_path}/scores.json: ")
    assert told[2].startswith("began: ")
    with pytest.raises(DataError, match=r"scores\.json"):
        summary.summary_lines(tmp_path)


@pytest.mark.parametrize(
    "facts",
    [
        {"began": math.inf},
        {"began": -1},
        {"seconds": []},
        {"training_seconds": "x"},
        {"deadline": 1e300},
        {"unigram": {}},
        {"guessing": 1},
        {"guessing": {"mlm": None}},
        {"guessing": {"mlm": 1.0}, "mlm": "x"},
        {"left_out": [3]},
        {"state": 1},
        {"step": None},
    ],
)
def test_a_status_whose_facts_are_damaged_is_named(facts: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"verb": "pretrain", "state": "done", "began": 0, **facts}))
    with pytest.raises(DataError, match=r"status\.json: .*; the file is damaged$"):
        state.lines(tmp_path)


def test_what_a_folder_holds_is_told_in_words(tmp_path: Path) -> None:
    Run(tmp_path).set(
        verb="corpus",
        state="done",
        read=1200,
        train={"documents": 3000, "parts": {"a": 1}, "bytes_a_token": 4.5},
        steps=[{"name": "tidy", "dropped": 0}, {"name": "length", "reasons": {"short": 2, "long": {}}}],
        left_out={},
        duplicates={"exact": 1, "groups": [["x"]]},
        language="en",
        licence=None,
        test=[],
        whole=True,
        kinds=["a", 1],
    )
    assert state.lines(tmp_path) == [
        "state: done",
        "  read: 1,200",
        "  train: documents 3,000, bytes a token 4.5",
        "  steps: name tidy, dropped 0",
        "  steps: name length, reasons short 2",
        "  duplicates: exact 1",
        "  language: en",
        "  whole: true",
        "  kinds: a, 1",
    ]

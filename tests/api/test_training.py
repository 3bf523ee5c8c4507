"""Training from Python: the processes that are started, how errors are reported, and the pictures of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from ordsmed.base import files


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What would have been started: [status, (words, processes, restarts), ...]; the first is set by a test."""
    calls: list[Any] = [0]

    def start(words: list[str], devices: int, *, restarts: int) -> int:
        calls.append((words, devices, restarts))
        return int(calls[0])

    monkeypatch.setattr("ordsmed.api.training.start", start)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)
    return calls


def test_several_processes_get_the_words_that_the_keywords_are(started: list[Any]) -> None:
    run = ordsmed.pretrain("tiny/bert", devices=2, seed=3, out="here", layout="2x1x1", deadline="90m", restarts=1)
    assert run.folder == Path("here")
    words = ["pretrain", "tiny/bert", "seed=3", 'out="here"', "--deadline=5400.0s", "--layout=2x1x1"]
    assert started[1] == (words, 2, 1)
    run = ordsmed.finetune("tiny/words", devices=1, anew=True, overrides=["init=a"], site="cluster")
    assert run.folder == Path("work/finetune/tiny-words")
    assert started[2] == (["finetune", "tiny/words", "init=a", "--anew", "--site=cluster"], 1, 0)


def test_how_they_end_is_told(started: list[Any]) -> None:
    Path("work").mkdir()
    files.write_json(Path("work/status.json"), {"verb": "pretrain", "step": 7})
    started[0] = 130
    with pytest.raises(ordsmed.Stopped) as stopped:
        ordsmed.pretrain("work", devices=2)
    assert (stopped.value.step, stopped.value.by) == (7, 2)
    started[0] = 1
    with pytest.raises(ordsmed.RunError, match=r"^work: its 2 processes ended with status 1; read their errors"):
        ordsmed.pretrain("work", devices=2)


@pytest.mark.parametrize("devices", [-1, 1.5, True, "2"])
def test_what_is_no_number_of_processes_is_refused(started: list[Any], devices: Any) -> None:
    with pytest.raises(ordsmed.RecipeError, match=r"^devices: found .*; wanted a number of processes, 1 or more$"):
        ordsmed.pretrain("tiny/bert", devices=devices)
    assert started == [0]


def test_one_of_several_processes_trains(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(
        "ordsmed.train.pretrain.pretrain.pretrain", lambda name, words, callbacks, **how: Path(f"{name} {words} {how}")
    )
    how = {"deadline": None, "anew": False, "site": "", "yes": False, "layout": ""}
    assert ordsmed.pretrain("tiny/bert", devices=2, seed=1).folder == Path(f"tiny/bert {['seed=1']} {how}")
    assert started == [0]


def test_a_run_is_drawn_once_it_is_done(
    recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDSMED_STOP_AT", "6")
    with pytest.raises(ordsmed.Stopped):
        ordsmed.pretrain(recipe(), out=str(tmp_path / "run"))
    assert not (tmp_path / "run" / "loss.svg").exists()
    monkeypatch.delenv("ORDSMED_STOP_AT")
    ordsmed.pretrain(tmp_path / "run")
    assert (tmp_path / "run" / "loss.svg").read_text().startswith("<svg")
    assert ordsmed.pretrain(tmp_path / "run").state == "done"

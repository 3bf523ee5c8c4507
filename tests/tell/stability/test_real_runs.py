"""Studies with runs of their own: each is what `pretrain` makes with its seed, and stops when the command is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ordsmed import cli
from ordsmed.base import files
from ordsmed.base.run import Run
from ordsmed.tell.stability.stability import StudyOptions, stability
from ordsmed.train import run_group
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.run_group import PlannedRun

pytestmark = pytest.mark.long


def at_once(one: PlannedRun, place: dict[str, str], threads: int, devices: int) -> Any:
    """In place of a process: the same command in this one, which needs no seconds to start."""
    with one.output_file.open("w") as said, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        cli.main([one.recipe.verb, str(one.path)])
    return type("Ended", (), {"returncode": 0, "poll": lambda self: 0})()


def test_each_seed_is_the_run_that_pretrain_makes(
    recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)
    monkeypatch.setattr(run_group, "start", at_once)
    path = recipe("steady", steps=6)
    result = stability(str(path), ["out=both"], StudyOptions(seeds=(1, 2)))
    alone = files.read_json(pretrain(str(path), ["seed=2", "out=alone"]) / "scores.json")
    first, second = (row["scores"]["validation"] for row in result["runs"])
    assert second == alone["validation"] != first
    assert result["over"]["validation"]["mean"] == pytest.approx((first + second) / 2)
    before = [(Path("both") / f"seed-{seed}" / "status.json").stat().st_mtime_ns for seed in (1, 2)]
    assert stability("both") == result
    assert [(Path("both") / f"seed-{seed}" / "status.json").stat().st_mtime_ns for seed in (1, 2)] == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells children of it there")
def test_killed_outright_its_run_saves_and_stops(recipe: Callable[..., Path], tmp_path: Path) -> None:
    """Though the command itself has no moment to say so."""
    own = tmp_path / "out" / "seed-3"
    words = [str(recipe("long", steps=100_000, save=50_000)), f"out={own.parent}", "--seeds", "3", "--yes"]
    with subprocess.Popen([sys.executable, "-m", "ordsmed", "stability", *words]) as process:
        while not (own / "metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    for _ in range(6_000):
        if Run(own).status["state"] != "running":
            break
        time.sleep(0.05)
    status = Run(own).status
    assert status["state"] == "stopped"
    assert 0 < status["step"] < 100_000

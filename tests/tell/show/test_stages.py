"""`show` of a folder of `make`: the request, how far each stage is, and the command that comes next."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.run import Run
from ordsmed.tell.show import stages, state

ASKED = {"texts": ["texts"], "out": "out", "hours": 0.5, "purpose": "fill", "kind": "", "start": ""}


@pytest.fixture
def folder(tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose model is trained, and whose vectors are planned."""
    monkeypatch.chdir(tmp_path)
    folder = Path("out")
    folder.mkdir()
    for name, source in (("corpus", "corpus"), ("data", "encode-bert"), ("model", "bert")):
        shutil.copytree(tiny_run.folder / source, folder / name)
        (folder / f"{name}.toml").touch()
    (folder / "dense.toml").touch()
    Run(folder).set(verb="make", state="running", request=ASKED, seconds=90.0)
    return folder


def test_stages_say_how_far_they_are(folder: Path) -> None:
    corpus, data, model = (Run(folder / name).status for name in ("corpus", "data", "model"))
    train, loss, guess = corpus["train"], model["validation"], model["unigram"]
    assert stages._progress(folder / "corpus") == f"documents {train['documents']:,}, words {train['words']:,}"
    assert stages._progress(folder / "data") == f"tokens {data['train']['tokens']:,}"
    course = state.lines(folder / "model")[1]
    assert stages._progress(folder / "model") == f"{course}, loss {loss:.4f} on held-out text (guessing {guess:.4f})"
    assert stages._progress(folder / "dense") == "not started"
    Run(folder / "data").set(state="running")
    assert stages._progress(folder / "data") == f"running, tokens {data['train']['tokens']:,}"


def test_the_request_the_stages_and_what_comes_next(folder: Path) -> None:
    lines = stages.lines(folder)
    assert lines[0] == "state: not finished; took 1 min 30 s so far"
    assert [line for line in lines if line.startswith("  hours")] == ["  hours: 0.5"]
    assert not any(line.startswith("  kind") for line in lines), "what was not asked for is not shown"
    named = [line.split()[0] for line in lines if line.split()[0] in (*stages.STAGES, *stages.OTHERS)]
    assert named == ["corpus", "data", "model", "dense"]
    assert "to continue:" in lines[-2] + lines[-1]
    assert "ordsmed make texts out" in lines[-1]
    Run(folder).set(state="done")
    (folder / "report.html").touch()
    lines = stages.lines(folder)
    assert lines[0] == "state: done; took 1 min 30 s"
    assert any(line.split()[:3] == ["report.html", "(the", "page)"] for line in lines)
    assert "ordsmed show out/model" in lines[-1]

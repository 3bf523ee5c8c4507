"""make.sh, the whole way by one script: its usage, and a small run of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit.makers import synthetic_text
from ordsmed.base import run
from ordsmed.cli import verb

SCRIPT = Path(__file__).parents[2] / "make.sh"
TEXT = SCRIPT.read_text(encoding="utf-8")


def script(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", str(SCRIPT), *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_words_that_it_does_not_know_are_answered_by_its_usage(tmp_path: Path) -> None:
    answered = script(tmp_path, "--help")
    assert answered.returncode == 2
    assert answered.stdout.startswith("The whole way once: a folder of text")
    assert list(tmp_path.iterdir()) == []


def test_its_verbs_and_recipes_exist() -> None:
    commands = re.findall(r"ordsmed (\w+)(?: ([\w/-]+(?= )))?", re.sub(r"^#.*$", "", TEXT, flags=re.MULTILINE))
    assert {name for name, _ in commands} <= set(verb.names())
    for name, recipe in commands:
        if recipe and name in ("corpus", "tokenizer", "encode", "finetune"):
            assert recipe in [*run.recipe_names(name), *run.recipe_names()], f"{name} {recipe}"
    networks = re.findall(r'^ {4}"([\w-]+) phase', TEXT, re.MULTILINE)
    assert len(networks) == 5
    assert set(networks) <= set(run.recipe_names("pretrain"))


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("ORDSMED_GRID") != "full", reason="minutes: `make test-all`")
def test_the_whole_way(tmp_path: Path) -> None:
    """Of a folder of text and twenty steps; the same line again trains nothing."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text(synthetic_text(300), encoding="utf-8")
    words = ("--hours", "0.02", "--text", "texts", "--out", "out", "--", "validation_rows=8")
    words += ("phase[1].steps=20", "phase[1].warmup=2")
    first = script(tmp_path, *words)
    assert first.returncode == 0, first.stdout[-2000:] + first.stderr[-2000:]
    assert (tmp_path / "out/network").read_text().startswith("quickstart ")
    assert (tmp_path / "out/hugging-face/config.json").is_file()
    assert list((tmp_path / "out/model/scores").glob("pseudo_perplexity-*.json"))
    assert "  f1: " in first.stdout
    assert "<html" in (tmp_path / "out/report.html").read_text(encoding="utf-8")
    weights = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/weights/*.safetensors")}
    assert {path.parent.parent.name for path in weights} == {"model", "tagger"}
    again = script(tmp_path, *words)
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
    assert {path: path.stat().st_mtime_ns for path in weights} == weights

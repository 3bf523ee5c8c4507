"""Tiny recipes learn: losses below guessing by frequency, fakes told better than by calling everything real.

CI trains ELECTRA's and ELMo's, in fewer and smaller steps, as far as learning is to be seen; ORDSMED_GRID=full (make
test-all) trains them all as they are: a minute each. What is fine-tuned
learns from the files that docs/lessons.py makes.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordsmed.base import files, run
from ordsmed.train.finetune.finetune import finetune
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.pretrain import pretrain

FULL = os.environ.get("ORDSMED_GRID") == "full"
FILES = Path(__file__).parents[2] / "docs" / "lessons.py"
LESSONS = {"questions": ("f1", 85), "sentences": ("accuracy", 95), "words": ("f1", 95)}  # and what is learned of them
SHORTER = {
    "electra": ["phase[1].steps=100", "phase[1].batch=48", "phase[1].warmup=10", "validation_rows=64"],
    "elmo": ["phase[1].steps=80", "phase[1].batch=32", "phase[1].warmup=10", "phase[1].learning_rate=8e-3"],
}
PRETRAINED = [name for name in run.recipe_names("tiny") if name not in (*LESSONS, "search")]  # tests/maker makes that


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in PRETRAINED if FULL or n in SHORTER])
def test_a_tiny_recipe_learns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scores = files.read_json(pretrain(f"tiny/{name}", [] if FULL else SHORTER[name]) / "scores.json")
    if name == "elmo":
        assert scores["perplexity"] < (0.8 if FULL else 0.9) * math.exp(scores["unigram"])
        return
    guesses = next(scores[term] for term in ("mlm", "clm", "hybrid", "diffusion", "guess") if term in scores)
    assert guesses < (0.97 if FULL else 0.99) * scores["unigram"]
    if "balanced" in scores:
        assert scores["balanced"] > 0.6


def lessons(folder: Path) -> None:
    """The files of the page of fine-tuning."""
    subprocess.run([sys.executable, str(FILES)], cwd=folder, check=True)


def test_the_lessons_of_the_page_are_what_tiny_recipes_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lessons(tmp_path)
    for name in LESSONS:
        task = run.load(Finetuning, f"tiny/{name}")[0].task
        learning = task.records(task.paths("train"), learning=True)
        assert (len(learning), len(task.records(task.paths("dev")))) == (600, 150)
        labels = getattr(task.complete(learning), "labels", ())
        assert len(labels) == {"questions": 0, "sentences": 2, "words": 7}[name]


@pytest.mark.long
@pytest.mark.skipif(not FULL, reason="ORDSMED_GRID=full: minutes")
def test_a_tiny_bert_learns_the_lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lessons(tmp_path)
    pretrain("tiny/bert")
    for name, (score, least) in LESSONS.items():
        scores = files.read_json(finetune(f"tiny/{name}") / "scores.json")
        assert scores[score] > least > scores["guessing"][score]

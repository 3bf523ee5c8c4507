"""Tiny recipes learn: losses below guessing by frequency, fakes told better than by calling everything real.

CI trains ELECTRA's and ELMo's; ORDSMED_GRID=full (make test-all) trains them all: a minute each.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from ordsmed.base import files, run
from ordsmed.train.pretrain import pretrain

FULL = os.environ.get("ORDSMED_GRID") == "full"


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in run.recipe_names("tiny") if FULL or n in ("electra", "elmo")])
def test_a_tiny_recipe_learns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scores = files.read_json(pretrain(f"tiny/{name}") / "scores.json")
    if name == "elmo":
        assert scores["perplexity"] < 0.8 * math.exp(scores["unigram"])
        return
    guesses = next(scores[term] for term in ("mlm", "clm", "hybrid", "guess") if term in scores)
    assert guesses < 0.97 * scores["unigram"]
    if "balanced" in scores:
        assert scores["balanced"] > 0.6

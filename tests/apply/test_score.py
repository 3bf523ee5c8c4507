"""Scores of anybody's predictions, no model being at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.apply.score import score
from ordsmed.base.errors import RecipeError

GOLD = "Rome\tB-LOC\nsees\tO\nAnn\tB-PER\nLee\tI-PER\n\n"


def test_tags_that_mark_spans_are_scored_as_spans(tmp_path: Path) -> None:
    gold, said = tmp_path / "gold.conll", tmp_path / "said.conll"
    gold.write_text(GOLD)
    said.write_text(GOLD.replace("I-PER", "O"))
    found = score("tag", [str(gold)], said)
    assert (found["f1"], found["precision"], found["recall"]) == (50, 50, 50)
    assert found["accuracy"] == 75


def test_an_unknown_task_is_refused_with_the_near_name() -> None:
    with pytest.raises(RecipeError, match=r"squad-1\.1"):
        score("squad-1.2", ["a"], "b")

"""Golden numbers: the first ten losses of each tiny recipe on a store made from a seed (`train/pretrain/losses.json`).

A change of these is a change of numbers for everybody: name it, and its reason, in the commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.base import run
from ordsmed.train.pretrain import golden

pytestmark = pytest.mark.long
GOLDEN = golden.read_table("losses")


def test_every_tiny_recipe_has_its_numbers() -> None:
    named = [f"tiny/{name.removeprefix('tiny/')}" for name in run.recipe_names("tiny")]
    assert set(GOLDEN) == {name for name in named if "objective" in run.read_table(run.find_recipe(name, ""), "")}


@pytest.mark.parametrize("name", GOLDEN)
def test_first_ten_losses(name: str, tmp_path: Path) -> None:
    losses, _ = golden.losses(name, tmp_path, 10)
    assert losses == pytest.approx(GOLDEN[name]["losses"], rel=1e-4)

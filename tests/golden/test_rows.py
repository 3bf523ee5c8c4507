"""Golden rows: what objectives make of a small store drawn from a seed, as sums of all their numbers.

Rows are functions of seed and number, so that a run goes on as it began, with another version too. A change of these is
a change for everybody's runs: name it, and its reason, in the commit. They stand in `train/pretrain/rows.json`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.train.pretrain import golden


def test_rows_are_as_they_were(tmp_path: Path) -> None:
    assert dict(golden.rows(tmp_path)) == {name: case["digest"] for name, case in golden.read_table("rows").items()}


@pytest.mark.parametrize("name", ["mlm", "clm", "hybrid", "diffusion", "rtd", "bilm"])
def test_no_two_cases_are_alike(name: str) -> None:
    """Every setting that is tried here changes what rows hold."""
    sums = [case["digest"] for key, case in golden.read_table("rows").items() if key.startswith(name)]
    assert len(set(sums)) == len(sums) > 1

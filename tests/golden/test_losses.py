"""Golden numbers: the first ten losses of each tiny recipe on text made from a seed.

A change of these is a change of numbers for everybody: name it, and its reason, in the commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from makers import job_of, learned, make_store
from ordsmed.base import run

# fmt: off
GOLDEN = {
    "tiny/bert": [
        4.848494, 4.835092, 4.867651, 4.868841, 4.824870, 4.856211, 4.845381, 4.818929, 4.840418, 4.818893,
    ],
    "tiny/gpt2": [
        4.867586, 4.828806, 4.797559, 4.701192, 4.612689, 4.536074, 4.466268, 4.415128, 4.354180, 4.285142,
    ],
}
# fmt: on


@pytest.mark.parametrize("name", GOLDEN)
def test_first_ten_losses(name: str, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    path = run.find_recipe(name, "")
    job = job_of(path, f'data="{store}"', "layout.threads=1", 'layout.device="cpu"')
    found = [loss for loss, _ in learned(job, 10, rate=None)]
    assert found == pytest.approx(GOLDEN[name], rel=1e-4)

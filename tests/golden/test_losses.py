"""Golden numbers: the first ten losses of each tiny recipe on text made from a seed.

A change of these is a change of numbers for everybody: name it, and its reason, in the commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.makers import PAD_SECOND, SPECIAL, job_of, learned, make_store, make_words
from ordsmed.base import run

pytestmark = pytest.mark.long

# fmt: off
GOLDEN = {
    "tiny/bert": [
        5.027041, 5.033821, 4.961384, 4.936640, 4.963781, 4.971000, 4.908319, 4.934257, 4.869495, 4.886899,
    ],
    "tiny/bert-nsp": [
        5.685277, 5.707059, 5.705803, 5.659490, 5.628116, 5.527274, 5.590485, 5.572951, 5.543229, 5.516689,
    ],
    "tiny/diffusion": [
        4.982277, 4.929049, 4.936631, 4.911386, 4.916508, 4.904550, 4.858220, 4.860436, 4.849042, 4.847506,
    ],
    "tiny/electra": [
        5.600075, 5.598604, 5.583524, 5.559532, 5.524574, 5.559931, 5.514934, 5.525291, 5.524164, 5.505085,
    ],
    "tiny/elmo": [
        8.246866, 7.979899, 7.870572, 7.764746, 7.879485, 7.577796, 7.200942, 7.246691, 7.358342, 7.498533,
    ],
    "tiny/gpt2": [
        4.886474, 4.789076, 4.594406, 4.356849, 4.098077, 3.859796, 3.663857, 3.536825, 3.386175, 3.246981,
    ],
    "tiny/hybrid": [
        4.880069, 4.841820, 4.776964, 4.691510, 4.585845, 4.424031, 4.272302, 4.164389, 4.030302, 3.934729,
    ],
    "tiny/hybrid-modern": [
        4.947352, 4.931100, 4.891644, 4.804093, 4.759905, 4.647091, 4.520195, 4.381701, 4.166163, 4.066547,
    ],
    "tiny/megatron-bert": [
        4.969532, 4.912641, 4.942886, 4.888750, 4.916144, 4.869773, 4.854209, 4.880395, 4.861413, 4.829458,
    ],
    "tiny/modern": [
        4.975671, 4.982642, 4.968367, 4.941163, 4.925148, 4.918707, 4.897165, 4.866652, 4.864169, 4.793729,
    ],
    "tiny/roberta": [
        5.035633, 4.984778, 4.978395, 5.048816, 4.984444, 4.986974, 4.930607, 4.934282, 4.934545, 4.910165,
    ],
}
# fmt: on


def test_every_tiny_recipe_has_its_numbers() -> None:
    named = [f"tiny/{name.removeprefix('tiny/')}" for name in run.recipe_names("tiny")]
    assert set(GOLDEN) == {name for name in named if "objective" in run.read_table(run.find_recipe(name, ""), "")}


@pytest.mark.parametrize("name", GOLDEN)
def test_first_ten_losses(name: str, tmp_path: Path) -> None:
    words = ["objective.samples=50"] if name == "tiny/elmo" else []
    signs = PAD_SECOND if name == "tiny/roberta" else SPECIAL
    store = make_words(tmp_path / "store") if words else make_store(tmp_path / "store", signs=signs)
    path = run.find_recipe(name, "")
    job = job_of(path, f'data="{store}"', "layout.threads=1", 'layout.device="cpu"', *words)
    found = [loss for loss, _ in learned(job, 10, rate=None)]
    assert found == pytest.approx(GOLDEN[name], rel=1e-4)

"""Promise 1 for fine-tuning: equal layouts learn the same and then tell the same of the dev files; dropout off.

Each task, each of its heads and each way to learn it goes through all meshes of two processes, but for what is refused,
in one start. Accumulation, recompute and the compiler are spread over the cases.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_layouts import AtWork

from kit.once import once
from kit.task_files import pair_files, task_files
from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning

pytestmark = pytest.mark.long

TRANSFORMER = ("width = 32", "layers = 2", "heads = 4", "positions = 64", "dropout = 0.0", "attention_dropout = 0.0")
BERT, GPT2 = ('kind = "bert"', *TRANSFORMER), ('kind = "gpt2"', *TRANSFORMER)
ELMO = ('kind = "elmo"', "width = 16", "cells = 24", "highways = 1", "filters = [[1, 8], [2, 8]]", "dropout = 0.0")
CLASSIFY, TAG = ('kind = "classify"', "tsv"), ('kind = "tag"', "conll")
PAIRS = ('kind = "pairs"', "jsonl")
SQUAD = ('kind = "squad"\nversion = "2.0"\nstride = 8', "json")
TOP = "recurrent = 8, dropout = 0.0"
ASKED = 112  # tokens of a batch of the dev files
FORBIDDEN = 1e29  # scores of places that cannot be chosen are further from 0


@dataclass(frozen=True)
class Way:
    """A task, how it is learned, and on what."""

    task: tuple[str, str]  # its settings, and how the names of its files end
    more: str = ""  # of the task's settings
    words: str = ""  # an override
    model: tuple[str, ...] = BERT


WAYS = {
    "classes": Way(CLASSIFY, "class_weights = { low = 0.01, mixed = 0.02, high = 0.05 }"),
    "last token": Way(CLASSIFY, model=GPT2),
    "tags": Way(TAG, 'class_weights = "balanced"'),
    "spans": Way(SQUAD),
    "joint": Way(SQUAD, 'head = "joint"'),
    "frozen": Way(CLASSIFY, words="freeze=true"),
    "adapted": Way(SQUAD, words="adapters={rank=2}"),
    "mixed": Way(TAG, f"top = {{ mix = true, {TOP} }}"),
    "pairs": Way(PAIRS, "symmetric = true\nwidths = [32, 8]"),
    "token pairs": Way(PAIRS, 'head = "multi-vector"\ntoken_width = 8\nexpand = 10\nsymmetric = true'),
    "elmo": Way(TAG, f"top = {{ {TOP} }}", model=ELMO),
}
REFUSED = ("adapted", "elmo")  # where layers are split
ACCUMULATED, RECOMPUTED, COMPILED = "layout.micro=1", "layout.recompute=true", "layout.compile=true"
MESHES: dict[str, tuple[int, int, int]] = {"2x1x1": (2, 1, 1), "1x2x1": (1, 2, 1), "1x1x2": (1, 1, 2)}
OPTIONS = {  # beyond the mesh
    "2x1x1 tags": [ACCUMULATED],
    "2x1x1 spans": [RECOMPUTED],
    "2x1x1 adapted": [RECOMPUTED],
    "1x2x1 joint": [RECOMPUTED],
    "1x2x1 pairs": [ACCUMULATED],
    "2x1x1 token pairs": ["layout.micro=2"],
    "1x2x1 frozen": [RECOMPUTED],
    "1x2x1 mixed": [ACCUMULATED],
    "1x2x1 adapted": [COMPILED],
    "1x1x2 classes": [ACCUMULATED],
    "1x1x2 joint": [RECOMPUTED],
}
ALONE = {  # one process, in another way than the plain one
    "accumulated classes": [ACCUMULATED],
    "accumulated elmo": ["layout.micro=2"],
    "accumulated pairs": ["layout.micro=2"],
    "accumulated token pairs": ["layout.micro=2"],
    "recomputed mixed": [RECOMPUTED],
    "compiled tags": [COMPILED, RECOMPUTED],
    "heavier classes": ["task.class_weights={ low = 1.0, mixed = 2.0, high = 5.0 }"],  # a weighted mean all the same
}
CASES = [f"{mesh} {way}" for mesh in MESHES for way in WAYS if not (mesh == "1x1x2" and way in REFUSED)]


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return once(tmp_path_factory, "task-recipes", make_recipes)  # type: ignore[no-any-return]


def make_recipes(folder: Path) -> dict[str, str]:
    """A recipe for each way to learn a task."""
    files, found = task_files(folder / "files"), {}
    pair_files(files)
    for name, way in WAYS.items():
        (kind, ending), path = way.task, folder / f"{name.replace(' ', '-')}.toml"
        lines = [
            f'tokenizer = "{files}/{"words" if way.model == ELMO else "vocab"}.txt"',
            "steps = 40",
            "batch = 8",
            f'features = "{folder}/features"',
            "learning_rate = 2e-3",
            "warmup = 2",
            "[layout]",
            'device = "cpu"',
            "threads = 1",
            "divisible = 8",
            "[model]",
            *way.model,
            "[task]",
            kind,
            "length = 24",
            way.more,
            f'train = "{files}/train.{ending}"',
            f'dev = "{files}/dev.{ending}"',
        ]
        path.write_text("\n".join(lines) + "\n")
        found[name] = str(path)
    return found


def case(recipes: dict[str, str], name: str, options: list[str]) -> dict[str, Any]:
    first, _, way = name.partition(" ")
    words = [word for word in (WAYS[way].words, *options) if word]
    return {
        "name": name,
        "task": recipes[way],
        "shape": MESHES.get(first, (1, 1, 1)),
        "asked": ASKED,
        "overrides": words,
    }


@pytest.fixture(scope="module")
def alone(at_work: AtWork, recipes: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process finds."""
    todo = [case(recipes, name, options) for name, options in ({f"plain {way}": [] for way in WAYS} | ALONE).items()]
    return once(tmp_path_factory, "tasks-1", lambda folder: at_work(folder, 1, todo))[0]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def together(
    at_work: AtWork, recipes: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What each of two processes finds."""
    todo = [case(recipes, name, OPTIONS.get(name, [])) for name in CASES]
    return once(tmp_path_factory, "tasks-2", lambda folder: at_work(folder, 2, todo))  # type: ignore[no-any-return]


def agree(found: dict[str, Any], one: dict[str, Any]) -> None:
    """The first ten losses, the first norm of the gradient, and all that is told of the dev files."""
    losses, norms = np.asarray(found["lines"]).T
    wanted, wanted_norms = np.asarray(one["lines"]).T
    assert np.allclose(losses, wanted, rtol=1e-5, atol=0)
    assert norms[0] == pytest.approx(wanted_norms[0], rel=1e-5)
    assert found["judged"] == pytest.approx(one["judged"], rel=1e-4)  # after ten steps, by losses within 1e-5 each
    for name, values in one["answers"].items():
        same = relative if name in ("start", "end") else np.asarray
        assert np.allclose(same(found["answers"][name]), same(values), rtol=1e-4, atol=1e-5), name


def relative(scores: list[float]) -> np.ndarray:
    """Scores of places less their mean, without those that cannot be chosen.

    What all places have in common changes no loss and no answer, so the slope of a span head's bias is rounding alone.
    Adam makes whole steps of it, other ones on each make of processor.
    """
    values = np.asarray(scores)
    possible = (values != 0) & (np.abs(values) < FORBIDDEN)  # 0 stands in padding
    return np.where(possible, values - values[possible].mean(), 0)


@pytest.mark.parametrize("name", ALONE)
def test_one_process_learns_the_same_in_another_way(alone: Any, name: str) -> None:
    agree(alone[name], alone[f"plain {name.partition(' ')[2]}"])


@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_and_tell_the_same(together: Any, alone: Any, name: str) -> None:
    for rank in together:
        agree(rank[name], alone[f"plain {name.partition(' ')[2]}"])


def test_the_cases_mean_something(alone: Any, together: Any) -> None:
    """Losses move, and two processes share an odd number of batches."""
    for way in WAYS:
        losses = np.asarray(alone[f"plain {way}"]["lines"])[:, 0]
        assert np.ptp(losses) > 1e-3, way
    assert {found["batches"] % 2 for found in together[0].values()} == {0, 1}
    assert min(found["batches"] for found in together[0].values()) > 2
    assert set(alone["plain joint"]["answers"]) > {"unanswerable", "end_index"}


@pytest.mark.parametrize("way", REFUSED)
def test_what_cannot_be_split_is_refused(recipes: dict[str, str], way: str) -> None:
    recipe, _ = run.load(Finetuning, recipes[way], [WAYS[way].words, "layout.tensor=2"][way == "elmo" :])
    ranks = dataclasses.replace(Ranks(torch.device("cpu")), world=2, shape=(1, 1, 2))
    with pytest.raises(RecipeError, match=r"layout\.tensor: found 2.*wanted 1; use shard"):
        FinetuningPlan.of(recipe, ranks)

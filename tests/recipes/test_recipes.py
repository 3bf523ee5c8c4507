"""Shipped recipes: each decodes, each pretraining trains when it is shrunk, and none is named that does not exist."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base import run, settings
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import logged
from ordsmed.data.encode import Encoding
from ordsmed.text.pipeline import Corpus
from ordsmed.text.training import Training
from ordsmed.train import loop
from ordsmed.train.bench import Bench
from ordsmed.train.job import build
from ordsmed.train.meters import read as read_metrics
from ordsmed.train.recipe import Pretraining
from ordsmed.train.show import read

NAMES = run.recipe_names()
KINDS = {"corpus": Corpus, "tokenizer": Training, "encode": Encoding, "pretrain": Pretraining, "bench": Bench}
TRAINED = [name for name in NAMES if name.startswith(("pretrain/", "tiny/"))]


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_decodes(name: str) -> None:
    folder, _, short = name.partition("/")
    recipe, verb = read(name)
    assert isinstance(recipe, Pretraining if folder == "tiny" else KINDS[folder])
    assert verb == ("pretrain" if folder == "tiny" else folder)
    if folder != "tiny":
        assert short in run.recipe_names(folder)
        assert run.load(KINDS[folder], short)[0] == recipe
    text = run.find_recipe(name, "").read_text(encoding="utf-8")
    assert re.match(r"# \S.{20,}", text), "the first line tells what it is"


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("corpus/", "bench/"))])
def test_what_a_recipe_names_is_shipped(name: str) -> None:
    recipe, _ = read(name)
    if isinstance(recipe, Pretraining):
        for source in recipe.sources:
            run.load(Encoding, source)
    if isinstance(recipe, Encoding):
        run.load(Training, recipe.tokenizer)
    if isinstance(recipe, Encoding | Training) and recipe.corpus:
        run.load(Corpus, recipe.corpus)


@pytest.mark.parametrize("name", TRAINED)
def test_lengths_and_batches_fit(name: str) -> None:
    recipe, _ = read(name)
    assert isinstance(recipe, Pretraining)
    for number, phase in enumerate(recipe.phase, 1):
        assert phase.length <= recipe.model.longest()
        assert recipe.layout.share(phase, number, "cpu").accumulation >= 1
    assert recipe.model.capabilities.causal == (settings.plain(recipe)["objective"]["kind"] == "clm")


def shrunk(recipe: Pretraining, data: Path) -> Pretraining:
    """Two layers of 64, two phases' worth of two rows of 32 tokens."""
    phases = [
        dataclasses.replace(p, steps=2, length=min(p.length, 32), batch=2, warmup=min(p.warmup, 1))
        for p in recipe.phase
    ]
    return dataclasses.replace(
        recipe,
        data=str(data),
        model=recipe.model.smaller(64, 2),
        phase=tuple(phases),
        save=0,
        validate=0,
        validation_rows=4,
    )


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINED)
def test_every_pretraining_takes_two_steps(name: str, tiny_run: Any, tmp_path: Path) -> None:
    recipe, _ = read(name)
    assert isinstance(recipe, Pretraining)
    data = tiny_run.folder / f"encode-{'gpt2' if recipe.model.capabilities.causal else 'bert'}"
    job = build(shrunk(recipe, data), Ranks(torch.device("cpu")))
    with logged(tmp_path / "log.txt"):
        last = loop.train(job, tmp_path, 0, 1e9)
    assert last == 2 * len(recipe.phase)
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "validation" not in line]
    assert [line["step"] for line in lines] == list(range(1, last + 1))
    guess = math.log(job.tokenizer.vocabulary)
    assert all(0.7 * guess < line["loss"] < 1.4 * guess for line in lines)
    assert all(line["norm"] > 0 for line in lines)


def test_the_readme_names_no_recipe_that_is_not_there() -> None:
    readme = Path(__file__).parents[2] / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    if len(text) < 500:
        pytest.skip("README is not written yet")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    named = re.findall(r"ordsmed (corpus|tokenizer|encode|pretrain|bench) (?:-\S+ )*([a-z][\w/-]*)(?=[\s`])", code)
    missing = [f"{v} {n}" for v, n in named if not n.startswith("work/") and n not in [*run.recipe_names(v), *NAMES]]
    assert missing == []

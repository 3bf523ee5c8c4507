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
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import logged
from ordsmed.data.encode import Encoding
from ordsmed.text.pipeline import Corpus
from ordsmed.text.training import Training
from ordsmed.train import loop
from ordsmed.train.bench import Bench
from ordsmed.train.job import build
from ordsmed.train.layout import Layout
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
    kind = settings.plain(recipe)["objective"]["kind"]
    assert recipe.model.capabilities.causal == (kind in ("clm", "hybrid"))


MACHINES = {  # NVIDIA's table: micro-batch and accumulation of both phases, on so many GPUs
    "dgxa100-8gpu-amp": (8, 176, 48, 24, 144), "dgxa100-8gpu-tf32": (8, 88, 96, 12, 288),
    "dgx2-16gpu-amp": (16, 176, 24, 24, 72), "dgx2-16gpu-fp32": (16, 88, 48, 12, 144),
    "dgx1-8gpu-amp": (8, 88, 96, 12, 288), "dgx1-8gpu-fp32": (8, 40, 211, 6, 576),
    "dgxa100-1gpu-amp": (1, 176, 384, 24, 1152), "dgxa100-1gpu-tf32": (1, 88, 768, 12, 2304),
    "dgx2-1gpu-amp": (1, 176, 384, 24, 1152), "dgx2-1gpu-fp32": (1, 88, 768, 12, 2304),
    "dgx1-1gpu-amp": (1, 88, 768, 12, 2304), "dgx1-1gpu-fp32": (1, 40, 1689, 6, 4608),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_the_machines_of_a_published_table(name: str) -> None:
    """The recipe says how a machine cuts a batch; the science is the plain recipe's."""
    gpus, *cut = MACHINES[name]
    there, _ = read(f"pretrain/electra-base-lamb-{name}")
    plain, _ = read("pretrain/electra-base-lamb")
    assert isinstance(there, Pretraining)
    shares = [there.layout.share(phase, n, "cuda", 0, gpus) for n, phase in enumerate(there.phase, 1)]
    assert [n for share in shares for n in (share.micro, share.accumulation)] == cut
    assert sum(abs(a.batch - b.batch) for a, b in zip(there.phase, plain.phase, strict=True)) <= 64
    one, other = (settings.plain(r) | {"layout": None, "phase": None} for r in (there, plain))
    assert one == other


def test_a_recipe_like_another(tmp_path: Path) -> None:
    """Tables are laid over each other key by key, lists and other kinds as a whole; a circle is refused."""
    (tmp_path / "mine.toml").write_text(
        'like = "tiny/bert"\nseed = 5\n[model]\nwidth = 64\n[objective]\nkind = "mlm_nsp"\nshort = 0.2\n'
    )
    mine, plain = run.read_table(tmp_path / "mine.toml", ""), run.read_table(run.find_recipe("tiny/bert", ""), "")
    assert mine["model"] == plain["model"] | {"width": 64}
    assert mine["objective"] == {"kind": "mlm_nsp", "short": 0.2}
    assert (mine["seed"], mine["phase"], mine["data"]) == (5, plain["phase"], plain["data"])
    (tmp_path / "a.toml").write_text('like = "b.toml"\n')
    (tmp_path / "b.toml").write_text(f'like = "{tmp_path}/a.toml"\n')
    for text, said in (('like = "tiny/brt"', "did you mean `tiny/bert`"), ("like = 3", "like: found 3")):
        (tmp_path / "c.toml").write_text(text)
        with pytest.raises(RecipeError, match=said):
            run.read_table(tmp_path / "c.toml", "")
    (tmp_path / "d.toml").write_text('like = "electra-base-lamb-dgx1-1gpu-amp"')
    assert run.load(Pretraining, str(tmp_path / "d.toml"))[0].layout.micro == (88, 12)
    with pytest.raises(RecipeError, match="is, in the end, like itself"):
        run.read_table(tmp_path / "a.toml", "")


def shrunk(recipe: Pretraining, data: Path) -> Pretraining:
    """Two layers of 64, two phases' worth of two rows of 32 tokens."""
    phases = [
        dataclasses.replace(p, steps=2, epochs=0.0, length=min(p.length, 32), batch=2, warmup=min(p.warmup, 1))
        for p in recipe.phase
    ]
    objective = recipe.objective
    if hasattr(objective, "generator"):
        objective = dataclasses.replace(objective, generator=type(objective.generator)())
    if hasattr(objective, "samples"):
        objective = dataclasses.replace(objective, samples=0)  # few samples tell less than the loss of all
    return dataclasses.replace(
        recipe,
        objective=objective,
        layout=Layout(device="cpu"),
        data=str(data),
        model=recipe.model.smaller(64, 2),
        phase=tuple(phases),
        save=0,
        validate=0,
        validation_rows=4,
    )


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINED)
def test_every_pretraining_takes_two_steps(
    name: str, tiny_run: Any, tiny_roberta: Path, tiny_words: Path, tmp_path: Path
) -> None:
    recipe, _ = read(name)
    assert isinstance(recipe, Pretraining)
    asked = next(iter(recipe.sources))
    data = tiny_run.folder / f"encode-{'gpt2' if 'bytebpe' in asked else 'bert'}"
    data = tiny_roberta if "roberta" in asked else tiny_words if asked.endswith("-words") else data
    job = build(shrunk(recipe, data), Ranks(torch.device("cpu")))
    with logged(tmp_path / "log.txt"):
        last = loop.train(job, tmp_path, 0, 1e9)
    assert last == 2 * len(recipe.phase)
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "validation" not in line]
    assert [line["step"] for line in lines] == list(range(1, last + 1))
    guess = math.log(job.tokenizer.vocabulary)
    term = "loss" if job.objective.guesses == "validation" else job.objective.guesses
    assert all(0.7 * guess < line[term] < 1.4 * guess for line in lines)
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

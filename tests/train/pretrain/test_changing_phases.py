"""Phases with data, masks, positions and shares of their own: rows, exactness over their borders, what is exported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import job_of, make_store
from kit.processes import work_side_by_side
from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import load
from ordsmed.base.run import Run
from ordsmed.data.encode import Encoded
from ordsmed.nn.dropout import Dropout
from ordsmed.tell.show import show
from ordsmed.train import checkpoint, loop
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.pretrain.plan import PretrainingPlan, check
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.weights import text_amount, weights
from ordsmed.weights.export import export
from ordsmed.weights.trained_model import open_model

Nursery = Callable[..., Any]
FULL = os.environ.get("ORDSMED_GRID") == "full"
RECIPE = """
data = "{here}/a"
out = "{here}/{name}"
save = 1
keep = 99
validate = 3
validation_rows = 8
average = 0.9
layout = {{ device = "cpu", threads = 1, precision = "fp32", micro = {micro} }}
[model]
kind = "modern"
width = 32
layers = 3
heads = 2
positions = 128
window = 8
theta = 500.0
dropout = 0.1
[objective]
kind = "mlm"
mask_prob = 0.3
[[phase]]
steps = 3
length = 16
batch = 4
learning_rate = 2e-3
warmup = 1
objective = {{ causal = true }}
[[phase]]
steps = 2
length = 64
batch = 4
learning_rate = 1e-3
warmup = 1
data = ["{here}/a", "{here}/b"]
mix = {{ temperature = 0.5 }}
theta = 9_000.0
local_theta = 700.0
rewarm = true
freeze = ["model.words", "blocks.0."]
[[phase]]
steps = 2
length = 64
batch = 4
learning_rate = 1e-3
pack = false
min_length = 70
data = {{ "{here}/b" = 1.0 }}
mask_prob = 0.1
dropout = 0.0
rope_scaling = {{ kind = "yarn", factor = 4.0 }}
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores of one tokenizer, of 60 and 20 documents, one of another, and a run of three phases that is done."""
    folder = tmp_path_factory.mktemp("phases")
    make_store(folder / "a")
    make_store(folder / "b", seed=1, documents=20)
    make_store(folder / "empty", documents=0)
    make_store(folder / "other", seed=2, specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[MORE]"))
    for micro in (4, 2):
        pretrain(str(written(folder, f"whole{micro}", micro)), yes=True)
    return folder


def written(folder: Path, name: str, micro: int = 4, text: str = RECIPE) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text.format(here=folder, name=name, micro=micro))
    return path


def learned(folder: Path) -> list[Any]:
    """All that a run notes of its steps but their time, its last moments and weights."""
    lines = [
        [(k, v) for k, v in line.items() if k in ("step", "loss", "norm", "validation")]
        for line in read(folder / "metrics.jsonl")
    ]
    files = sorted(checkpoint.path_of(folder / "checkpoints", lines[-1][0][1]).glob("optimizer*"))
    moments = [{name: value.numpy().tobytes() for name, value in weights.read(file).items()} for file in files]
    assert all(moments)
    return [lines, moments, *((folder / f"{part}/model.safetensors").read_bytes() for part in ("weights", "average"))]


def killed(run: Path, step: int, folder: Path) -> Path:
    """A copy of a finished run as a kill behind this step leaves it: notes of later steps stand, checkpoints do not."""
    shutil.copytree(run, folder)
    for name in ("weights", "average"):
        shutil.rmtree(folder / name)
    for later in checkpoint.steps(folder / "checkpoints"):
        if later > step:
            shutil.rmtree(checkpoint.path_of(folder / "checkpoints", later))
    Run(folder).set(state="running")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("micro", [4, 2])
@pytest.mark.parametrize("step", range(1, 7) if FULL else (3, 5, 6))
def test_a_run_that_was_killed_goes_on_bit_by_bit(here: Path, step: int, micro: int) -> None:
    folder = killed(here / f"whole{micro}", step, here / f"killed-{micro}-{step}")
    pretrain(str(folder))
    assert learned(folder) == learned(here / f"whole{micro}")


@pytest.mark.skipif(not FULL, reason="ORDSMED_GRID=full: processes that are stopped at each step, on two meshes")
@pytest.mark.parametrize("shard", [1, 2])
def test_stopped_at_every_step_on_every_mesh(here: Path, shard: int) -> None:
    def run(name: str, stops: list[int]) -> Path:
        words = ["pretrain", str(written(here, name)), "--yes", "--devices", "2", f"layout.shard={shard}"]
        for stop in [*stops, 0]:
            env = {**os.environ, "ORDSMED_STOP_AT": str(stop)}
            subprocess.run([sys.executable, "-m", "ordsmed", *words, "layout.micro=2"], env=env, timeout=300)
        return here / name

    whole, often = run(f"mesh{shard}", []), run(f"often{shard}", [1, 2, 3, 4, 5, 6])
    assert learned(whole) == learned(often)


def test_rows_are_of_the_data_of_their_phase(here: Path) -> None:
    """By shares of their tokens; long documents one a row; the documents of any step are named."""
    data = job_of(written(here, "rows")).data
    tokens = {name: Encoded(here / name).train.token_count for name in "ab"}
    share = tokens["a"] ** 0.5 / (tokens["a"] ** 0.5 + tokens["b"] ** 0.5)
    spans = data.rows(1).spans(np.arange(3_000))
    rows = {span.number: span.source for span in spans}
    assert sum(source == 0 for source in rows.values()) / 3_000 == pytest.approx(share, abs=0.02)
    long = Encoded(here / "b").train
    numbers = np.flatnonzero(np.diff(long.document_starts) >= 70)
    batch = data.rows(2).batch(np.arange(len(data.rows(2))))
    assert batch.documents.max() == 1, "one document a row"
    for span in data.rows(2).spans(np.arange(6)):
        store = data.stores(2)[0]
        assert np.array_equal(
            store.tokens[span.start : span.stop],
            long.document(numbers[span.document])[span.start - store.document_starts[span.document] :][
                : span.stop - span.start
            ],
        )
    shown = show.documents(str(here / "whole4"), 6)
    assert shown[0].endswith("4 rows, 4 pieces of documents")
    assert all(f"{here}/b document" in line for line in shown[1:])
    named = {int(line.split(" document ")[1].split(",")[0].split(" ")[0]) for line in shown[1:]}
    assert named <= set(numbers.tolist())
    assert f"{here}/a document" in "".join(show.documents(str(here / "whole4"), 5))


def test_what_the_plan_tells_before_anything_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = PretrainingPlan.read(str(written(here, "told"))).lines()
    told = [line for line in lines if line.startswith("phase")]
    assert f"from {here}/b, " in next(line for line in told if line.startswith("phase 2: 0."))
    assert any(line.startswith("phase 3: ") and "of 20 documents have 70 tokens or more" in line for line in told)
    assert any(
        line.startswith("attention: ") and "masks where rows are read from left to right" in line for line in lines
    )
    rehearse(str(written(here, "told")), ["phase[2].steps=400", "phase[2].mix={unimax=30}"], yes=True)
    assert f"epochs of {here}/b, and more than 4 of 1 other: more than about 4 epochs" in capsys.readouterr().err


def test_networks_are_as_their_phase_wants_them(here: Path) -> None:
    job = job_of(written(here, "networks"))
    for index, theta, rate, mask_prob in (
        (0, 500.0, 0.1, 0.3),
        (1, 9_000.0, 0.1, 0.3),
        (2, 9_000.0, 0.0, 0.1),
        (0, 500.0, 0.1, 0.3),
    ):
        job.begin_phase(index)
        assert job.objective.model_settings.theta == job.objective.model.settings.theta == theta
        assert max(m.rate for m in job.objective.modules() if isinstance(m, Dropout)) == rate
        assert job.objective.settings.mask_prob == mask_prob
    assert job.flops(1) > job.flops(2), "fewer tokens are scored"
    frozen = {part.name for part in job.parts} - {part.name for part in job.learning(1)}
    assert "model.words.weight" in frozen
    assert all(name.startswith(("model.words", "model.blocks.0.")) for name in frozen)


def test_frozen_weights_stay_and_moments_begin_anew(here: Path) -> None:
    at = {step: checkpoint.path_of(here / "whole4" / "checkpoints", step) for step in (3, 4, 5, 6)}
    weight = lambda step, name: weights.read(at[step] / "model.safetensors")[name]  # noqa: E731
    for name, still in (("model.words.weight", True), ("model.blocks.0.up.weight", True), ("model.last.weight", False)):
        assert torch.equal(weight(3, name), weight(5, name)) == still
        assert not torch.equal(weight(5, name), weight(6, name))
    steps = {step: weights.read(at[step] / "optimizer.safetensors")["step/model.last.weight"].item() for step in at}
    assert steps == {3: 3, 4: 1, 5: 2, 6: 3}


def test_no_gradient_of_frozen_weights_is_made(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the bits are those of a run that makes them all and leaves some out."""
    made, runs = list[list[str]](), list[Any]()
    drop = loop.drop_frozen

    def dropped(job: Any, index: int) -> Any:
        made.append([part.name for part in job.parts if part.whole.grad is not None])
        return drop(job, index)

    monkeypatch.setattr(loop, "drop_frozen", dropped)
    for leaves in (True, False):
        if not leaves:
            monkeypatch.setattr(Job, "skips_frozen_gradients", False)
        runs.append(learned(pretrain(str(written(here, f"frozen-{leaves}")), yes=True)))
        of_steps, made[:] = list(made), []
        frozen = [[name for name in names if re.search("model.words|blocks.0.", name)] for names in of_steps]
        assert [bool(names) for names in frozen] == [True] * 3 + [not leaves] * 2 + [True] * 2
    assert runs[0] == runs[1]


@pytest.mark.long
def test_folders_have_the_angles_of_their_step(here: Path, tmp_path: Path) -> None:
    """Of the last phase and of one before; and Hugging Face's class says the same of a text, to the last digits."""
    for step, theta, scaled in ((2, 500.0, False), (3, 500.0, False), (4, 9_000.0, False), (6, 9_000.0, True)):
        settings = open_model(here / "whole4", step).settings
        assert (settings.theta, settings.rope_scaling is not None) == (theta, scaled)
    transformers = pytest.importorskip("transformers")
    for step, scaled in ((5, False), (7, True)):
        folder = tmp_path / f"{step}"
        export(str(here / "whole4"), folder, step=step)
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
        turns = theirs.config.rope_parameters
        bases = turns["full_attention"]["rope_theta"], turns["sliding_attention"]["rope_theta"]
        assert bases == (9_000.0, 700.0), "what a phase before changed stays"
        assert turns["full_attention"]["rope_type"] == ("yarn" if scaled else "default")
        ours = open_model(here / "whole4", step).objective
        ids = torch.randint(5, 120, (2, 100), generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            mine = ours.head(ours.model(ids, torch.arange(100).expand(2, -1)))
            torch.testing.assert_close(mine, theirs(ids).logits, atol=2e-5, rtol=1e-4)
        again = open_model(folder).settings
        assert again.theta == ours.model_settings.theta
        if scaled:
            assert (again.rope_scaling.factor, again.rope_scaling.learned) == (4.0, 32)


@pytest.mark.parametrize(("name", "mask_prob"), [("modern-1k-8k-decay", 0.3), ("multilingual-anneal", 0.05)])
def test_recipes_of_three_phases(here: Path, name: str, mask_prob: float) -> None:
    """In small, up to the first step."""
    words = [
        "model.width=32",
        "model.layers=3",
        "model.inner=48",
        "model.heads=2",
        "phase.steps=2",
        "phase.batch=4",
        "phase[1].length=16",
        "phase.warmup=0",
        "layout.device=cpu",
        f'data=["{here}/a","{here}/b"]',
        "phase[1].batch_ramp.start=4",
        "phase[2].length=64",
        "phase[3].length=64",
        f"out={here}/{name}",
    ]
    recipe, lines = rehearse(f"pretrain/{name}", words, yes=True)
    thetas = [recipe.network_of(recipe.model, index).theta for index in range(3)]
    assert thetas == [10_000, 160_000, 160_000]
    assert recipe.objective_of(2).mask_prob == mask_prob
    assert all(any(f"phase {number}: 0." in line for line in lines) for number in (1, 2, 3)), "shares of both"


GRID = """
data = "{here}/a"
out = "{here}/{name}"
save = 1
keep = 99
validate = 3
validation_rows = 8
average = 0.9
layout = {{ device = "cpu", threads = 1, precision = "fp32", micro = 1 }}
objective = {{ kind = "mlm", mask_prob = 0.3 }}
[model]
kind = "modern"
width = 32
layers = 2
heads = 2
positions = 64
window = 8
theta = 500.0
dropout = 0.1
[[phase]]
steps = 5
length = 16
batch = 8
learning_rate = 2e-3
warmup = 1
batch_ramp = {{ start = 2, over = 3, by = 2 }}
[[phase]]
steps = 4
length = 32
batch = 6
learning_rate = 1e-3
data = ["{here}/a", "{here}/b"]
mix = {{ temperature = 0.5 }}
theta = 9_000.0
mask_prob = 0.2
freeze = ["model.words", "blocks.0."]
batch_ramp = {{ start = 2, over = 2, by = 2 }}
[[phase]]
steps = 3
length = 32
batch = 4
learning_rate = 1e-3
data = {{ "{here}/a" = 0.3, "{here}/b" = 0.7 }}
theta = 20_000.0
mask_prob = 0.1
warmup = 1
rewarm = true
batch_ramp = {{ start = 2, over = 1 }}
"""
PLACES = (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)  # of 12 steps; phases end with 5 and 9, batches grow behind 1 to 4 and so on
SCRIPT = Path(__file__).parent / "runs_gone_on_with.py"


@pytest.mark.parametrize("layout", ["one process", "two", pytest.param("two, split weights", marks=pytest.mark.long)])
def test_killed_at_ten_places_of_phases_that_change_all(here: Path, nursery: Nursery, layout: str) -> None:
    """Batches that grow, angles, masks, frozen weights and mixtures: weights and moments end with the same bits.

    One process and two are killed at half of the places each; ORDSMED_GRID=full: at all.
    """
    places = PLACES if FULL or "split" in layout else PLACES[layout == "two" :: 2]
    text = GRID.replace("micro = 1", "micro = 1, shard = 2") if "split" in layout else GRID
    name = f"grid of {layout}"
    recipe = written(here, name, text=text)

    def run(*names: Path) -> None:
        if layout == "one process":
            for one in names:
                pretrain(str(one), yes=True)
        else:
            work_side_by_side(nursery, here / f"said of {name}", 2, [str(SCRIPT), *map(str, names)])

    run(recipe)
    whole = here / name
    rows = [line["rows"] for line in read(whole / "metrics.jsonl") if "loss" in line]
    assert rows == [2, 4, 6, 8, 8, 2, 4, 6, 6, 2, 4, 4]
    cut = [killed(whole, step, here / f"{name}, killed at {step}") for step in places]
    run(*cut)
    wanted = learned(whole)
    assert [step for step, folder in zip(places, cut, strict=True) if learned(folder) != wanted] == []


RAMP = ["phase[1].steps=5", "phase[1].batch_ramp={start=2,over=3,by=1}", "phase[2].batch_ramp={start=2}"]


def test_a_batch_that_grows(here: Path) -> None:
    """Rows follow on each other over all steps, are counted and named."""
    whole = pretrain(str(written(here, "grown", 1)), RAMP, yes=True)
    lines = [line for line in read(whole / "metrics.jsonl") if "loss" in line]
    rows = [line["rows"] for line in lines]
    assert rows == [2, 2, 3, 4, 4, 2, 4, 4, 4]
    assert [line["tokens"] for line in lines] == [
        n * length for n, length in zip(rows, [16] * 5 + [64] * 4, strict=True)
    ]
    assert lines[-1]["left"] == 0.0
    plan = PretrainingPlan.read(str(whole))
    assert plan.work()[0] == pytest.approx(plan.flops(0) * 15 / 4 + plan.flops(1) * 6 / 4 + plan.flops(2) * 2)
    for step, first in ((1, 0), (3, 4), (4, 7), (5, 11), (6, 0), (7, 2)):
        named = {line.split("row ")[1].split(":")[0] for line in show.documents(str(whole), step)[1:]}
        assert named == {str(number) for number in range(first, first + rows[step - 1])}


def test_a_batch_that_grows_is_learned_alike_in_other_micro_batches(here: Path) -> None:
    losses = []
    for micro, way in ((1, "by=1"), (2, "by=2")):
        words = [f"phase[1].batch_ramp={{start=2,over=2,{way}}}", "phase[2].batch_ramp={start=2}", "model.dropout=0.0"]
        run = pretrain(str(written(here, f"cut{micro}", micro)), words, yes=True)
        losses.append([line["loss"] for line in read(run / "metrics.jsonl") if "loss" in line])
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-6)
    assert losses[0][1] != pytest.approx(losses[1][1], rel=1e-6), "of three rows, not of two"
    plan = PretrainingPlan.read(str(written(here, "told", 1)), [*RAMP, "phase[3].batch_ramp={start=1,over=9}"])
    told = [line.split(";")[0] for line in plan.lines() if "micro" in line]
    assert told == [
        "phase 1: 5 steps of 2 to 4 rows (from step 4 on) x 16 tokens",
        "phase 2: 2 steps of 2 to 4 rows (from step 2 on) x 64 tokens",
        "phase 3: 2 steps of 1 to 1 row (it ends before the batch reaches 4) x 64 tokens",
    ]


def test_what_a_batch_that_grows_is_counted_by(here: Path) -> None:
    """Epochs as steps; what a phase reads among all; a state that rows carry on has none."""
    words = [
        "phase[1].steps=0",
        "phase[1].epochs=2",
        "phase[1].batch_ramp={start=1,over=0.5}",
        "phase[2].steps=40",
        "phase[2].batch_ramp={start=1,over=40}",
        "phase[3].steps=1",
    ]
    plan = PretrainingPlan.read(str(written(here, "counted", 1)), words)
    first, second, third = plan.recipe.phase
    rows = len(plan.data.rows(0))
    assert abs(first.rows - 2 * rows) <= 4
    assert first.steps > 2 * rows / 4, "more steps than of the whole batch"
    made = SimpleNamespace(recipe=settings.plain(plan.recipe), folder=here)
    shares = {table["name"]: table["share"] for table in text_amount.data_of(made)}  # type: ignore[arg-type]
    tokens = [phase.rows * phase.length for phase in (first, second, third)]
    of_a = tokens[0] + tokens[1] * second.data[f"{here}/a"]
    assert shares["a"] == pytest.approx(of_a / sum(tokens))
    elmo = load("models", "elmo")()
    with pytest.raises(RecipeError, match=r"phase\[1\].batch_ramp: found one, but elmo continues each row"):
        check(plan.recipe, elmo, plan.ranks)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["phase[1].batch_ramp={{start=2}}", "layout.micro=4"], r"phase\[1\].batch_ramp: found batches of multiples"),
        (["phase[2].data={here}/other"], r"phase\[2\].data: .*other was encoded with another tokenizer"),
        (["phase[2].theta=0.5"], r"phase\[2\].model.theta: found 0.5; wanted 1 or more"),
        (["phase[2].model={{width=64}}"], r"phase\[2\].model.width: modern cannot change it during a run"),
        (["phase[2].mask_prob=1.5"], r"refused.toml: phase\[2\].objective.mask_prob: found 1.5"),
        (["phase[2].objective={{mask=0.1}}"], "mlm has no such setting; wanted one that a phase may change: mask_prob"),
        (["phase[3].objective={{causal=true}}"], "objective.causal: found for the last phase, which cannot use it"),
        (["phase[3].min_length=9_999"], r"phase\[3\].min_length: found 9,999, but .*b has no document"),
        (["phase[2].data={here}/empty"], r"phase\[2\].data: found .*empty, without text; wanted stores with text"),
        (['data=["{here}/a","{here}/empty"]'], "data: found .*empty, without text; wanted stores with text; leave"),
        (["max_epochs=0.1"], r"max_epochs: found .* epochs? of .*; wanted at most 0.1"),
        (["phase[2].mix={{unimax=0.01}}"], r"phase\[2\].mix.unimax: found 0.01, which gives .* for a phase of 512"),
        (["phase[2].mix={{temperature=2.0}}"], "found 2; wanted 0 to 1; a temperature of 2 that divides is 0.5 here"),
        (["phase[2].mix={{}}"], r"phase\[2\].mix.temperature: missing; wanted it or `unimax`"),
        (["phase[2].mix={{temperature=0.5,unimax=4.0}}"], r"phase\[2\].mix.unimax: found together with temperature"),
        (['phase[2].data={{"{here}/a"=0,"{here}/b"=0}}'], r"phase\[2\].data: found .*; wanted a weight above 0"),
        (["phase[1].batch_ramp={{start=8}}"], r"batch_ramp: found start 8, more than the batch of 4; wanted at most 4"),
        (["phase[1].batch_ramp={{start=3}}"], "steps of 3 do not reach 4; wanted `by` = 1, or"),
        (['phase[2].data={{"{here}/a"=1,"{here}/b"=2}}'], "mix: found together with weights of data"),
        (['phase[2].freeze=["nothing"]'], "freeze: found nothing, which matches no weight"),
        (['phase[2].freeze=[""]'], "freeze: found all weights; wanted a pattern that leaves some"),
        (["phase[1].rewarm=true", "phase[1].warmup=0"], "rewarm: found true without a warm-up"),
        (['model={{kind="bert",size="tiny"}}'], r"phase\[2\].model.theta: bert has no such setting.*of modern"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(here: Path, words: list[str], message: str) -> None:
    """A dry run refuses the same."""
    told = [word.format(here=here) for word in words]
    for start in (pretrain, rehearse):
        with pytest.raises(RecipeError, match=message):
            start(str(written(here, "refused")), told)
    assert not (here / "refused").exists()

"""Layouts: what is chosen where, what is refused, batch arithmetic, chance on split layers, running means."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.makers import job_of, learned
from ordsmed.api.model import open
from ordsmed.base import files, run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch.site import site_layout
from ordsmed.learn.phases import Phase
from ordsmed.nn.dropout import Dropout, begin_micro_batch
from ordsmed.nn.models import bert, elmo
from ordsmed.tell.show.show import layout as show_layout
from ordsmed.tell.show.show import show
from ordsmed.train import checkpoint
from ordsmed.train.auto import divisors
from ordsmed.train.memory import RankMemory
from ordsmed.train.mesh.layout import Layout, arithmetic, parse
from ordsmed.train.mesh.parallel import padded_rows
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.weights.trained_model import open_model
from ordsmed.weights.weights import read as read_weights

Recipe = Callable[..., Path]


@pytest.mark.parametrize(
    ("layout", "world", "shape"),
    [
        (Layout(), 1, (1, 1, 1)),
        (Layout(), 8, (8, 1, 1)),
        (Layout(shard=4), 8, (2, 4, 1)),
        (Layout(shard=2, tensor=2), 8, (2, 2, 2)),
        (Layout(replicate=2, tensor=4), 8, (2, 1, 4)),
    ],
)
def test_what_is_not_said_is_left_to_copies(layout: Layout, world: int, shape: tuple[int, int, int]) -> None:
    assert layout.shape(world) == shape


@pytest.mark.parametrize(
    ("word", "world", "said"),
    [
        ("layout.shard=3", 4, r"layout.shard: found shard 3 x tensor 1 = 3, which does not divide 4 .*can be 1, 2, 4"),
        ("layout.replicate=3", 4, r"layout.replicate: found 3 x 1 x 1 = 3; wanted 4"),
        ("layout.tensor=4", 4, r"layout.tensor: found 4, which does not divide the model's 2 heads; it can be 1, 2"),
        (
            "layout.micro=3",
            1,
            r"phase\[1\].batch: found 8, not a multiple of micro 3 x 1 device = 3; use 6 or 9, or layout.micro=2",
        ),
        (
            "layout.micro=[4,4]",
            4,
            r"phase\[1\].batch: found 8, not a multiple of micro 4 x 4 devices = 16; use 16, or layout.micro=2",
        ),
        ("phase.length=33", 2, r"layout.sequence: found true, but rows of 33 are no multiple of tensor 2.*=false"),
        (
            "phase.batch=9",
            2,
            r"phase\[1\].batch: found 9; wanted a multiple of the 2 devices; use 8 or 10, or 1 device",
        ),
        ("layout.micro=1000000000000", 1, r"micro 1000000000000 x 1 device = \d+; use 10+, or layout.micro=8"),
        ("seed=1", 10**12, r"found 8; wanted a multiple of the 1,0[0,]+ devices; use 10+, or 8 devices"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(recipe: Recipe, word: str, world: int, said: str) -> None:
    words = [word, "layout.tensor=2"] if "length" in word else [word]
    with pytest.raises(RecipeError, match=said):
        show_layout(str(recipe()), ['data="stdlib-wordpiece"', *words], devices=world)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tensor": 2, "compile": True}, "compile"),
        ({"exact": ("norms",), "precision": "fp32"}, "exact"),
        ({"fp8": True, "precision": "fp16"}, "fp8"),
        ({"micro": ()}, "micro"),
        ({"micro": (4, -1)}, "micro"),
        ({"shard": 0}, "shard"),
        ({"patience": 0.0}, "patience"),
        ({"scale": 0.5}, "scale"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}: found .*wanted"):
        Layout(**given)


def test_a_model_without_a_plan_is_not_split(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    none = dataclasses.replace(bert.Bert.capabilities, tensor=False)
    monkeypatch.setattr(bert.Bert, "capabilities", none)
    with pytest.raises(RecipeError, match=r"layout.tensor: found 2, but bert cannot be split; wanted 1; use shard"):
        show_layout(str(recipe()), ['data="stdlib-wordpiece"', "layout.tensor=2"], devices=2)


def test_a_mesh_by_its_three_numbers() -> None:
    assert parse("2x4x1", Layout(micro=3)) == Layout(micro=3, replicate=2, shard=4, tensor=1)
    for wrong in ("2x4", "2*4*1", "axbxc"):
        with pytest.raises(RecipeError, match="auto, or replicate x shard x tensor"):
            parse(wrong, Layout())


@pytest.mark.parametrize(
    ("devices", "accumulations"), [(384, (1, 3)), (8, (48, 144)), (16, (24, 72)), (1, (384, 1152))]
)
def test_the_global_batch_is_the_recipes(devices: int, accumulations: tuple[int, int]) -> None:
    """NVIDIA's ELECTRA: 67,584 and 27,648 rows from 176 and 24 a device, on 48 nodes of 8 as on one GPU."""
    layout = Layout(micro=(176, 24))
    for number, (batch, micro, accumulation) in enumerate(
        zip((67_584, 27_648), (176, 24), accumulations, strict=True), 1
    ):
        share = layout.share(Phase(steps=1, length=128, batch=batch, learning_rate=1.0), number, "cuda", 0, devices)
        assert (share.micro, share.accumulation) == (micro, accumulation)
        assert share.micro * share.accumulation * share.world == batch


def test_show_layout_tells_the_arithmetic(recipe: Recipe) -> None:
    words = ['data="stdlib-wordpiece"', "phase.batch=67584", "layout.micro=176"]
    lines = show_layout(str(recipe()), words, devices=384)
    assert any("67,584 rows x 32 tokens; batch = micro 176 x accumulation 1 x devices 384" in line for line in lines)
    assert any(line.startswith("layout: 384 x 1 x 1") for line in lines)
    assert any(line.startswith("memory a rank: weights") for line in lines)
    phase = Phase(steps=2, length=8, batch=4, learning_rate=1.0)
    assert arithmetic(phase, 1, Layout().share(phase, 1, "cpu")).endswith("micro 4 x accumulation 1 x devices 1")


@pytest.mark.parametrize(
    ("rows", "tensor", "padded"),
    [(50_257, 1, 50_304), (50_257, 2, 50_432), (50_257, 4, 50_688), (50_257, 8, 51_200), (30_522, 1, 30_592)],
)
def test_the_vocabulary_is_padded_by_megatrons_rule(rows: int, tensor: int, padded: int) -> None:
    assert padded_rows(rows, Layout().divisible * tensor) == padded


@pytest.mark.parametrize(
    ("word", "world", "said"),
    [
        ("phase.batch=256", 384, r"found 256; wanted a multiple of the 384 devices; use 384, or 256 devices"),
        ("phase.batch=1000", 384, r"use 768 or 1152, or 250 devices"),
        ("layout.tensor=2", 6, r"found 8; wanted a multiple of 3, for 6 devices in groups of 2; use 6 or 9, or 4 dev"),
    ],
)
def test_an_impossible_batch_tells_the_nearest_possible_ones(recipe: Recipe, word: str, world: int, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"phase\[1\].batch: .*{said}"):
        show_layout(str(recipe()), ['data="stdlib-wordpiece"', word], devices=world)


def test_the_network_that_cannot_be_split_is_named(recipe: Recipe) -> None:
    words = ['data="stdlib-wordpiece"', "model.width=128", "layout.tensor=2", "model.heads=2"]
    generator = "objective.generator={width=64, heads=1}"
    said = r"layout.tensor: found 2, which does not divide the generator's 1 head; it can be 1"
    with pytest.raises(RecipeError, match=said):
        show_layout(str(recipe(kind="electra", objective="rtd")), [*words, generator], devices=2)


def test_in_fp32_nothing_is_kept_exact() -> None:
    layout = Layout(exact=("norms",))
    assert [layout.with_precision(precision).exact for precision in ("fp32", "bf16", "fp16")] == [
        (),
        ("norms",),
        ("norms",),
    ]
    named = Layout(precision="bf16", exact=("norms",))
    assert named.with_precision("fp32") is named


PHASES = [Phase(steps=1, length=8, batch=8, learning_rate=1.0), Phase(steps=1, length=8, batch=12, learning_rate=1.0)]


@pytest.mark.parametrize(
    ("layout", "world", "shape", "micro"),
    [
        (Layout(), 4, (4, 1, 1), 0),
        (Layout(replicate=2), 1, (1, 1, 1), 0),
        (Layout(replicate=2), 4, (4, 1, 1), 0),
        (Layout(replicate=1, shard=2), 1, (1, 1, 1), 0),
        (Layout(replicate=1, shard=2), 2, (1, 2, 1), 0),
        (Layout(replicate=1, shard=4), 2, (1, 2, 1), 0),
        (Layout(replicate=1, tensor=2), 1, (1, 1, 1), 0),
        (Layout(shard=4, tensor=2), 4, (1, 2, 2), 0),
        (Layout(shard=4, tensor=2), 2, (1, 1, 2), 0),
        (Layout(shard=3), 4, (4, 1, 1), 0),
        (Layout(micro=(8, 12)), 2, (2, 1, 1), (4, 6)),
        (Layout(micro=(4, 3)), 2, (2, 1, 1), (4, 3)),
        (Layout(micro=8), 4, (4, 1, 1), (2, 3)),
        (Layout(tensor=2, micro=(4, 3)), 4, (2, 1, 2), (4, 3)),
        (Layout(tensor=2, micro=8), 4, (2, 1, 2), (4, 6)),
    ],
)
def test_a_kept_layout_is_fitted(layout: Layout, world: int, shape: tuple[int, ...], micro: Any) -> None:
    found, said = layout.fitted(PHASES, world, asked=set())
    assert found.shape(world) == shape
    assert found.micro == micro
    assert bool(said) == (found != layout)
    if said:
        assert f"{world} process" in said
    for number, phase in enumerate(PHASES, 1):
        assert found.share(phase, number, "cpu", 0, world // shape[2]).batch == phase.batch


def test_a_kept_layout_lies_as_it_did_on_so_many() -> None:
    lay = [{"from": 0, "processes": 2, "mesh": [1, 2, 1]}, {"from": 4, "processes": 1, "mesh": [1, 1, 1]}]
    assert Layout(replicate=1).fitted(PHASES, 2, lay, asked=set())[0].shape(2) == (1, 2, 1)
    assert Layout().fitted(PHASES, 2, lay, asked=set())[0].shape(2) == (1, 2, 1)
    assert Layout(replicate=1).fitted(PHASES, 2, lay[1:], asked=set())[0].shape(2) == (2, 1, 1)
    assert Layout().fitted(PHASES, 2, lay[:1], asked=set()) == (Layout(), "")  # changed by hand since
    assert Layout().fitted(PHASES, 2, lay, asked={"tensor"}) == (Layout(), "")
    for asked in ("replicate", "shard", "tensor"):
        assert Layout(shard=2).fitted(PHASES, 1, asked={asked}) == (Layout(shard=2), "")
    assert Layout(micro=8).fitted(PHASES, 2, asked={"micro"}) == (Layout(micro=8), "")


def stored(folder: Path, **layout: object) -> Path:
    """A run whose last checkpoint is gone, as if it had been made on such a layout."""
    for step in checkpoint.steps(folder / "checkpoints")[-1:]:
        shutil.rmtree(folder / "checkpoints" / f"step-{step:09d}")
    table = settings.read(folder / "recipe.toml")
    table["layout"] |= layout
    files.write_text(folder / "recipe.toml", settings.write(table))
    shape = [layout.get("replicate", 1), layout.get("shard", 1), layout.get("tensor", 1)]
    run.Run(folder).set(state="running", layouts=[{"from": 0, "processes": math.prod(shape), "mesh": shape}])
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "kept",
    [{"replicate": 2}, {"replicate": 1, "shard": 2}, {"replicate": 1, "tensor": 2}, {"device": "cuda", "micro": 3}],
)
def test_a_kept_layout_is_no_reason_to_refuse(
    recipe: Recipe, store: Path, kept: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    if not (store / "recipe.toml").exists():
        (store / "recipe.toml").write_text('corpus = "none"\ntokenizer = "none"\n')
    asked = recipe("kept", steps=8)
    folder = stored(pretrain(str(asked)), **kept)
    before, several = (folder / "recipe.toml").read_text(), "device" not in kept
    mesh = [kept.get(name, 1) for name in ("replicate", "shard", "tensor")]
    as_it_lies = f"layout: {' x '.join(map(str, mesh))} (replicate"
    for told in (show(str(folder)), show_layout(str(folder))):
        assert any(line.startswith(as_it_lies) for line in told)
    assert any(line.startswith("layout: 1 x 1 x 1 ") for line in rehearse(str(folder))[1])
    if several:
        with pytest.raises(RecipeError, match=r"layout.replicate: found .*= 2; wanted 1"):
            pretrain(str(folder), layout="x".join(map(str, mesh)))
    assert (folder / "recipe.toml").read_text() == before
    capsys.readouterr()
    pretrain(str(folder))
    said = capsys.readouterr().err
    assert ("its layout on 1 process: " in said) == (several or kept.get("micro") == 3)
    assert ("device cuda became auto" in said) != several
    assert run.Run(folder).status["state"] == "done"
    after = (folder / "recipe.toml").read_text()
    assert run.read_recipe(Pretraining, folder).layout.shape(1) == (1, 1, 1)
    pretrain(str(asked), ["layout.recompute=true"])  # by its recipe, on another layout: nothing is left to train
    assert (folder / "recipe.toml").read_text() == after
    assert open_model(folder).step == 8


@pytest.mark.long
def test_a_run_goes_on_on_another_layout(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    whole = pretrain(str(recipe("whole")))
    folder = pretrain(str(recipe("other")))
    shutil.rmtree(folder / "checkpoints" / "step-000000012")
    pretrain(str(folder), ["layout.micro=2"])
    assert "saved with micro [8], now [2]: losses will agree except for rounding" in capsys.readouterr().err
    losses = [[line["loss"] for line in read(f / "metrics.jsonl") if "loss" in line] for f in (whole, folder)]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)  # dropout is on: other micro-batches draw others
    assert [entry["from"] for entry in run.Run(folder).status["layouts"]] == [0]
    with pytest.raises(RecipeError, match="keeps its recipe; only `layout`"):
        pretrain(str(folder), ["seed=3"])


def test_a_site_gives_a_layout_and_the_command_line_the_last_word(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[layout]\nmicro = 2\nrecompute = true\n")
    folder = pretrain(str(recipe(steps=2)), ["layout.micro=4"], site=str(tmp_path / "mine.toml"))
    layout = run.read_recipe(Pretraining, folder).layout
    assert (layout.micro, layout.recompute, layout.threads) == (4, True, 1)
    assert site_layout("laptop")["device"] == "cpu"
    with pytest.raises(RecipeError, match="did you mean `laptop`"):
        site_layout("labtop")


@pytest.mark.long
def test_auto_measures_and_keeps_what_it_found(
    recipe: Recipe, details: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pretrain(str(recipe(steps=2)), layout="auto")
    said = capsys.readouterr().err
    (micro,) = run.read_recipe(Pretraining, folder).layout.micro  # type: ignore[misc]
    assert micro in (1, 2, 4, 8)
    assert "auto: phase 1, micro 1:" in said
    assert f"micro {micro} x accumulation {8 // micro}" in said
    assert divisors(24) == [1, 2, 4, 8, 24]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", [("bert", "mlm"), ("gpt2", "clm")])
def test_recompute_gives_the_same_bits(recipe: Recipe, kind: tuple[str, str], dropout: float) -> None:
    found = []
    for recompute in ("false", "true"):
        words = [f"model.dropout={dropout}", f"model.attention_dropout={dropout}", f"layout.recompute={recompute}"]
        job = job_of(recipe(kind=kind[0], objective=kind[1]), *words)
        found.append(learned(job, 3))
    assert found[0] == found[1]


def test_ranks_that_share_a_layer_draw_alike_or_apart() -> None:
    """Equal activations are dropped alike on every rank of a tensor group, split ones apart."""
    masks = {}
    for stream in (0, 1, 2):
        layer = Dropout(0.5)
        layer.stream = stream
        begin_micro_batch(0, 0, stream=stream)
        masks[stream] = layer(torch.ones(64, 8))
    assert not torch.equal(masks[1], masks[2])
    shared = Dropout(0.5)
    drawn = []
    for stream in (1, 2):
        begin_micro_batch(0, 0, stream=stream)
        drawn.append(shared(torch.ones(64, 8)))
    assert torch.equal(*drawn)


def test_a_running_mean_of_the_weights(recipe: Recipe) -> None:
    """mean = 0.5 * mean + 0.5 * weights, from the first update on; kept through a restart, and openable as a model."""
    import shutil

    folder = pretrain(str(recipe("mean", steps=3, save=1, keep=9, average=0.5)))
    weights = [read_weights(folder / "checkpoints" / f"step-{n:09d}" / "model.safetensors") for n in (1, 2, 3)]
    mean = read_weights(folder / "average" / "model.safetensors")
    for name, value in mean.items():
        wanted = (weights[0][name] * 0.5 + weights[1][name] * 0.5) * 0.5 + weights[2][name] * 0.5
        assert torch.allclose(value, wanted, atol=1e-6), name
    shutil.rmtree(folder / "checkpoints" / "step-000000003")
    pretrain(str(folder))
    again = read_weights(folder / "average" / "model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in mean.items())
    filled = [open(place, device="cpu").fill("w1 w2 [MASK]") for place in (folder / "average", folder)]
    assert filled[0] != filled[1]


def test_a_mean_of_the_last_steps_is_left_and_validated(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    """Of steps 2 and 4; what a validation says of it is what one says of the folder; resumed, it is the same."""
    tail = "average={last=0.75,every=2}"
    folder = pretrain(str(recipe("tail", steps=4, save=1, keep=9, validate=1)), [tail])
    weights = [read_weights(folder / "checkpoints" / f"step-{n:09d}" / "model.safetensors") for n in (2, 4)]
    mean = read_weights(folder / "average" / "model.safetensors")
    for name, value in mean.items():
        assert torch.allclose(value, (weights[0][name] + weights[1][name]) / 2, atol=1e-6), name
    facts = files.read_json(folder / "scores.json")
    lines = [line for line in read(folder / "metrics.jsonl") if "validation" in line]
    assert ["validation_average" in line for line in lines] == [False, True, True, True]
    assert lines[1]["validation_average"] == lines[1]["validation"] != lines[3]["validation"]
    assert f"; average of weights {facts['validation_average']:.4f}" in capsys.readouterr().err
    again = pretrain(
        str(recipe("other", steps=1, init=str(folder / "average"))),
        ["phase.learning_rate=1e-12", "phase.warmup=0", "save=0"],
    )
    beginning = files.read_json(again / "scores.json")["validation_before"]
    assert beginning == pytest.approx(facts["validation_average"], abs=1e-6)
    for step in (3, 4):
        shutil.rmtree(folder / "checkpoints" / f"step-{step:09d}")
    pretrain(str(folder))
    resumed = read_weights(folder / "average" / "model.safetensors")
    assert all(torch.equal(resumed[name], value) for name, value in mean.items())
    assert files.read_json(folder / "scores.json")["validation_average"] == facts["validation_average"]


def test_layers_learn_at_rates_of_their_own(recipe: Recipe) -> None:
    job = job_of(recipe(), "layer_decay=0.5", 'group=[{match = "words", rate = 0.0}]')
    before = job.objective.model.words.weight.detach().clone()
    places = job.objective.model.get_parameter("places.weight").detach().clone()
    learned(job, 1)
    assert torch.equal(job.objective.model.words.weight, before)
    assert not torch.equal(job.objective.model.get_parameter("places.weight"), places)
    rates = {name: group["lr"] for group in job.optimizer.param_groups for name in group["names"]}
    assert rates["model.blocks.1.up.weight"] == pytest.approx(1e-3 * 0.5**2)
    assert rates["head.bias"] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("layout", "batch", "length", "world", "micro"),
    [
        (Layout(), 4, 100_000, 1, 1),  # a row longer than what is held at a time
        (Layout(), 6, 8, 1, 6),
        (Layout(), 60, 1024, 1, 6),  # the most of 8 that divides it
        (Layout(), 60, 1024, 6, 5),
        (Layout(micro=(3, 2)), 60, 8, 2, 2),  # the second phase's own
    ],
)
def test_as_many_rows_at_a_time_as_fit(layout: Layout, batch: int, length: int, world: int, micro: int) -> None:
    phase = Phase(steps=1, length=length, batch=batch, learning_rate=1.0)
    share = layout.share(phase, 2, "cpu", world - 1, world)
    assert (share.batch, share.micro, share.rank, share.world) == (batch, micro, world - 1, world)


@pytest.mark.parametrize(
    ("layout", "batch", "said"),
    [
        (Layout(), 10, "wanted a multiple of the 4 devices; use 8 or 12, or 2 devices"),
        (Layout(tensor=2), 10, "wanted a multiple of 4, for 8 devices in groups of 2; use 8 or 12, or 4 devices"),
        (Layout(), 3, "wanted a multiple of the 4 devices; use 4, or 3 devices"),
        (Layout(micro=4), 20, "not a multiple of micro 4 x 4 devices = 16; use 16 or 32, or layout.micro=1"),
    ],
)
def test_a_batch_that_cannot_be_cut_names_those_that_can(layout: Layout, batch: int, said: str) -> None:
    with pytest.raises(RecipeError) as told:
        layout.share(Phase(steps=1, length=8, batch=batch, learning_rate=1.0), 1, "cpu", 0, 4)
    assert str(told.value).endswith(said)


@pytest.mark.parametrize(
    ("layout", "world", "said"),
    [
        (Layout(reduce="bf16"), 1, ["1 x 1 x 1"]),
        (
            Layout(reduce="bf16"),
            2,
            ["2 x 1 x 1", "copies sum gradients during the backward pass", "gradients travel in bf16"],
        ),
        (Layout(overlap=False), 2, ["2 x 1 x 1", "copies sum gradients after the backward pass"]),
        (
            Layout(tensor=2),
            4,
            ["2 x 1 x 2", "copies sum gradients after the backward pass", "layers split, rows between them too"],
        ),
        (
            Layout(shard=2, reshard=False),
            4,
            ["2 x 2 x 1", "weights split, over copies, kept between forward and backward"],
        ),
        (Layout(shard=2, recompute=True), 2, ["1 x 2 x 1", "weights split", "recompute"]),
    ],
)
def test_a_mesh_in_words(layout: Layout, world: int, said: list[str]) -> None:
    mesh, *more = said
    assert layout.describe(world) == "; ".join([f"{mesh} (replicate x shard x tensor)", *more])


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("replicate", (0,), (-1,)),
        ("shard", (1,), (0,)),
        ("tensor", (1,), (0,)),
        ("divisible", (1, 1 << 20), (0, 1 << 21)),
        ("threads", (0, 1024), (-1, 1025)),
        ("workers", (-1, 1024), (-2, 1025)),
        ("scale", (1.0,), (0.9,)),
        ("scale_window", (0, 1), (-1,)),
        ("patience", (1.0, 1e8), (0.9, 2e8, float("inf"))),
        ("micro", (0, (1, 0)), (-1, ())),
        ("device", ("cuda:12",), ("cuda:", "gpu", "cuda:x", "cpu:0")),
    ],
)
def test_bounds(name: str, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        assert getattr(Layout(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(ValueError, match=f"^{name}: found "):
            Layout(**{name: value})


def test_what_16_bits_are() -> None:
    assert [Layout(precision=kind).half for kind in ("fp32", "tf32", "bf16", "fp16")] == [False, False, True, True]
    assert Layout(precision="fp16", exact=("norms",)).exact == ("norms",)
    with pytest.raises(ValueError, match=r"exact: found .* with tf32"):
        Layout(precision="tf32", exact=("norms",))
    assert Layout(tensor=1, compile=True).compile


def test_what_is_held_and_how_long_it_goes_in_words() -> None:
    line = "memory a rank: weights 1 kB, gradients 1 kB, moments 2 kB = 4 kB, and activations"
    assert RankMemory(1000, 2).lines == [line]
    phase = Phase(epochs=2.5, steps=0, length=1, batch=4, learning_rate=1.0)
    told = arithmetic(phase, 3, Layout(micro=2).share(phase, 1, "cpu", 0, 2))
    assert told == "phase 3: 2.5 epochs of 4 rows x 1 token; batch = micro 2 x accumulation 1 x devices 2"
    bound = dataclasses.replace(phase, max_steps=7)
    told = arithmetic(bound, 1, Layout().share(bound, 1, "cpu", 0, 1))
    assert told.startswith("phase 1: 2.5 epochs or 7 steps, whichever is less, of 4 rows x 1 token;")
    assert Layout(replicate=2, shard=3, tensor=4).meant() == 24
    assert Layout(shard=3).meant() == 3


def test_an_elmo_has_nothing_to_compile() -> None:
    with pytest.raises(
        RecipeError, match=r"layout.compile: found true, but the gradients of elmo's layers are written by h"
    ):
        Layout(compile=True).check(elmo.Elmo(), [8], 1)
    Layout(compile=True).check(bert.Bert(), [8], 1)
    Layout(tensor=2, sequence=False).check(bert.Bert(width=64, heads=2), [7], 2)
    with pytest.raises(RecipeError, match="does not divide the model's 63 inner; it can be 1, 3, 7, 9, 21, 63"):
        Layout(tensor=2).check(bert.Bert(width=64, heads=2, inner=63), [8], 2)


def test_what_became_of_a_layout_in_words() -> None:
    layout = Layout(replicate=2, shard=2, micro=(8, 12))
    said = "its layout on 1 process: 2 x 2 x 1 became 1 x 1 x 1"
    assert layout.fitted(PHASES, 1, asked=set()) == (dataclasses.replace(layout, replicate=0, shard=1), said)
    found, said = Layout(micro=8).fitted(PHASES, 4, asked=set())
    assert (found.micro, said) == ((2, 3), "its layout on 4 processes: micro [2, 3]")
    found, said = Layout(shard=2, micro=8).fitted(PHASES[:1], 1, asked=set())
    assert (found.micro, said) == (8, "its layout on 1 process: any x 2 x 1 became 1 x 1 x 1")
    assert Layout(micro=8).fitted(PHASES[:1], 2, asked=set())[0].micro == 4


def test_a_micro_batch_for_every_phase() -> None:
    layout = Layout(micro=(2, 3))
    assert [layout.micro_of(number) for number in (1, 2)] == [2, 3]
    with pytest.raises(RecipeError, match=r"layout.micro: found 2 numbers; wanted 3 or more"):
        layout.micro_of(3)


def test_a_site_s_file_has_a_layout(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("[layout]\nmicro = 2\n")
    assert site_layout(str(tmp_path / "site.toml")) == {"micro": 2}
    (tmp_path / "site.toml").write_text('title = "nothing"\n')
    with pytest.raises(RecipeError, match=r"has no \[layout\] and no \[\[partition\]\]; wanted the settings"):
        site_layout(str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("layout = 3\n")
    with pytest.raises(RecipeError, match=r"layout: found 3; wanted a table"):
        site_layout(str(tmp_path / "site.toml"))


def test_tokens_say_how_many_rows_a_device_holds() -> None:
    """Where `micro` does not."""
    phase = Phase(steps=1, length=128, batch=64, learning_rate=1e-3)
    assert Layout(tokens=1024).share(phase, 1, "cpu").micro == 8
    assert Layout(tokens=1024, micro=4).share(phase, 1, "cpu").micro == 4
    assert Layout(tokens=100).share(phase, 1, "cpu").micro == 1
    with pytest.raises(ValueError, match="tokens: found -1; wanted 0 or more"):
        Layout(tokens=-1)

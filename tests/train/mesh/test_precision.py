"""Precision: what each device may do, what stays exact, and the factor by which fp16 keeps small gradients."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kit.makers import job_of, learned
from ordsmed.base.errors import RecipeError, RunError, Trouble
from ordsmed.base.run import Run
from ordsmed.nn.loss import token_loss
from ordsmed.nn.packed_layers import CastWeights, HalfLayer, lacks_bf16
from ordsmed.train import checkpoint
from ordsmed.train.mesh import precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import Scaler
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain

long = pytest.mark.long

Recipe = Callable[..., Path]
KINDS = [("bert", "mlm"), ("gpt2", "clm")]
STILL = ("model.dropout=0.0", "model.attention_dropout=0.0")
FP16 = 'layout.precision="fp16"'


@pytest.fixture(autouse=True)
def products_as_they_were() -> Iterator[None]:
    yield
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [line for line in read(folder / "metrics.jsonl") if "validation" not in line]


# what is learned


@long
@pytest.mark.parametrize(("kind", "objective"), KINDS)
@pytest.mark.parametrize("how", ["bf16", "fp16"])
@pytest.mark.parametrize("exact", [[], ["embeddings", "norms", "types"]])
def test_sixteen_bits_learn_almost_the_same(
    recipe: Recipe, kind: str, objective: str, how: str, exact: list[str]
) -> None:
    path = recipe(kind=kind, objective=objective)
    words = [f'layout.precision="{how}"', f"layout.exact={json.dumps(exact)}", "layout.scale=1024.0"]
    plain, half = (np.asarray(learned(job_of(path, *STILL, *more), 8)) for more in ([], words))
    assert np.allclose(plain, half, rtol=0.05)
    assert not np.array_equal(plain, half)


@pytest.mark.parametrize("how", ["bf16", "fp16"])
def test_weights_gradients_and_moments_are_fp32(recipe: Recipe, how: str) -> None:
    job = job_of(recipe(), f'layout.precision="{how}"', "layout.scale=1024.0")
    gradients: set[torch.dtype] = set()
    for part in job.parts:
        part.local.register_post_accumulate_grad_hook(lambda weight: gradients.add(weight.grad.dtype))
    learned(job, 1)
    kept = {value.dtype for state in job.optimizer.state.values() for value in state.values()}
    assert gradients == kept == {part.local.dtype for part in job.parts} == {torch.float32}


@pytest.mark.parametrize("offset", [0.0, 14.0, 50.0, -30.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_slopes_of_high_and_low_scores_do_not_run_over(offset: float, dtype: torch.dtype) -> None:
    """exp(14) is more than fp16 holds, exp(-30) less."""
    chance = torch.Generator().manual_seed(0)
    hidden, table = (torch.randn(n, 16, generator=chance).to(dtype).float() for n in (6, 40))
    found = []
    for kind in (torch.float32, dtype):
        inputs = hidden.to(kind, copy=True).requires_grad_(), table.clone().requires_grad_(), torch.full((40,), offset)
        token_loss(*inputs, torch.arange(6), torch.ones(6)).backward()
        found.append([x.grad.float() for x in inputs[:2]])
    for exact, rough in zip(*found, strict=True):
        assert float((exact - rough).norm() / exact.norm()) < (0.003 if dtype == torch.float16 else 0.02)


# what stays exact


def dtypes(path: Path, exact: list[str]) -> dict[str, torch.dtype]:
    """In which precision embeddings, norms and products leave."""
    job = job_of(path, 'layout.precision="bf16"', f"layout.exact={json.dumps(exact)}")
    seen: dict[str, torch.dtype] = {}
    for name, module in job.objective.named_modules():
        if isinstance(module, nn.Embedding | nn.LayerNorm | nn.Linear):
            module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out.dtype))
    batch = job.rows(0).batch(np.arange(2))
    with precision.autocast(job.recipe.layout, job.ranks.device):
        hidden = job.objective.model(batch.tokens, batch.positions, batch.documents, torch.zeros_like(batch.tokens))
        job.objective.head.transform(hidden)
    return seen


@pytest.mark.parametrize(("kind", "objective"), KINDS)
@pytest.mark.parametrize(
    ("exact", "names"),
    [
        (["norms"], ("norm",)),
        (["embeddings"], ("words", "places")),
        (["types"], ("types",)),
        (["embeddings", "norms", "types"], ("words", "places", "types", "norm")),
    ],
)
def test_exact_changes_what_it_says_and_nothing_else(
    recipe: Recipe, kind: str, objective: str, exact: list[str], names: tuple[str, ...]
) -> None:
    path = recipe(kind=kind, objective=objective)
    none, some = dtypes(path, []), dtypes(path, exact)
    assert set(none.values()) == {torch.bfloat16}
    assert none.keys() == some.keys()
    assert {name.rpartition(".")[2] for name in none} >= {"norm", "words", "places", "gather", "up"}
    for name, dtype in some.items():
        kept = name.rpartition(".")[2].removeprefix("attention_") in names
        assert dtype == (torch.float32 if kept else torch.bfloat16), name


def test_a_norm_is_exact_to_the_last_bit_where_asked(recipe: Recipe) -> None:
    job = job_of(recipe(), 'layout.precision="bf16"', 'layout.exact=["norms"]')
    x = torch.randn(4, 32) * 100
    with precision.autocast(job.recipe.layout, job.ranks.device):
        found = job.objective.model.norm(x)
    assert torch.equal(found, nn.functional.layer_norm(x, (32,), eps=job.recipe.model.epsilon))


@pytest.mark.parametrize("how", ["fp32", "tf32"])
def test_exact_without_sixteen_bits_is_refused(recipe: Recipe, how: str) -> None:
    with pytest.raises(RecipeError, match=r"exact: found .* wanted bf16 or fp16"):
        job_of(recipe(), f'layout.precision="{how}"', 'layout.exact=["norms"]')


# fp16's factor


@pytest.mark.parametrize(("kind", "objective"), KINDS)
def test_an_infinite_gradient_skips_the_step_and_halves_the_factor(recipe: Recipe, kind: str, objective: str) -> None:
    job = job_of(recipe(kind=kind, objective=objective), FP16, "layout.scale=1e38")
    before = [part.local.detach().clone() for part in job.parts]
    ((loss, norm),) = learned(job, 1)
    assert math.isfinite(loss)
    assert not math.isfinite(norm)
    assert job.scaler.factor == 5e37
    assert all(torch.equal(was, part.local) for was, part in zip(before, job.parts, strict=True))
    assert not job.optimizer.state
    assert all(part.local.grad is None for part in job.parts)


def test_one_infinite_number_among_good_steps(recipe: Recipe) -> None:
    """The step after it is as if it had not been: the moments too."""
    clean, hurt = (job_of(recipe(), FP16, "layout.scale=1024.0", *STILL) for _ in range(2))
    learned(clean, 3)
    learned(hurt, 3)
    handle = hurt.objective.model.blocks[0].up.weight.register_hook(lambda grad: grad * torch.inf)
    kept = [{k: v.clone() for k, v in hurt.optimizer.state[part.local].items()} for part in hurt.parts]
    learned(hurt, 1)
    handle.remove()
    assert hurt.scaler.factor == 512
    for one, two, was in zip(clean.parts, hurt.parts, kept, strict=True):
        assert torch.equal(one.local, two.local), one.name
        assert all(torch.equal(was[k], v) for k, v in hurt.optimizer.state[two.local].items())


@long
def test_the_metrics_tell_the_factor_and_no_norm_of_a_skipped_step(recipe: Recipe) -> None:
    folder = pretrain(str(recipe(steps=40, save=0, validate=0)), [FP16, "layout.scale=1e9"])
    texts = (folder / "metrics.jsonl").read_text().splitlines()
    assert '"norm": null' in texts[0]
    lines = [json.loads(text) for text in texts if '"norm"' in text]
    assert (lines[0]["norm"], lines[0]["scale"]) == (None, 5e8)
    for before, line in itertools.pairwise(lines):
        assert line["scale"] == before["scale"] / (2 if line["norm"] is None else 1)
    assert lines[-1]["norm"] > 0
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert all(math.isfinite(line["loss"]) for line in lines)


@long
def test_without_fp16_no_factor_is_told(recipe: Recipe) -> None:
    folder = pretrain(str(recipe(steps=2)))
    assert all("scale" not in line and line["norm"] > 0 for line in lines_of(folder))


@long
def test_the_factor_doubles_after_a_window_of_good_steps(recipe: Recipe) -> None:
    folder = pretrain(str(recipe(steps=9)), [FP16, "layout.scale=64.0", "layout.scale_window=3"])
    assert [line["scale"] for line in lines_of(folder)] == [64, 64, 128, 128, 128, 256, 256, 256, 512]


def test_each_window_of_good_steps_doubles_the_factor() -> None:
    scaler, factors = Scaler(8.0, 3), []
    for _ in range(9):
        assert scaler.accept(torch.tensor(1.0), "")
        factors.append(scaler.factor)
    assert factors == [8, 8, 16, 16, 16, 32, 32, 32, 64]


def test_an_overflow_begins_the_window_anew() -> None:
    scaler, good, bad = Scaler(8.0, 3), torch.tensor(1.0), torch.tensor(torch.nan)
    assert [scaler.accept(norm, "") for norm in (good, good, bad, good, good)] == [True, True, False, True, True]
    assert scaler.factor == 4
    assert scaler.accept(good, "")
    assert scaler.factor == 8


@long
@pytest.mark.parametrize("window", [3, 5])
def test_the_factor_survives_a_checkpoint(recipe: Recipe, window: int) -> None:
    """Inside a window: the good steps so far count too."""
    words = [FP16, "layout.scale=64.0", f"layout.scale_window={window}", "keep=9"]
    whole, cut = (pretrain(str(recipe(name, steps=12)), words) for name in ("whole", "cut"))
    for later in checkpoint.steps(cut / "checkpoints"):
        if later > 4:
            shutil.rmtree(cut / "checkpoints" / f"step-{later:09d}")
    state = json.loads((cut / "checkpoints/step-000000004/state.json").read_text())
    assert state["scaler"] == {"factor": 128.0 if window == 3 else 64.0, "good": 4}
    Run(cut).set(state="running")
    pretrain(str(cut))
    ours, theirs = lines_of(cut), lines_of(whole)
    assert [(x["loss"], x["norm"], x["scale"]) for x in ours] == [(x["loss"], x["norm"], x["scale"]) for x in theirs]


def test_the_factor_changes_nothing_that_is_learned(recipe: Recipe) -> None:
    one, other = (learned(job_of(recipe(), FP16, f"layout.scale={s}", *STILL), 6) for s in ("256.0", "2048.0"))
    assert np.allclose(one, other, rtol=5e-3)


def test_gradients_that_are_no_numbers_at_the_smallest_factor_end_the_run() -> None:
    scaler, bad = Scaler(4.0, 10), torch.tensor(torch.inf)
    assert [scaler.accept(bad, "phase 1, step 7") for _ in range(2)] == [False, False]
    assert scaler.factor == precision.LEAST_SCALE
    with pytest.raises(RunError, match=r"phase 1, step 7: gradients contain NaN or Inf at the smallest scale"):
        scaler.accept(bad, "phase 1, step 7")


def test_a_fixed_factor_stays_and_a_gradient_that_runs_over_is_told() -> None:
    layout = Layout(precision="fp16", scale=128.0, scale_window=0)
    scaler = Scaler.of(layout)
    assert all(scaler.accept(torch.tensor(1.0), "") for _ in range(5))
    assert (scaler.factor, scaler.describe(), scaler.state()["factor"]) == (128.0, {"scale": 128.0}, 128.0)
    scaler.restore({"factor": 4.0, "good": 9})  # of a run that was begun otherwise
    assert scaler.factor == 128.0
    with pytest.raises(
        Trouble, match=r"step 7: gradients contain NaN or Inf at the fixed scale 128; .*smaller `layout.scale`"
    ):
        scaler.accept(torch.tensor(torch.inf), "phase 1, step 7")
    assert "scaled by 128 throughout" in precision.set_up(layout, torch.device("cpu"))
    assert "throughout" not in precision.set_up(Layout(precision="fp16"), torch.device("cpu"))


@long
def test_an_overflow_is_no_trouble_for_the_guard(recipe: Recipe) -> None:
    words = [FP16, "layout.scale=1e9", 'trouble.action="skip"']
    folder = pretrain(str(recipe(steps=30, save=0, validate=0)), words)
    assert len(lines_of(folder)) == 30
    assert not Run(folder).status.get("left_out")


# what a device may do


def pretended(monkeypatch: pytest.MonkeyPatch, name: str, arch: tuple[int, int], *, amd: bool = False) -> torch.device:
    """A GPU that is not there."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: arch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: name)
    monkeypatch.setattr(torch.version, "hip", "6.2" if amd else None)
    return torch.device("cuda")


P100, V100, A100 = ("Tesla P100", (6, 0)), ("Tesla V100", (7, 0)), ("NVIDIA A100", (8, 0))


@pytest.mark.parametrize("how", ["tf32", "bf16"])
@pytest.mark.parametrize("gpu", [P100, V100])
def test_old_gpus_refuse_tf32_and_bf16(monkeypatch: pytest.MonkeyPatch, gpu: Any, how: str) -> None:
    device = pretended(monkeypatch, *gpu)
    with pytest.raises(RecipeError, match=rf"layout.precision: found {how}, which {gpu[0]} does not have; use .*fp16"):
        precision.set_up(Layout(precision=how), device)


@pytest.mark.parametrize(
    ("gpu", "how"), [(g, h) for g in (P100, V100, A100) for h in ("fp32", "fp16")] + [(A100, "tf32"), (A100, "bf16")]
)
def test_what_a_gpu_can_do_is_done(monkeypatch: pytest.MonkeyPatch, gpu: Any, how: Any) -> None:
    said = precision.set_up(Layout(precision=how), pretended(monkeypatch, *gpu))
    assert said.lower().startswith(f"precision: {how}")
    assert torch.backends.cuda.matmul.allow_tf32 == (how == "tf32")
    assert torch.backends.cudnn.allow_tf32 == (how == "tf32")
    if torch.__version__ >= torch.torch_version.TorchVersion("2.9"):  # of which on it has a name beside the switch
        assert torch.backends.cuda.matmul.fp32_precision == ("tf32" if how == "tf32" else "ieee")


def test_tf32_is_switched_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    device = pretended(monkeypatch, *A100)
    precision.set_up(Layout(precision="tf32"), device)
    precision.set_up(Layout(precision="bf16"), device)
    assert not torch.backends.cuda.matmul.allow_tf32


def test_amd_has_bf16_but_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    device = pretended(monkeypatch, "AMD Instinct MI250X", (9, 0), amd=True)
    assert precision.set_up(Layout(precision="bf16"), device).startswith("precision: bf16")
    assert "bf16 is faster on AMD Instinct MI250X" in precision.set_up(Layout(precision="fp32"), device)
    with pytest.raises(RecipeError, match="found tf32, which AMD Instinct MI250X does not have"):
        precision.set_up(Layout(precision="tf32"), device)


def test_a_cpu_has_no_tf32() -> None:
    with pytest.raises(RecipeError, match="found tf32, which a CPU does not have"):
        precision.set_up(Layout(precision="tf32"), torch.device("cpu"))


@pytest.mark.parametrize(
    ("gpu", "how", "told"),
    [
        (P100, "fp32", "precision: fp32 (Tesla P100 has no 16-bit units)"),
        (V100, "fp32", "(set by the recipe; fp16 is faster on Tesla V100)"),
        (A100, "fp32", "(set by the recipe; bf16 or tf32 is faster on NVIDIA A100)"),
        (A100, "tf32", "(set by the recipe; bf16 is faster on NVIDIA A100)"),
        (A100, "fp16", "(bf16 is as fast on NVIDIA A100 and needs no scaling)"),
        (V100, "fp16", "loss scaled by 65,536; outputs of embeddings and norms in 16 bits"),
    ],
)
def test_what_is_used_is_told_and_why_nothing_faster(
    monkeypatch: pytest.MonkeyPatch, gpu: Any, how: Any, told: str
) -> None:
    said = precision.set_up(Layout(precision=how), pretended(monkeypatch, *gpu))
    assert said.endswith(told)
    assert "\n" not in said


@long
def test_a_run_tells_its_precision(recipe: Recipe) -> None:
    words = ['layout.precision="bf16"', 'layout.exact=["norms", "types"]']
    log = (pretrain(str(recipe(steps=2)), words) / "log.txt").read_text()
    assert "precision: bf16 products, fp32 weights; fp32 kept for norms, types\n" in log
    log = (pretrain(str(recipe("exact", steps=2))) / "log.txt").read_text()
    assert re.search(r"precision: fp32 \((16 bits are slower on most CPUs|set by the recipe, or bf16 .*)\)\n", log)


@pytest.mark.parametrize(
    ("tiles", "half", "told"),
    [
        (True, True, "set by the recipe, or bf16 was less than a fifth faster on this CPU with AMX"),
        (False, True, "set by the recipe, or bf16 was less than a fifth faster on this CPU with AVX512_BF16"),
        (False, False, "16 bits are slower on most CPUs"),
    ],
)
def test_a_cpu_in_fp32_is_told_what_would_be_faster(monkeypatch, tiles: bool, half: bool, told: str) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: half)
    assert precision.set_up(Layout(precision="fp32"), torch.device("cpu")) == f"precision: fp32 ({told})"
    said = precision.set_up(Layout(precision="bf16"), torch.device("cpu"))
    assert said == "precision: bf16 products, fp32 weights; outputs of embeddings and norms in 16 bits"
    assert precision.set_up(Layout(precision="bf16", exact=("types",)), torch.device("cpu")).endswith(
        "bf16 products, fp32 weights; fp32 kept for types"
    )


def test_norms_without_biases_and_out_of_autocast() -> None:
    layout, x = Layout(precision="bf16"), torch.randn(5, 8)
    network = nn.Sequential(nn.LayerNorm(8, bias=False), nn.LayerNorm(8, 0.5))
    plain = [layer(x) for layer in network]
    precision.return_half(network, Layout())
    assert all(torch.equal(layer(x), wanted) for layer, wanted in zip(network, plain, strict=True))
    precision.return_half(network, layout)
    assert all(torch.equal(layer(x), wanted) for layer, wanted in zip(network, plain, strict=True))
    with precision.autocast(layout, torch.device("cpu")):
        for layer, wanted in zip(network, plain, strict=True):
            found = layer(x)
            assert found.dtype == torch.bfloat16
            assert torch.allclose(found.float(), wanted, atol=0.03)
    with precision.autocast(Layout(), torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")


def test_a_factor_is_kept_where_there_is_one() -> None:
    of_half, none = Scaler.of(Layout(precision="fp16", scale=64.0, scale_window=5)), Scaler.of(Layout())
    assert (of_half.factor, of_half.window, of_half.describe(), of_half.state()) == (
        64.0,
        5,
        {"scale": 64.0},
        {"factor": 64.0, "good": 0},
    )
    of_half.restore({})
    assert of_half.factor == 64.0
    of_half.restore({"factor": 8.0, "good": 4})
    assert of_half.accept(torch.tensor(1.0), "")
    assert of_half.factor == 16.0
    assert (none.factor, none.describe(), none.state()) == (1.0, {}, {})
    none.restore({"factor": 8.0, "good": 4})
    assert none.factor == 1.0
    assert none.accept(torch.tensor(torch.inf), "")
    low = Scaler(1.5, 10)
    assert not low.accept(torch.tensor(torch.inf), "")
    assert low.factor == precision.LEAST_SCALE


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(self.up(self.norm(x)).tanh())
        return out


@pytest.mark.parametrize("frozen", [(), ("up.weight", "norm.bias")])
@pytest.mark.parametrize("norms", [True, False])
def test_weights_cast_at_once_learn_what_those_cast_one_by_one_do(norms: bool, frozen: tuple[str, ...]) -> None:
    """The same bits forward and back; what does not learn stays so, and out of autocast nothing is cast."""
    layout, x = Layout(precision="bf16", exact=() if norms else ("norms",)), torch.randn(3, 8)
    found = []
    for together in (False, True):
        torch.manual_seed(0)
        block = Small()
        for name, weight in block.named_parameters():
            weight.requires_grad_(name not in frozen)
        precision.return_half(block, layout)
        if together:
            precision.cast_at_once(block, torch.bfloat16, norms=norms)
        plain = block(x)
        with precision.autocast(layout, torch.device("cpu")):
            out = block(x)
        out.float().square().sum().backward()
        assert all(p.dtype == torch.float32 for p in block.parameters())
        gradients = [p.grad for p in block.parameters()]
        assert [gradient is None for gradient in gradients] == [name in frozen for name, _ in block.named_parameters()]
        found.append([plain, out, *(gradient for gradient in gradients if gradient is not None)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_block_that_fails_has_its_own_weights_again() -> None:
    block = Small()
    precision.cast_at_once(block, torch.bfloat16, norms=True)
    with precision.autocast(Layout(precision="bf16"), torch.device("cpu")), pytest.raises(RuntimeError):
        block(torch.zeros(3, 7))
    assert block.up.weight.dtype == torch.float32
    assert isinstance(block.up.weight, nn.Parameter)


def test_weights_of_layers_are_cast_once_and_lie_as_they_were_after() -> None:
    network = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False))
    own, cast, held = dict(network.named_parameters()), CastWeights(), []
    for _ in range(2):
        with cast.within(network, torch.device("cpu"), torch.float16):
            assert torch.is_autocast_enabled("cpu")
            held.append([layer._parameters["weight"] for layer in network])
    whole, half = torch.float32, torch.float16
    assert [weight.dtype for weight in held[0]] == [whole, half, whole, half]
    assert all(one is other for one, other in zip(*held, strict=True))
    with pytest.raises(ZeroDivisionError), cast.within(network, torch.device("cpu"), torch.float16):
        raise ZeroDivisionError
    assert all(value is own[name] for name, value in network.named_parameters())
    with cast.within(network, torch.device("cpu"), torch.bfloat16):
        layers = [network[1], network[3]]
        if lacks_bf16(torch.device("cpu")):
            assert [layer._parameters["weight"].dtype for layer in layers] == [torch.bfloat16] * 2
        else:
            assert all(isinstance(vars(layer)["forward"], HalfLayer) for layer in layers)
    assert not any("forward" in vars(layer) for layer in network)

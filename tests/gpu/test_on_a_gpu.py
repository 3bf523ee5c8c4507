"""What is true on a CPU is true on a GPU: precisions, compiled blocks, NCCL, checkpoints, dropout, loader, auto."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch import nn

from kit.makers import build
from ordsmed.base import run
from ordsmed.base.machine.speed import measured_peak
from ordsmed.base.ranks import Ranks, init_mesh, prepare
from ordsmed.base.run import Run
from ordsmed.data.loader import load
from ordsmed.measure.bench.bench import bench
from ordsmed.nn.attention import SelfAttention, lower
from ordsmed.nn.dropout import Dropout, begin_micro_batch
from ordsmed.nn.kernels import switch
from ordsmed.nn.model import Block
from ordsmed.nn.varlen import EndToEnd, bounds
from ordsmed.train import auto, checkpoint, loop
from ordsmed.train.job import Job
from ordsmed.train.mesh import parallel, precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.parallel import Parallel
from ordsmed.train.mesh.replicas import Replicas
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining

DEVICE, BACKEND = "cuda", "cpu:gloo,cuda:nccl"
KINDS = ("bert", "gpt2")
Recipe = Callable[..., Path]

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine"),
    pytest.mark.filterwarnings("default"),  # torch advises much about kernels, otherwise in every version
]
needs_bf16 = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0), reason="this GPU has no bf16 or TF32"
)


def job_of(path: Path, *overrides: str, device: str = DEVICE, ranks: Ranks | None = None) -> Job:
    asked, _ = run.load(Pretraining, str(path), [f'layout.device="{device}"', *overrides])
    return build(asked, ranks or prepare(device, 1))


def learned(job: Job, steps: int = 10) -> list[tuple[float, float]]:
    """Loss and gradient norm of the first steps."""
    found = []
    job.carry(0)
    ready = load(job.rows(0), job.share(0), 0, steps, workers=0, device=job.ranks.device)
    for inner, batches in enumerate(ready):
        sums, norm, why = loop.train_step(job, batches, 1e-3, 0, inner)
        assert not why
        found.append((sum(float(v) for v in sums.values()), float(norm)))
    return found


def trained(path: Path, *overrides: str, device: str = DEVICE, steps: int = 10) -> list[tuple[float, float]]:
    return learned(job_of(path, *overrides, device=device), steps)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [line for line in read(folder / "metrics.jsonl") if "validation" not in line]


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(line["loss"], line["norm"]) for line in lines_of(folder)]


def cut_back(folder: Path, step: int) -> None:
    """As if the run had been killed after this checkpoint."""
    for later in checkpoint.steps(folder / "checkpoints"):
        if later > step:
            shutil.rmtree(folder / "checkpoints" / f"step-{later:09d}")
    Run(folder).set(state="running")


# precisions


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("how", "bound"),
    [
        ("fp32", 1e-4),
        pytest.param("tf32", 1e-2, marks=needs_bf16),
        pytest.param("bf16", 5e-2, marks=needs_bf16),
        ("fp16", 5e-2),
    ],
)
def test_every_precision_agrees_with_fp32_on_the_cpu(recipe: Recipe, kind: str, how: str, bound: float) -> None:
    exact = np.asarray(trained(recipe(kind=kind), device="cpu"))
    found = np.asarray(trained(recipe(kind=kind), f'layout.precision="{how}"', "layout.scale=1024.0"))
    assert np.isfinite(found).all()
    assert np.allclose(found[:, 0], exact[:, 0], rtol=bound)
    assert np.allclose(found[:, 1], exact[:, 1], rtol=max(bound, 1e-3))


@pytest.mark.parametrize(("lstm", "clip"), [("exact", 0.0), ("exact", 0.3), ("fast", 0.0)])
@pytest.mark.parametrize(("how", "bound"), [("fp32", 1e-4), pytest.param("bf16", 5e-2, marks=needs_bf16)])
def test_elmo_agrees_with_the_cpu(elmo: Recipe, lstm: str, clip: float, how: str, bound: float) -> None:
    """Letters, both cells and the sampled softmax; without clipping either cell is that of the CPU."""
    exact = np.asarray(trained(elmo(clip=clip), device="cpu"))
    found = np.asarray(trained(elmo("other", lstm, clip), f'layout.precision="{how}"'))
    assert np.allclose(found[:, 0], exact[:, 0], rtol=bound)
    assert np.allclose(found[:, 1], exact[:, 1], rtol=max(bound, 1e-3))


@pytest.mark.parametrize("lstm", ["exact", "fast"])
def test_elmo_goes_on_with_the_same_bits(elmo: Recipe, lstm: str) -> None:
    """Its states are carried through a checkpoint; rows come from processes that make them ahead."""
    path = elmo(lstm=lstm)
    folder = pretrain(str(path), [f'layout.device="{DEVICE}"', "layout.deterministic=true", "layout.workers=2"])
    whole = losses(folder)
    cut_back(folder, 4)
    pretrain(str(folder))
    assert losses(folder) == whole


@pytest.mark.parametrize("micro", [2, 4])
def test_accumulation_changes_nothing(recipe: Recipe, micro: int) -> None:
    assert np.allclose(trained(recipe()), trained(recipe(), f"layout.micro={micro}"), rtol=1e-4)


@needs_bf16
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_our_kernels_learn_what_torchs_do(recipe: Recipe, kind: str, precision: str) -> None:
    pytest.importorskip("triton")
    plain, ours = (
        trained(recipe(kind=kind), f'layout.kernels="{how}"', f'layout.precision="{precision}"')
        for how in ("plain", "auto")
    )
    assert all(switch.runs(kernel, torch.device("cuda")) for kernel in ("cross_entropy", "gelu", "residual_norm"))
    assert ours == [pytest.approx(step, rel=1e-4 if precision == "fp32" else 3e-2) for step in plain]


def test_our_kernels_read_elmo_as_torchs_do(elmo: Recipe) -> None:
    pytest.importorskip("triton")
    plain, ours = (trained(elmo(clip=3.0), f'layout.kernels="{how}"') for how in ("plain", "auto"))
    assert switch.runs("lstm", torch.device("cuda"))
    assert ours == [pytest.approx(step, rel=1e-4) for step in plain]


@needs_bf16
def test_tf32_is_used_when_asked_for_and_only_then() -> None:
    chance = torch.Generator().manual_seed(0)
    a, b = (torch.randn(1024, 1024, dtype=torch.float64, generator=chance) for _ in range(2))
    wanted, error = a @ b, {}
    for how in ("tf32", "fp32", "tf32", "fp32"):
        precision.set_up(Layout(precision=how), torch.device(DEVICE))
        found = (a.float().to(DEVICE) @ b.float().to(DEVICE)).double().cpu()
        error[how] = float((found - wanted).norm() / wanted.norm())
    assert error["fp32"] < 1e-5 < error["tf32"] < 1e-2


@pytest.mark.parametrize("exact", [(), ("norms",), ("embeddings",), ("embeddings", "norms")])
def test_what_stays_exact(recipe: Recipe, exact: tuple[str, ...]) -> None:
    job = job_of(recipe(), 'layout.precision="fp16"', f"layout.exact={json.dumps(list(exact))}", "layout.scale=1024.0")
    seen: dict[str, torch.dtype] = {}
    for name, module in job.objective.named_modules():
        if isinstance(module, nn.LayerNorm | nn.Embedding | nn.Linear):
            module.register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out.dtype))
    learned(job, 1)
    half, full = torch.float16, torch.float32
    assert seen["model.words"] == (full if "embeddings" in exact else half)
    assert {seen["model.norm"], seen["model.blocks.1.norm"]} == {full if "norms" in exact else half}
    assert {seen["model.blocks.0.up"], seen["head.dense"]} == {half}


@pytest.mark.parametrize("kind", KINDS)
def test_an_infinite_gradient_skips_the_step_and_halves_the_scale(recipe: Recipe, kind: str) -> None:
    job = job_of(recipe(kind=kind), 'layout.precision="fp16"', "layout.scale=1e38")
    before = [part.local.detach().clone() for part in job.parts]
    ((loss, norm),) = learned(job, 1)
    assert math.isfinite(loss)
    assert not math.isfinite(norm)
    assert job.scaler.factor == 5e37
    assert all(torch.equal(was, part.local) for was, part in zip(before, job.parts, strict=True))
    assert not job.optimizer.state


def test_a_scale_that_is_too_high_comes_down_by_itself(recipe: Recipe) -> None:
    words = ['layout.precision="fp16"', "layout.scale=1e9", f'layout.device="{DEVICE}"', "phase.steps=30"]
    folder = pretrain(str(recipe()), words)
    lines = lines_of(folder)
    assert lines[0]["norm"] is None
    assert lines[0]["scale"] == 5e8
    assert all(line["norm"] > 0 for line in lines[-5:])
    assert lines[-1]["loss"] < lines[0]["loss"]


# compiled blocks, recomputed blocks


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_blocks_equal_plain_ones(recipe: Recipe, kind: str) -> None:
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("torch.compile needs a C compiler")
    plain, compiled = trained(recipe(kind=kind)), trained(recipe(kind=kind), "layout.compile=true")
    assert np.allclose(np.asarray(plain)[:, 0], np.asarray(compiled)[:, 0], rtol=1e-4)


@needs_bf16
def test_compiled_blocks_in_bf16_recomputed_with_dropout_learn(recipe: Recipe) -> None:
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("torch.compile needs a C compiler")
    words = ["layout.compile=true", "layout.recompute=true", 'layout.precision="bf16"']
    plain, compiled = trained(recipe(dropout=0.1)), trained(recipe(dropout=0.1), *words)
    assert np.allclose(np.asarray(plain)[:, 0], np.asarray(compiled)[:, 0], rtol=0.1)  # other dice, the same text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("how", "bound"), [("fp32", 1e-4), pytest.param("bf16", 2e-2, marks=needs_bf16)])
def test_recomputing_draws_the_same_dropout_again(recipe: Recipe, kind: str, how: str, bound: float) -> None:
    words = [f'layout.precision="{how}"']  # in 16 bits by kernels for texts of any length
    plain = trained(recipe(kind=kind, dropout=0.2), *words)
    assert np.allclose(plain, trained(recipe(kind=kind, dropout=0.2), *words, "layout.recompute=true"), rtol=bound)
    assert not np.allclose(plain, trained(recipe(kind=kind), *words), rtol=bound)


# texts end to end, by torch's kernels for texts of any length


@needs_bf16
@pytest.mark.parametrize(("causal", "reach"), [(False, 0), (True, 0), (False, 5)])
def test_texts_end_to_end_see_what_a_mask_lets_them(causal: bool, reach: int) -> None:
    """Texts of several lengths in a row, in bf16, beside the definition in fp32 on the CPU: states and gradients."""
    parts = torch.tensor([[1] * 20 + [2] * 37 + [0] * 7, [1] * 64])
    torch.manual_seed(0)
    layer = SelfAttention(128, 2, 0.0, causal=causal)
    x, gradient = torch.randn(2, 64, 128), torch.randn(2, 64, 128)
    mask = parts[:, None, :, None] == parts[:, None, None, :]
    if causal:
        mask = mask & lower(64, mask.device)
    if reach:
        at = torch.arange(64)
        mask = mask & ((at[:, None] - at).abs() <= reach)
    states = []
    texts = EndToEnd(bounds(parts).to(DEVICE), 64, reach or None)
    for device, seen in (("cpu", mask), (DEVICE, texts)):
        own, given = copy.deepcopy(layer).to(device), x.detach().to(device).requires_grad_()
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            out = own(given, seen)
        out.backward(gradient.to(device, out.dtype))
        states.append([t.detach().float().cpu() for t in (out, given.grad, own.gather.weight.grad)])
    for one, other in zip(*states, strict=True):
        assert (one - other).norm() < 0.02 * one.norm()


@needs_bf16
def test_texts_end_to_end_with_dropout_are_themselves_in_the_mean() -> None:
    parts = torch.tensor([[1] * 20 + [2] * 44])
    texts, x = EndToEnd(bounds(parts).to(DEVICE), 44), torch.randn(1, 64, 128, device=DEVICE)
    layer = SelfAttention(128, 2, 0.3, causal=False).to(DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
        wanted, draws = layer.eval()(x, texts).float(), [layer.train()(x, texts).float() for _ in range(400)]
    assert (draws[0] - wanted).norm() > 0.05 * wanted.norm()
    assert (torch.stack(draws).mean(0) - wanted).norm() < 0.05 * wanted.norm()


# one rank in a process group: NCCL, FSDP2, sums of copies


@pytest.fixture
def group_of_one() -> Iterator[Ranks]:
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group(BACKEND, store=store, rank=0, world_size=1)
    try:
        yield init_mesh(dataclasses.replace(prepare(DEVICE, 1), store=store), (1, 1, 1))
    finally:
        dist.destroy_process_group()


def test_a_group_sums_what_lies_on_the_gpu_and_on_the_cpu(group_of_one: Ranks) -> None:
    two = dataclasses.replace(group_of_one, world=2)  # as if: so that it speaks
    for device in ("cpu", DEVICE):
        assert two.total(torch.tensor([1.5, 2.0], device=device, dtype=torch.float64)).tolist() == [1.5, 2.0]
    for device in ("cpu", DEVICE):
        tensor = torch.ones(3, device=device)
        dist.all_reduce(tensor)
        dist.broadcast(tensor, src=0)
        assert tensor.tolist() == [1.0] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["fp32", "fp16", pytest.param("bf16", marks=needs_bf16)])
def test_fsdp_over_one_rank_equals_plain(
    recipe: Recipe, group_of_one: Ranks, monkeypatch: pytest.MonkeyPatch, kind: str, how: str
) -> None:
    words = [f'layout.precision="{how}"', "layout.scale=1024.0"]
    plain = trained(recipe(kind=kind), *words)

    def split(objective: nn.Module, layout: Layout, ranks: Ranks) -> Parallel:
        blocks = [module for module in objective.modules() if isinstance(module, Block)]
        mesh = dist.init_device_mesh(DEVICE, (1,), mesh_dim_names=("shard",))
        parallel.split_weights(objective, blocks, layout, mesh)
        return Parallel()

    monkeypatch.setattr(parallel, "spread", split)
    job = job_of(recipe(kind=kind), *words, ranks=group_of_one)
    assert all(part.whole is not part.local for part in job.parts)
    job.parallel.replicas = Replicas(job.parts, group_of_one.data_group, overlap=False, reduce="fp32")
    assert np.allclose(plain, learned(job), rtol=1e-4 if how == "fp32" else 2e-2)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("reduce", "bound"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_copies_sum_their_gradients(
    recipe: Recipe, group_of_one: Ranks, monkeypatch: pytest.MonkeyPatch, overlap: bool, reduce: str, bound: float
) -> None:
    monkeypatch.setattr("ordsmed.train.mesh.replicas.BUCKET_BYTES", 4096)  # several buckets
    plain = trained(recipe(), "layout.micro=4")
    job = job_of(recipe(), "layout.micro=4", ranks=group_of_one)
    job.parallel.replicas = Replicas(job.parts, group_of_one.data_group, overlap=overlap, reduce=reduce)
    assert len(job.parallel.replicas.buckets) > 2
    assert np.allclose(plain, learned(job), rtol=bound)


# checkpoints


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("first", "then"), [(DEVICE, "cpu"), ("cpu", DEVICE)])
def test_a_run_goes_on_on_another_device(recipe: Recipe, kind: str, first: str, then: str) -> None:
    whole = pretrain(str(recipe("whole", kind)), [f'layout.device="{first}"', "layout.background=true"])
    folder = pretrain(str(recipe("cut", kind)), [f'layout.device="{first}"', "layout.background=true"])
    cut_back(folder, 4)
    pretrain(str(folder), [f'layout.device="{then}"'])
    assert [line["step"] for line in lines_of(folder)] == list(range(1, 13))
    assert np.allclose(losses(folder), losses(whole), rtol=1e-3)
    assert np.allclose(np.asarray(losses(folder))[:, 0], np.asarray(losses(whole))[:, 0], rtol=1e-4)
    scores = [json.loads((place / "scores.json").read_text())["validation"] for place in (folder, whole)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_a_checkpoint_in_the_background_is_of_its_own_step(recipe: Recipe) -> None:
    """The weights go on learning while they are written."""
    words = [f'layout.device="{DEVICE}"', "layout.deterministic=true", "save=1", "keep=12"]
    places = [pretrain(str(recipe(name)), [*words, f"layout.background={name}"]) for name in ("true", "false")]
    for step in range(1, 13):
        for kind in ("model", "optimizer"):
            one, other = (p / f"checkpoints/step-{step:09d}/{kind}.safetensors" for p in places)
            assert one.read_bytes() == other.read_bytes(), f"step {step}, {kind}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["fp32", "fp16", pytest.param("bf16", marks=needs_bf16)])
def test_a_deterministic_run_gives_the_same_bits_again_and_after_going_on(recipe: Recipe, kind: str, how: str) -> None:
    words = [f'layout.device="{DEVICE}"', "layout.deterministic=true", f'layout.precision="{how}"', "keep=9"]
    whole, again = (pretrain(str(recipe(name, kind, dropout=0.1)), words) for name in ("whole", "again"))
    assert losses(whole) == losses(again)
    last = "checkpoints/step-000000012/model.safetensors"
    assert (whole / last).read_bytes() == (again / last).read_bytes()
    for step in (8, 4):
        cut_back(again, step)
        pretrain(str(again))
        assert losses(whole) == losses(again), f"gone on from {step}"
        assert (whole / last).read_bytes() == (again / last).read_bytes()


# dropout


def zeros(layer: Dropout, *, stream: int, micro: int = 0) -> torch.Tensor:
    begin_micro_batch(0, 0, 0, micro, 0, stream=stream)
    return layer(torch.ones(512, 512, device=DEVICE)) == 0


def test_ranks_that_share_a_layer_draw_alike_or_apart() -> None:
    alike, apart = Dropout(0.1).train(), [Dropout(0.1).train() for _ in range(2)]
    for number, layer in enumerate(apart, 1):
        layer.stream = number
    one, two = zeros(alike, stream=1), zeros(alike, stream=2)
    assert torch.equal(one, two)
    assert not torch.equal(one, zeros(alike, stream=1, micro=1))
    three, four = zeros(apart[0], stream=1), zeros(apart[1], stream=2)
    assert not torch.equal(three, four)
    assert not torch.equal(one, three)
    assert torch.equal(three, zeros(apart[0], stream=1))
    for found in (one, three, four):
        assert float(found.float().mean()) == pytest.approx(0.1, abs=5e-3)


@pytest.mark.parametrize("stream", [0, 1])
def test_dropout_keeps_the_mean_and_depends_on_the_micro_batch_alone(stream: int) -> None:
    layer, x = Dropout(0.1).train(), torch.ones(512, 512, device=DEVICE)
    layer.place = 3
    found = []
    for micro in (0, 1, 0):
        begin_micro_batch(0, 5, 7, micro, 0, stream=stream)
        found.append(layer.add(x, x))
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert float(found[0].mean()) == pytest.approx(2.0, abs=1e-2)


# loader, auto, bench


def test_workers_make_the_same_rows_in_pinned_memory(recipe: Recipe) -> None:
    job = job_of(recipe())
    pairs = zip(
        *(load(job.rows(0), job.share(0), 0, 4, workers=n, device=job.ranks.device) for n in (0, 2)), strict=True
    )
    for (plain,), (made,) in pairs:
        assert made.tokens.is_pinned()
        one, other = (vars(batch.to(job.ranks.device)) for batch in (plain, made))
        assert one.keys() == other.keys()
        for name, value in one.items():
            same = torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
            assert same, name


def test_workers_change_nothing(recipe: Recipe) -> None:
    words = [f'layout.device="{DEVICE}"', "layout.deterministic=true"]
    one, other = (pretrain(str(recipe(f"w{n}", dropout=0.1)), [*words, f"layout.workers={n}"]) for n in (0, 2))
    assert losses(one) == losses(other)


def test_auto_takes_16_bits_and_keeps_them(recipe: Recipe) -> None:
    folder = pretrain(str(recipe()), [f'layout.device="{DEVICE}"', "layout.precision=auto", "phase.steps=2"])
    kept = run.read_recipe(Pretraining, folder).layout.precision
    assert kept == precision.fastest_format(torch.device(DEVICE))
    assert f"layout.precision: auto chose {kept}: the GPU has units for it" in (folder / "log.txt").read_text()


def test_auto_finds_a_layout_and_trains(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both phases, whatever filled the memory before."""
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    monkeypatch.setattr(auto, "MEMORY_SHARE", (1 << 30) / total)
    torch.empty(2 << 30, dtype=torch.uint8, device=DEVICE)
    more = "[[phase]]\nsteps = 4\nlength = 64\nbatch = 4\nrate = 1e-3\n"
    folder = pretrain(str(recipe(more=more)), [f'layout.device="{DEVICE}"'], layout="auto")
    found = run.read_recipe(Pretraining, folder).layout.micro
    assert isinstance(found, tuple)
    assert len(found) == 2
    assert 8 % found[0] == 4 % found[1] == 0
    assert [line["step"] for line in lines_of(folder)] == list(range(1, 17))


@needs_bf16
def test_bench_measures_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f'layout.device="{DEVICE}"', 'layout.precision="bf16"', "vocabulary=300", "tokens=5000", "steps=3"]
    training = json.loads(bench("bert-mini", [*words, "length=64", "batch=8", "profile=2"], json_line=True)[0])
    assert sum(training["profile"].values()) == pytest.approx(1, abs=1e-2)
    assert min(training["profile"][kind] for kind in ("products", "attention", "head", "optimizer", "between")) > 0
    assert training["memory_mb"] > 0
    assert training["device"].startswith(DEVICE)
    assert 0 < training["share_of_peak"] < 1
    overhead = json.loads(bench("overhead", words, json_line=True)[0])
    assert 0 < overhead["arithmetic_ms"] < overhead["loop_ms"]
    assert measured_peak(torch.device(DEVICE), "bf16") > measured_peak(torch.device(DEVICE), "fp32")

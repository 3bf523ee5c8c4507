"""Products in 8 bits: the numbers that are multiplied are those one gets by hand, in all three; who may have them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kit.makers import job_of, learned
from ordsmed.base.errors import RecipeError
from ordsmed.nn import fp8
from ordsmed.nn.fp8 import BACKWARD, FORWARD, Fp8Linear, use_fp8
from ordsmed.train.mesh import precision
from ordsmed.train.mesh.layout import Layout

BF16 = torch.bfloat16
FP8 = ("layout.precision=bf16", "layout.fp8=true")


def rounded(x: Tensor, kind: torch.dtype) -> Tensor:
    """To the nearest number of 8 bits, of which the largest is the tensor's largest, in double precision."""
    scale = float(x.abs().max()) / torch.finfo(kind).max
    return (x / scale).to(kind).double() * scale


def made(into: int = 48, *, bias: bool = True) -> tuple[nn.Linear, Tensor, Tensor]:
    chance = torch.Generator().manual_seed(1)
    layer = nn.Linear(64, into, bias=bias)
    nn.init.normal_(layer.weight, generator=chance)
    return layer, torch.randn(3, 7, 64, generator=chance), torch.randn(3, 7, into, generator=chance)


@pytest.mark.parametrize("bias", [True, False])
def test_the_three_products_are_of_numbers_in_8_bits(bias: bool) -> None:
    """21 rows, which are no multiple of 16."""
    layer, x, gradients = made(bias=bias)
    gradients = gradients.to(BF16).float()
    assert use_fp8(nn.Sequential(layer)) == 1
    x.requires_grad_()
    with torch.autocast("cpu", BF16):
        out = layer(x)
    assert out.dtype == BF16
    out.backward(gradients.to(BF16))
    small_x, small_w = (rounded(t.detach(), FORWARD) for t in (x, layer.weight))
    small = rounded(gradients, BACKWARD)
    product = (small_x @ small_w.T) + (layer.bias.detach() if bias else 0)
    torch.testing.assert_close(out.detach().double(), product, rtol=2**-7 if bias else 2**-8, atol=0.02)
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), small @ small_w, rtol=2**-8, atol=1e-3)
    own = small.flatten(0, 1).T @ small_x.flatten(0, 1)
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad.double(), own, rtol=1e-5, atol=1e-4)
    if bias:
        torch.testing.assert_close(layer.bias.grad, gradients.sum((0, 1)), rtol=1e-2, atol=0.05)


def test_torch_s_own_product_gives_the_same() -> None:
    """What a GPU takes, on a CPU: tiny, for it is slow there."""
    layer, x, _ = made(16)
    small_x, scale_x = fp8._scaled(x[:, :6].reshape(-1, 64)[:16], FORWARD)
    small_w, scale_w = fp8._scaled(layer.weight, FORWARD)
    small, scale = fp8._scaled(x.reshape(-1, 64)[:16, :16], BACKWARD)
    cases = [
        (small_x, small_w.t(), scale_x, scale_w),
        (small, fp8._by_column(small_w), scale, scale_w),
        (small.t().contiguous(), fp8._by_column(small_x), scale, scale_x),
    ]
    for (a, b, scale_a, scale_b), dtype in itertools.product(cases, (BF16, torch.float32)):
        try:
            theirs = torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=dtype)
        except (RuntimeError, NotImplementedError) as error:
            pytest.skip(f"this torch has none on a CPU: {error}")
        ours = fp8._product(a, b, scale_a, scale_b, dtype)
        assert ours.dtype == theirs.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-2 if dtype == BF16 else 1e-4, atol=1e-2)


def test_nothing_and_what_is_no_number() -> None:
    layer, x, _ = made()
    use_fp8(nn.Sequential(layer))
    with torch.autocast("cpu", BF16):
        assert torch.equal(layer(torch.zeros_like(x)), layer.bias.to(BF16).expand(3, 7, 48))
        x[0, 0, 0] = float("nan")
        assert not layer(x).isfinite().any()


def test_without_autocast_it_is_as_it_was() -> None:
    layer, x, _ = made()
    before = layer(x)
    use_fp8(nn.Sequential(layer))
    assert torch.equal(layer(x), before)


def test_only_layers_whose_sides_fit() -> None:
    block = nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 40), nn.Linear(40, 48), nn.LayerNorm(48))
    assert use_fp8(block) == 1
    assert [type(layer) for layer in block] == [Fp8Linear, nn.Linear, nn.Linear, nn.LayerNorm]


Recipe = Callable[..., Path]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "objective"), [("bert", "mlm"), ("gpt2", "clm"), ("modern", "mlm")])
def test_it_learns_almost_the_same(recipe: Recipe, kind: str, objective: str) -> None:
    path = recipe(kind=kind, objective=objective)
    half, job = (job_of(path, *words) for words in (FP8[:1], FP8))
    layers = sum(type(module) is Fp8Linear for module in job.objective.modules())
    assert layers == sum(
        type(m) is nn.Linear for n, m in half.objective.named_modules() if "block" in n or "layers" in n
    )
    assert layers >= 8
    assert "of 8 bits in the blocks' linear layers" in job.precision
    sixteen, eight = (np.asarray(learned(each, 8)) for each in (half, job))
    assert np.allclose(sixteen, eight, rtol=0.03)
    assert not np.array_equal(sixteen, eight)
    assert {part.local.dtype for part in job.parts} == {torch.float32}
    assert np.array_equal(eight, learned(job_of(path, *FP8, "layout.recompute=true"), 8))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_it_compiles_to_one_graph() -> None:
    layer, x, gradients = made()
    use_fp8(nn.Sequential(layer))
    results = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.weight.grad = None
        with torch.autocast("cpu", BF16):
            out = call(x)
        out.backward(gradients.to(BF16))
        results.append((out.detach(), layer.weight.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"precision": "fp32"}, "fp8: found true with fp32; wanted bf16"),
        ({"precision": "bf16", "tensor": 2}, "fp8: found true with tensor 2; wanted one of the two"),
    ],
)
def test_a_layout_that_cannot_be(how: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Layout(fp8=True, **how)


@pytest.mark.parametrize(
    ("arch", "hip", "complaint"),
    [((8, 0), None, "some GPU has no units for; Ada"), ((9, 0), "6.2", "not tested on AMD GPUs"), ((8, 9), None, "")],
)
def test_a_gpu_that_cannot(
    monkeypatch: pytest.MonkeyPatch, arch: tuple[int, int], hip: str | None, complaint: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: arch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    monkeypatch.setattr(torch.version, "hip", hip)
    layout, device = Layout(precision="bf16", fp8=True), torch.device("cuda")
    if not complaint:
        assert "8 bits" in precision.set_up(layout, device)
        return
    with pytest.raises(RecipeError, match=rf"^layout\.fp8: found true, which .*{complaint}.*; wanted false"):
        precision.set_up(layout, device)


def test_a_network_without_such_layers_is_refused(recipe: Recipe) -> None:
    with pytest.raises(RecipeError, match=r"layout\.fp8: found true, but no layer of this network"):
        job_of(recipe(), *FP8, "model.width=24", "model.inner=40")


@pytest.mark.parametrize(("learns", "products"), [("input", 3), ("weight", 2)])
def test_no_product_is_made_for_what_does_not_learn(
    learns: str, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x, gradients = made()
    use_fp8(nn.Sequential(layer))
    counted, product = [], fp8._product
    monkeypatch.setattr(fp8, "_product", lambda *given: (counted.append(1), product(*given))[1])
    x.requires_grad_(learns == "input")
    with torch.autocast("cpu", BF16):
        out = layer(x)
    out.backward(gradients.to(out.dtype))
    assert len(counted) == products

"""Packed layers: compared with plain products, for any number of rows, with fused activations."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ordsmed.nn import packed_layers
from ordsmed.nn.activations import ACTIVATIONS, activated
from ordsmed.nn.models import bert
from ordsmed.nn.packed_layers import HalfLayer, Int8Layer, installed, lacks_bf16, lacks_int8, layers_of, quantized

CPU = torch.device("cpu")
with_bf16 = pytest.mark.skipif(lacks_bf16(CPU), reason="no packed products in bf16 here")
with_int8 = pytest.mark.skipif(bool(lacks_int8(CPU)), reason=f"int8 {lacks_int8(CPU)}")
SHAPES = [(1,), (5,), (16,), (2, 17), (3, 40), (0,)]


def layer(into: int = 48, out: int = 24, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(into, out, bias=bias).requires_grad_(requires_grad=False)


@with_bf16
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_in_bf16_it_is_the_product_of_what_was_rounded(shape: tuple[int, ...], bias: bool) -> None:
    own, x = layer(bias=bias), torch.randn(*shape, 48)
    out = HalfLayer(own)(x)
    wanted = F.linear(x.bfloat16().double(), own.weight.bfloat16().double(), own.bias.double() if bias else None)
    assert out.shape == wanted.shape
    assert torch.allclose(out.double(), wanted, rtol=1e-2, atol=1e-2)
    assert out.dtype == torch.bfloat16 or not out.numel()


@with_int8
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_in_int8_it_is_the_product_by_hand(shape: tuple[int, ...], bias: bool) -> None:
    """Of numbers in 8 bits: weights by output, what comes in as a whole."""
    own, x = layer(bias=bias), torch.randn(*shape, 48) * 3 + 1
    out = Int8Layer(own)(x)
    assert out.shape == (*shape, 24)
    if not out.numel():
        return
    low, high = float(x.min().clamp(max=0)), float(x.max().clamp(min=0))
    scale = (high - low) / 254
    zero = round(-low / scale)
    small = torch.round(x.double() / scale) + zero
    assert int(small.min()) >= 0
    assert int(small.max()) <= 255
    scales = own.weight.abs().amax(1).double() / 127
    weight = torch.round(own.weight.double() / scales[:, None])
    wanted = (small - zero) @ weight.t() * (scale * scales) + (own.bias.double() if bias else 0.0)
    step = scale * float(scales.max()) * 127  # a number that lies between two may have been rounded to either
    assert float((out.double() - wanted).abs().max()) < 1.01 * step
    assert float((out.double() - wanted).abs().median()) < 1e-4
    assert float((out - own(x)).abs().max()) < 0.1


@pytest.mark.parametrize("cached", [packed_layers.CACHED, 20])
def test_what_is_quantized_comes_back_within_half_a_step(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    monkeypatch.setattr(packed_layers, "CACHED", cached)
    for x in (
        torch.randn(5, 7),
        torch.rand(33, 3) + 4,
        -torch.rand(2, 9),
        torch.zeros(4, 4),
        torch.randn(17, 5) * 1e-6,
    ):
        small, scale, zero = quantized(x)
        assert small.dtype == torch.uint8
        assert len(small) == (len(x) if len(x) <= 16 else 48 if len(x) > 32 else 32)
        back = (small[: len(x)].double() - zero) * scale
        assert float((back - x).abs().max()) <= 0.5001 * scale + 1e-12
        assert 0 <= zero <= 255


@with_int8
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_stays_none(bad: float) -> None:
    x = torch.randn(3, 48)
    x[1, 2] = bad
    assert not Int8Layer(layer())(x).isfinite().any()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("kind", [pytest.param(HalfLayer, marks=with_bf16), pytest.param(Int8Layer, marks=with_int8)])
def test_activations_are_made_with_the_product_or_after_it(kind: type, name: str) -> None:
    own, x = layer(), torch.randn(20, 48)
    product = kind(own)
    with installed([(own, product)]):
        out = activated(own, ACTIVATIONS[name], x)
    wanted = ACTIVATIONS[name](product(x).float())
    assert torch.allclose(out.float(), wanted, rtol=2e-2, atol=2e-2)
    assert "forward" not in vars(own)


def test_heads_stay_out_of_8_bits() -> None:
    network = nn.ModuleDict({"model": bert.Bert(width=32, layers=2, heads=2).build(20), "out": nn.Linear(32, 2)})
    names = {id(module): name for name, module in network.named_modules()}
    half, small = ({names[id(layer)] for layer in layers_of(network, kind)} for kind in ("bf16", "int8"))
    assert half - small == {"out"}
    assert len(small) == 2 * 4
    assert all(name.startswith("model.blocks.") for name in small)


def test_who_cannot_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacks_int8(torch.device("cuda")) == "is for CPUs, and the model is on cuda"
    assert lacks_bf16(torch.device("cuda"))
    monkeypatch.setattr(packed_layers.platform, "machine", lambda: "aarch64")
    assert lacks_int8(CPU) == "was not tested on aarch64"
    monkeypatch.undo()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert lacks_bf16(CPU)
    if packed_layers.platform.machine().lower() in ("x86_64", "amd64"):
        assert lacks_int8(CPU) == f"torch {torch.__version__} has no products for"


@pytest.mark.long
@with_int8
def test_a_cpu_that_adds_up_in_16_bits_is_found_out() -> None:
    """oneDNN does as an older one would."""
    script = "import torch; from ordsmed.nn.packed_layers import lacks_int8; print(lacks_int8(torch.device('cpu')))"
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "this CPU, without VNNI or AMX, does not multiply exactly"

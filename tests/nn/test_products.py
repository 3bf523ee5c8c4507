"""Products by oneDNN are torch's, wherever they are taken."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ordsmed.base.machine import host, speed
from ordsmed.base.ranks import Ranks
from ordsmed.nn import loss, products
from ordsmed.nn.adapters import Adapted, Adapters
from ordsmed.nn.lstm import Lstm
from ordsmed.nn.packed_layers import HalfLayer, installed
from ordsmed.train import job
from ordsmed.train.mesh.layout import Layout

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever CPU this is, it is taken for one where oneDNN's are faster."""
    monkeypatch.setattr(products, "wider_by_onednn", lambda: True)
    yield
    products.begin("auto")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each product that oneDNN makes."""
    made: list[int] = []
    plain = products.times
    monkeypatch.setattr(products, "times", lambda *factors: made.append(1) or plain(*factors))
    return made


def learned(layer: Any, x: Tensor, gradient: Tensor, weights: nn.Module | None = None) -> list[Tensor]:
    """What comes out, and what is learned: by what comes in, and by the weights."""
    x, network = x.detach().requires_grad_(), weights or layer
    network.zero_grad()
    out = layer(x)
    out.backward(gradient)
    return [out.detach(), x.grad, *(p.grad for p in network.parameters() if p.grad is not None)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "size", "outputs"), [((3, 7), 8, 5), ((64,), 5, 33), ((2, 3, 4), 16, 16), ((1,), 1, 1)]
)
def test_a_layer_gives_and_learns_what_torchs_does(shape, size, outputs, bias, counted) -> None:
    layer, x, gradient = nn.Linear(size, outputs, bias=bias), torch.randn(*shape, size), torch.randn(*shape, outputs)
    plain = learned(layer, x, gradient)
    assert not counted
    products.take(layer)
    assert len(counted) == 0
    found = learned(layer, x, gradient)
    assert len(counted) == 3, "one forward, two back"
    for one, other in zip(found, plain, strict=True):
        assert one.shape == other.shape
        assert one.is_contiguous()
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "rows"), [((7,), 7), ((1, 16), 16), ((1, 17), 32), ((3, 50), 160), ((500,), 512), ((513,), 513)]
)
def test_texts_of_like_length_are_asked_by_the_same_kernel(shape, rows, monkeypatch) -> None:
    """Each number of rows has a kernel made for it, once; long ones are not copied for that."""
    layer, x, given = nn.Linear(8, 6), torch.randn(*shape, 8), []
    plain, times = layer(x), products.times
    products.take(layer)
    monkeypatch.setattr(products, "times", lambda x, *rest: given.append(len(x)) or times(x, *rest))
    with torch.no_grad():
        found = layer(x)
    assert given == [rows]
    assert found.shape == plain.shape
    assert found.is_contiguous()
    assert torch.allclose(found, plain, atol=1e-6)


def test_what_lies_otherwise_is_multiplied_too() -> None:
    layer, x = nn.Linear(8, 6), torch.randn(4, 3, 8).transpose(0, 1)
    plain = learned(layer, x, gradient := torch.randn(4, 3, 6).transpose(0, 1))
    products.take(layer)
    assert all(map(torch.allclose, learned(layer, x, gradient), plain))


def test_what_is_frozen_costs_no_product(counted) -> None:
    layer = nn.Linear(8, 6).requires_grad_(False)
    products.take(layer)
    layer(torch.randn(3, 8, requires_grad=True)).sum().backward()
    assert len(counted) == 2
    assert layer.weight.grad is None


def test_who_is_left_to_torch(counted) -> None:
    """Other numbers, 16 bits by autocast, nothing at all, and all where the recipe says so."""
    layer = nn.Linear(8, 6)
    products.take(layer)
    copy.deepcopy(layer).double()(torch.randn(3, 8, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(3, 8)).dtype == torch.bfloat16
    assert layer(torch.randn(0, 8)).shape == (0, 6)
    assert products.begin("plain") == ""
    layer(torch.randn(3, 8))
    assert not counted
    assert products.begin("auto").startswith("products: oneDNN's")
    layer(torch.randn(3, 8))
    assert len(counted) == 1


def test_a_copy_has_its_own_weights() -> None:
    layer = nn.Linear(8, 6)
    products.take(layer)
    other = copy.deepcopy(layer)
    nn.init.zeros_(other.weight)
    x = torch.randn(3, 8)
    assert torch.equal(other(x), other.bias.expand(3, 6))
    assert not torch.equal(layer(x), other(x))


def test_packed_layers_come_and_go() -> None:
    layer, x = nn.Linear(8, 6), torch.randn(3, 8)
    products.take(layer)
    own = layer.forward
    with installed([(layer, HalfLayer(layer))]):
        assert layer.forward != own
    assert layer.forward == own
    assert layer(x).dtype == torch.float32


def test_adapters_multiply_by_it_too(counted) -> None:
    adapted, x, gradient = Adapted(nn.Linear(8, 6), Adapters(rank=2)), torch.randn(3, 8), torch.randn(3, 6)
    found = learned(adapted, x, gradient)
    assert counted
    products.begin("plain")
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(found, learned(adapted, x, gradient), strict=True))


@pytest.mark.parametrize("most", [1 << 24, 350])
def test_the_loss_of_words_is_torchs(most, monkeypatch, counted) -> None:
    """In one part and in several."""
    monkeypatch.setattr(loss, "CHUNK_SCORES", most)
    hidden, table, bias = torch.randn(20, 8), torch.randn(50, 8), torch.randn(50)
    targets = torch.randint(50, (20,))
    found = []
    for choice in ("auto", "plain"):
        products.begin(choice)
        inputs = [x.clone().requires_grad_() for x in (hidden, table, bias)]
        total = loss.token_loss(*inputs, targets, torch.ones(20))
        total = total[0] if isinstance(total, tuple) else total
        total.backward()
        found.append([total.detach(), *(x.grad for x in inputs)])
        assert (len(counted) > 0) == (choice == "auto")
        counted.clear()
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("cells", [8, 32])
def test_an_lstm_reads_and_learns_as_by_torchs(cells: int, counted) -> None:
    cell = Lstm(8, cells, cell_clip=3.0, projection_clip=3.0)
    x, gradient, start = torch.randn(7, 4, 8), torch.randn(7, 4, 8), (torch.randn(4, 8), torch.randn(4, cells))
    found = learned(lambda x: cell(x, *start)[0], x, gradient, cell)
    assert len(counted) > 7 * 2
    products.begin("plain")
    plain = learned(lambda x: cell(x, *start)[0], x, gradient, cell)
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(found, plain, strict=True))


@pytest.mark.parametrize(
    ("told", "level", "wanted"),
    [
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 26\n", "AVX512", True),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\n", "AVX512", False),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 26\n", "AVX2", False),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 26\n", "AVX512", False),
        ("", "AVX512", False),
    ],
)
def test_which_cpus_are_wider_by_onednn(told, level, wanted, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(told)
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: level)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert speed.wider_by_onednn.__wrapped__() is wanted


def test_the_start_tells_of_them_where_they_are_taken() -> None:
    cpu, network = Ranks(torch.device("cpu")), torch.nn.Linear(2, 2)
    assert job._choose_kernels(Layout(precision="fp32"), cpu, network).startswith("products: oneDNN's")  # type: ignore[arg-type]
    assert job._choose_kernels(Layout(precision="bf16"), cpu, network) == ""  # type: ignore[arg-type]
    assert job._choose_kernels(Layout(precision="fp32", kernels="plain"), cpu, network) == ""  # type: ignore[arg-type]

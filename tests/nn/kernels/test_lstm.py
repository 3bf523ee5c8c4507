"""The LSTM's kernels: states and gradients of several layers together are those of one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ordsmed.nn import lstm
from ordsmed.nn.kernels import switch
from ordsmed.nn.lstm import Lstm, one_by_one, together
from ordsmed.nn.models import elmo

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy
BOUND = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other kernel is tried: under the interpreter that takes its time."""
    monkeypatch.setattr(switch, "KERNELS", ("lstm",))


def layers(cells: int, width: int, clips: tuple[float, float], seed: int = 0) -> list[Lstm]:
    torch.manual_seed(seed)
    made = [Lstm(width, cells, cell_clip=clips[0], projection_clip=clips[1]) for _ in range(2)]
    for weight in (weight for one in made for weight in one.parameters()):
        torch.nn.init.normal_(weight, std=0.6)
    return made


def learned(way: Any, made: list[Lstm], steps: int, rows: int, lengths: Tensor | None = None) -> list[Tensor]:
    """What leaves, what is carried, and gradients of inputs and all weights."""
    device = made[0].bias.device
    width, cells = made[0].carry.shape[1], made[0].cells
    chance = torch.Generator().manual_seed(5)
    xs = [torch.randn(steps, rows, width, generator=chance).to(device).requires_grad_() for _ in made]
    h, c = (torch.randn(2, rows, size, generator=chance).to(device) for size in (width, cells))
    found = way(made, xs, h, c, lengths)
    value = torch.stack([(out * out.detach().cos()).sum() for out, *_ in found]).sum()
    weights = [weight for one in made for weight in one.parameters()]
    return [*(tensor.detach() for each in found for tensor in each), *torch.autograd.grad(value, [*xs, *weights])]


def near(ours: list[Tensor], theirs: list[Tensor], bound: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        scale = float(other.abs().max()) + 1e-6
        torch.testing.assert_close(one, other, rtol=0, atol=bound * scale)


@pytest.mark.parametrize("clips", [(0.0, 0.0), (0.5, 0.4), (3.0, 0.0), (0.0, 0.4)])
@pytest.mark.parametrize(("steps", "rows", "cells", "width"), [(1, 1, 1, 2), (3, 2, 7, 20), (1, 2, 1_030, 5)])
def test_states_and_slopes_of_any_shape(
    device: torch.device, steps: int, rows: int, cells: int, width: int, clips: tuple[float, float]
) -> None:
    made = [one.to(device) for one in layers(cells, width, clips)]
    near(learned(together, made, steps, rows), learned(one_by_one, made, steps, rows), BOUND[torch.float32])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_they_are_near(device: torch.device, dtype: torch.dtype) -> None:
    made = [one.to(device) for one in layers(40, 24, (0.0, 0.0))]  # a rounding would clip here and not there
    for weight in (weight for one in made for weight in one.parameters()):
        weight.data.mul_(0.3)  # strong ones carry a rounding on and on; the interpreter cuts bf16 off
    with torch.autocast(device.type, dtype):
        near(learned(together, made, 3, 4), learned(one_by_one, made, 3, 4), BOUND[dtype])


def test_shorter_rows_carry_their_own_last_step(device: torch.device) -> None:
    made, lengths = [one.to(device) for one in layers(12, 8, (0.5, 0.5))], torch.tensor([2, 4, 1], device=device)
    near(learned(together, made, 4, 3, lengths), learned(one_by_one, made, 4, 3, lengths), BOUND[torch.float32])


def test_small_numbers_are_bent_exactly(device: torch.device) -> None:
    """Of 1e-4 a tanh made of exponentials alone keeps three digits."""
    made = [one.to(device) for one in layers(64, 8, (0.0, 0.0))]
    for weight in (weight for one in made for weight in one.parameters()):
        weight.data.mul_(1e-4)
    xs = [torch.randn(1, 2, 8, device=device) for _ in made]
    h, c = torch.zeros(2, 2, 8, device=device), torch.zeros(2, 2, 64, device=device)
    ours, theirs = (way(made, xs, h, c, None)[0][2] for way in (together, one_by_one))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)


def test_what_is_no_number_stays_so_in_its_row(device: torch.device) -> None:
    made = [one.to(device) for one in layers(12, 8, (0.5, 0.5))]
    xs = [torch.randn(3, 4, 8, device=device) for _ in made]
    xs[1][1, 2, 0] = torch.nan
    h, c = torch.zeros(2, 4, 8, device=device), torch.zeros(2, 4, 12, device=device)
    ours, theirs = (way(made, xs, h, c, None) for way in (together, one_by_one))
    for one, other in zip(ours, theirs, strict=True):
        for mine, wanted in zip(one, other, strict=True):
            assert torch.equal(mine.isnan(), wanted.isnan())
    assert ours[1][0].isnan().any()


def test_a_layer_of_elmo_takes_them(device: torch.device, only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    small = elmo.Elmo(width=8, cells=12, dropout=0.0)
    layer = elmo.Layer(small, residual=True).to(device)
    states = [torch.randn(*shape, device=device) for shape in ((3, 2, 8), (3, 2, 8), (2, 2, 8), (2, 2, 12))]
    switch.begin("plain", device)
    wanted = [tensor.detach() for tensor in layer(*states)]
    assert "lstm" in switch.begin("auto", device)
    monkeypatch.setattr(lstm, "one_by_one", None)
    near([tensor.detach() for tensor in layer(*states)], wanted, BOUND[torch.float32])

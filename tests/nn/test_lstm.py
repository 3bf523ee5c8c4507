"""The LSTM's exact path against torch's gradients of the same formulas, and against torch's fused kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ordsmed.nn import lstm as lstm_module
from ordsmed.nn.lstm import Lstm, describe, lacks_fused

STEPS, ROWS, WIDTH = 9, 5, 6


def made(cells: int, cell_clip: float, projection_clip: float, *, strong: float = 3.0) -> Lstm:
    torch.manual_seed(3)
    lstm = Lstm(WIDTH, cells, cell_clip=cell_clip, projection_clip=projection_clip)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(strong).add_(torch.randn_like(parameter) * 0.2)
    return lstm


def inputs(cells: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(4)
    x = torch.randn(STEPS, ROWS, WIDTH, requires_grad=True)
    return x, torch.randn(ROWS, WIDTH) * 0.1, torch.randn(ROWS, cells) * 0.1, torch.randn(STEPS, ROWS, WIDTH)


def written_down(lstm: Lstm, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = []
    for step in x:
        i, f, g, o = (step @ lstm.enter.T + h @ lstm.carry.T + lstm.bias).chunk(4, 1)
        c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
        c = c.clamp(-lstm.clips[0], lstm.clips[0]) if lstm.clips[0] else c
        h = o.sigmoid() * c.tanh()
        h = h if lstm.project is None else h @ lstm.project.T
        h = h.clamp(-lstm.clips[1], lstm.clips[1]) if lstm.clips[1] else h
        found.append(h)
    return torch.stack(found), h, c


def learned(lstm: Lstm, cells: int, run: Any) -> list[Tensor]:
    """What comes out, and what everything that went in learns from it."""
    x, h, c, weight = inputs(cells)
    lstm.zero_grad()
    out, last, state = run(lstm, x, h, c)
    (out * weight).sum().backward()
    gradients = [p.grad.clone() for p in lstm.parameters() if p.grad is not None]
    assert x.grad is not None
    return [out.detach(), last.detach(), state.detach(), x.grad.clone(), *gradients]


def near(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max()


@pytest.mark.parametrize("cells", [11, WIDTH])
@pytest.mark.parametrize("clips", [(0.0, 0.0), (0.4, 0.0), (0.0, 0.2), (0.3, 0.15), (3.0, 3.0)])
def test_the_exact_cell_is_the_written_one(cells: int, clips: tuple[float, float]) -> None:
    lstm = made(cells, *clips)
    ours, theirs = learned(lstm, cells, lambda lstm, *x: lstm(*x)), learned(lstm, cells, written_down)
    near(ours, theirs, 3e-5)  # such strong weights make much of roundings, which are each processor's own
    if clips == (0.3, 0.15):
        assert (ours[0].abs() == 0.15).float().mean() > 0.1, "something was clipped"
        assert (ours[2].abs() == 0.3).any()


@pytest.mark.parametrize("cells", [11, WIDTH])
def test_exact_and_fused_agree_without_clipping(cells: int) -> None:
    lstm = made(cells, 0.0, 0.0)
    exact, fused = (learned(lstm, cells, lambda lstm, *x, f=f: lstm(*x, fused=f)) for f in (False, True))
    near(exact, fused, 1e-5)


def test_what_leaves_a_window_of_the_fused_kernel_is_clipped() -> None:
    lstm = made(11, 0.3, 0.15)
    out, last, state = lstm(*inputs(11)[:3], fused=True)
    assert out.abs().max() <= 0.15
    assert last.abs().max() <= 0.15
    assert state.abs().max() <= 0.3


def test_shorter_rows_carry_their_own_last_step() -> None:
    lstm = made(11, 3.0, 3.0)
    x, h, c, _ = inputs(11)
    lengths = torch.tensor([9, 1, 4, 7, 2])
    out, last, state = lstm(x, h, c, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = lstm(x[:length, row : row + 1], h[row : row + 1], c[row : row + 1])
        wanted = (alone[0], alone[1][0], alone[2][0])
        for one, other in zip((out[:length, row : row + 1], last[row], state[row]), wanted, strict=True):
            assert torch.allclose(one, other, atol=1e-6)


def test_two_windows_are_one() -> None:
    """What is carried on is all there is to know."""
    lstm = made(11, 3.0, 3.0)
    x, h, c, _ = inputs(11)
    first, *carried = lstm(x[:4], h, c)
    second, *_ = lstm(x[4:], *carried)
    assert torch.allclose(torch.cat([first, second]), lstm(x, h, c)[0], atol=1e-6)


def test_sixteen_bits_are_near() -> None:
    lstm = made(11, 3.0, 3.0, strong=1.0)
    exact = learned(lstm, 11, lambda lstm, *x: lstm(*x))
    with torch.autocast("cpu", torch.bfloat16):
        half = learned(lstm, 11, lambda lstm, *x: lstm(*x))
    assert half[2].dtype == torch.float32
    near(half, exact, 0.03)
    assert not torch.equal(half[0], exact[0])


def test_a_person_is_told_which_runs() -> None:
    assert describe(False, 3.0, 3.0) == "LSTM: exact cell, clipped at every step (cell at 3 and projection at 3)"
    assert describe(False, 0.0, 0.0) == "LSTM: exact cell, without clipping"
    assert describe(True, 0.0, 0.0) == "LSTM: torch's fused kernel"
    assert "clips only at the end of a window" in describe(True, 3.0, 3.0)


def test_what_torch_has_no_fused_kernel_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch 2.10 and cuDNN 9.13 none in bf16, on AMD's none with a projection: torch's own loop runs."""
    monkeypatch.setattr(torch.version, "hip", None)

    def of(version: str, cudnn: int | None, precision: str, device: str = "cuda", *, projects: bool = True) -> str:
        monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda: cudnn)
        return lacks_fused(device, precision, projects=projects)

    for version, cudnn in (("2.9.1+cu128", 91_400), ("2.10.0+cu128", 91_002)):
        assert of(version, cudnn, "bf16") == "NVIDIA's kernel supports bf16 with torch 2.10, cuDNN 9.13 or later"
        assert of(version, cudnn, "fp16") == of(version, cudnn, "bf16", "cpu") == ""
    assert of("2.10.0+cu128", 91_300, "bf16") == of("2.13.0", None, "bf16") == ""
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert of("2.13.0", None, "fp32") == "AMD's library has no kernel with projections"
    assert of("2.13.0", None, "bf16", projects=False) == ""
    assert describe(True, 0.0, 0.0, "none here") == "LSTM: torch's loop over steps (none here)"


def test_what_is_carried_on_learns_nothing() -> None:
    """Else a window's graph would hang on that of the one before, and so on."""
    lstm = made(11, 3.0, 3.0)
    x, h, c, _ = inputs(11)
    for out, last, state in (lstm(x, h, c), lstm(x, h, c, fused=True)):
        assert out.requires_grad
        assert not last.requires_grad
        assert not state.requires_grad


def test_fresh_weights_reach_as_far_as_those_of_one_matrix() -> None:
    """Glorot's bound of [width + width, 4 cells]: TensorFlow's cell has one matrix for both."""
    torch.manual_seed(0)
    lstm = Lstm(32, 64, cell_clip=0.0, projection_clip=0.0)
    bound = (6 / (32 + 32 + 4 * 64)) ** 0.5
    for weight in (lstm.enter, lstm.carry):
        assert float(weight.detach().abs().max()) == pytest.approx(bound, rel=1e-2)


def test_torchs_kernel_that_is_asked_for_is_taken_where_ours_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_module.switch, "runs", lambda kernel, device: True)
    monkeypatch.setattr(lstm_module, "together", lambda *given: ["ours"])
    lstm = made(11, 0.0, 0.0)
    x, h, c, _ = inputs(11)
    assert lstm_module.read([lstm], [x], h[None], c[None], None, fused=False) == ["ours"]
    assert len(lstm_module.read([lstm], [x], h[None], c[None], None, fused=True)[0]) == 3

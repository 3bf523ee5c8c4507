"""Adagrad's kernel moves what torch's moves; what learned nothing is not even read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ordsmed.learn.optimizers import adagrad
from ordsmed.nn.kernels import switch

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other kernel is tried: under the interpreter that takes its time."""
    monkeypatch.setattr(switch, "KERNELS", ("adaptive_step",))


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(1,), (1_023,), (5, 700), (3, 1_024)])
def test_weights_and_sums_of_any_shape(device: torch.device, shape: tuple[int, ...], decay: float) -> None:
    from ordsmed.nn.kernels.adaptive_step import plain, step

    torch.manual_seed(0)
    gradients = torch.randn(shape).to(device)
    gradients[len(gradients) // 2 :] = 0
    ours, theirs = ((torch.ones_like(gradients) / 3, torch.full_like(gradients, 0.5)) for _ in range(2))
    for _ in range(3):
        step(*ours, gradients, 0.2, 1e-5, decay)
        plain(*theirs, gradients, 0.2, 1e-5, decay)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_a_tile_that_learned_nothing_is_not_touched(device: torch.device) -> None:
    """Not even where its sum is no number; a gradient that is none spoils its own weight alone."""
    from ordsmed.nn.kernels.adaptive_step import TILE, step

    weights, gradients = torch.ones(2, TILE, device=device), torch.zeros(2, TILE, device=device)
    sums = torch.ones_like(weights)
    sums[0], gradients[1, 3] = torch.nan, torch.nan
    step(weights, sums, gradients, 0.2)
    assert weights[0].eq(1).all()
    assert weights[1].isnan().nonzero().tolist() == [[3]]


def test_the_optimizer_takes_it_for_large_tables(
    device: torch.device, only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, sums and counted steps are those without it, gradients stay, and small ones are torch's."""
    from ordsmed.nn.kernels import adaptive_step as kernels

    monkeypatch.setattr(adagrad, "MIN_KERNEL_SIZE", 2_000)
    taken: list[int] = []
    before = kernels.step
    monkeypatch.setattr(kernels, "step", lambda *given: (taken.append(given[0].numel()), before(*given)))

    def learned(choice: str) -> list[Any]:
        switch.begin(choice, device)
        taken.clear()
        torch.manual_seed(0)
        table, small = (torch.nn.Parameter(torch.randn(n, 50).to(device)) for n in (60, 4))
        idle = torch.nn.Parameter(torch.randn(60, 50).to(device))
        group = {"params": [table, small, idle], "decayed": True, "lr": 0.2}
        optimizer = adagrad.Adagrad(decay=0.0).build([group])
        optimizer.param_groups[0]["lr"] = 0.2
        for step in range(3):
            for weight in (table, small):
                weight.grad = torch.zeros_like(weight)
                weight.grad[step::4] = torch.randn(weight[step::4].shape).to(device)
            optimizer.step()
            assert table.grad is not None
        return [table.detach(), small.detach(), idle.detach(), *(optimizer.state[table][k] for k in ("sum", "step"))]

    plain = learned("plain")
    assert taken == []
    ours = learned("auto")
    assert taken == [3_000] * 3
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_a_table_by_column_is_refused(device: torch.device) -> None:
    from ordsmed.nn.kernels.adaptive_step import step

    table = torch.ones(4, 6, device=device)
    across = torch.ones(6, 4, device=device).T
    for given in ((across, table, table), (table, across, table), (table, table, across)):
        with pytest.raises(AssertionError, match="contiguous"):
            step(*given, 0.2)

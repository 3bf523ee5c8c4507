"""LAMB's kernels: weights and moments after some steps are the plain form's, over tensors of any size and chunks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ordsmed.learn import updates
from ordsmed.learn.optimizers import lamb
from ordsmed.nn.kernels import switch
from ordsmed.nn.shards import LocalParameter

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy
SHAPES = ((1,), (7, 11), (700,), (3, 1_500))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other kernel is tried: under the interpreter that takes its time."""
    monkeypatch.setattr(switch, "KERNELS", ("proportional_step",))


def group(weights: list[torch.nn.Parameter], kind: str, decayed: bool) -> dict[str, Any]:
    parts = [LocalParameter.of(str(number), weight) for number, weight in enumerate(weights)]
    return {"params": weights, "parts": parts, "kind": kind, "decayed": decayed, "lr": 0.02}


def stepped(device: torch.device, how: lamb.Lamb, steps: int = 3, spoilt: bool = False) -> list[Tensor]:
    """Two groups after some steps, one weight with a gradient now and then only: weights and moments."""
    chance = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(s, generator=chance).to(device)) for s in SHAPES]
    weights[0].data.zero_()  # a norm of 0 scales nothing
    optimizer = how.build([group(weights[::2], "vector", False), group(weights[1::2], "matrix", True)])
    for each in optimizer.param_groups:
        each["lr"] = 0.02
    for step in range(steps):
        for number, weight in enumerate(weights):
            weight.grad = torch.randn(weight.shape, generator=chance).to(device) if number != 2 or step else None
        if spoilt:
            weights[3].grad[1, 4] = torch.inf  # type: ignore[index]
        optimizer.step()
    kept = [optimizer.state[weight][name] for weight in weights for name in ("exp_avg", "exp_avg_sq")]
    return [*(weight.detach() for weight in weights), *kept]


@pytest.mark.parametrize(
    "how", [{}, {"correct": False, "adapt": "matrices"}, {"adapt": "decayed", "clamp": (0.5, 3.0), "decay": 0.1}]
)
def test_weights_and_moments_are_the_plain_forms(
    device: torch.device, only: None, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ordsmed.nn.kernels import proportional_step

    monkeypatch.setattr(proportional_step, "CHUNK", 2_048)  # the largest is three chunks, the last of them not full
    proportional_step._cut.cache_clear()
    switch.begin("plain", device)
    plain = stepped(device, lamb.Lamb(**how))
    assert "proportional step" in switch.begin("auto", device)
    monkeypatch.setattr(lamb.LambOptimizer, "_directions", None)
    ours = stepped(device, lamb.Lamb(**how))
    proportional_step._cut.cache_clear()
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-6)


def test_what_is_no_number_stays_in_its_tensor(device: torch.device, only: None) -> None:
    assert "proportional step" in switch.begin("auto", device)
    spoilt = stepped(device, lamb.Lamb(), 2, spoilt=True)[: len(SHAPES)]
    assert [bool(weight.isfinite().all()) for weight in spoilt] == [True, True, True, False]


def test_what_does_not_fit_is_the_plain_forms(device: torch.device) -> None:
    from ordsmed.nn.kernels.proportional_step import fits

    whole = torch.zeros(4, 6, device=device)
    assert fits([whole, torch.nn.Parameter(whole)])
    assert not fits([whole, whole.T])
    assert not fits([whole.half()])


def test_norms_that_ranks_agree_on_are_the_plain_forms(device: torch.device, only: None) -> None:
    switch.begin("auto", device)
    weight = torch.nn.Parameter(torch.ones(3, 4, device=device))
    weight.grad = torch.ones_like(weight)
    optimizer = lamb.Lamb().build([group([weight], "matrix", True)])
    assert optimizer._by_kernels(list(updates.weight_groups(optimizer, *updates.MOMENTS)))  # type: ignore[attr-defined]
    optimizer.param_groups[0]["parts"] = [SimpleNamespace(groups=("a group of ranks",))]
    assert not optimizer._by_kernels(list(updates.weight_groups(optimizer, *updates.MOMENTS)))  # type: ignore[attr-defined]

"""AdamW against its formula, step by step, in double precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from ordsmed.learn.groups import groups
from ordsmed.optimizers import adamw


def formula(
    start: torch.Tensor, slopes: list[torch.Tensor], rates: list[float], how: adamw.Settings, decay: float
) -> torch.Tensor:
    """Loshchilov and Hutter 2017, algorithm 2: moments, bias correction, decay outside the moments."""
    weight, first, second = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    for step, (slope, rate) in enumerate(zip(slopes, rates, strict=True), 1):
        first = how.betas[0] * first + (1 - how.betas[0]) * slope.double()
        second = how.betas[1] * second + (1 - how.betas[1]) * slope.double() ** 2
        unbiased = first / (1 - how.betas[0] ** step), second / (1 - how.betas[1] ** step)
        weight = weight - rate * (unbiased[0] / (unbiased[1].sqrt() + how.epsilon) + decay * weight)
    return weight


@pytest.mark.parametrize(
    "how", [adamw.Settings(), adamw.Settings((0.9, 0.95), 1e-6, 0.1), adamw.Settings((0.0, 0.5), 1e-3, 0.0)]
)
def test_the_formula(how: adamw.Settings) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    starts = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimizer = how.build(groups(layer))
    rates = [0.1, 0.05, 0.2, 0.0, 0.3]
    slopes: dict[str, list[torch.Tensor]] = {name: [] for name in starts}
    for rate in rates:
        for name, p in layer.named_parameters():
            p.grad = torch.randn_like(p)
            slopes[name].append(p.grad.clone())
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    for name, p in layer.named_parameters():
        decay = how.decay if p.ndim > 1 else 0.0
        assert torch.allclose(
            p.double(), formula(starts[name], slopes[name], rates, how, decay), rtol=1e-5, atol=1e-6
        ), name


def test_only_matrices_decay_and_the_rate_is_the_loops() -> None:
    layer = nn.Linear(4, 4)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimizer = replace(adamw.Settings(), decay=0.5).build(groups(layer))
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}
    for p in layer.parameters():
        p.grad = torch.zeros_like(p)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    assert torch.allclose(layer.weight, before["weight"] * 0.95)
    assert torch.equal(layer.bias, before["bias"])

"""Queries and keys turned together are those turned one by one, and their gradients those of autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ordsmed.nn.models.modern import angles
from ordsmed.nn.rotary import split_rotated, turned

B, T, H, D = 2, 7, 3, 16


def gradients(by_hand: bool, dtype: torch.dtype, asked: str = "qkv") -> list[Tensor]:
    fused = torch.randn(B, T, H, 3, D, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    turn = angles(torch.arange(T).expand(B, -1), 50.0, D)
    if by_hand:
        parts = split_rotated(fused, turn)
    else:
        query, key, value = fused.unbind(3)
        parts = turned(query, turn), turned(key, turn), value
    weights = torch.randn(3, B, T, H, D, generator=torch.Generator().manual_seed(2)).to(dtype)
    torch.stack(
        [(part * weights["qkv".index(name)]).sum() for name, part in zip("qkv", parts, strict=True) if name in asked]
    ).sum().backward()
    assert fused.grad is not None
    return [*(part.detach() for part in parts), fused.grad]


@pytest.mark.parametrize("asked", ["qkv", "q", "k", "v"])
def test_they_are_the_definition_to_the_last_bit(asked: str) -> None:
    ours, defined = (gradients(by_hand, torch.float32, asked) for by_hand in (True, False))
    assert all(torch.equal(one, other) for one, other in zip(ours, defined, strict=True))
    assert bool((ours[3].abs().amax((0, 1, 2, 4)) > 0).tolist() == [name in asked for name in "qkv"])


def test_in_16_bits_slopes_are_rounded_once() -> None:
    ours, theirs = (gradients(by_hand, torch.bfloat16) for by_hand in (True, False))
    exact = gradients(True, torch.float32)[3]
    assert all(torch.equal(one, other) for one, other in zip(ours[:3], theirs[:3], strict=True))
    assert (ours[3] - exact).abs().mean() < (theirs[3] - exact).abs().mean()
    assert ours[3].dtype == torch.bfloat16


def test_a_place_turns_by_its_angle() -> None:
    turn = angles(torch.tensor([[0, 1]]), 1.0, 2)
    query, key, value = split_rotated(torch.tensor([1.0, 0.0]).expand(1, 2, 1, 3, 2), turn)
    wanted = torch.tensor([[1.0, 0.0], [torch.tensor(1.0).cos(), torch.tensor(1.0).sin()]])
    assert torch.allclose(query[0, :, 0], wanted)
    assert torch.equal(query, key)
    assert value[0, :, 0].tolist() == [[1.0, 0.0]] * 2

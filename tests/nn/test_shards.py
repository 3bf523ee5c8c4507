"""Shards: sums and norms over ranks, each tensor's box counted once, padding left out of sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kit.ranks_in_threads import Group, Split, on_ranks
from ordsmed.nn import shards
from ordsmed.nn.shards import LocalParameter


def parts_of(rank: int, group: Group) -> list[LocalParameter]:
    """A matrix whose rows are split, one whose columns are, and a vector that both ranks hold; with gradients."""
    rows, columns, vector = torch.arange(12.0).view(4, 3), torch.arange(10.0).view(2, 5) - 3, torch.tensor([2.0, -1.0])
    first = Split(group, rows, rows[rank * 3 : rank * 3 + 3 - 2 * rank].clone(), rank * 3)
    second = Split(group, columns, columns[:, rank * 3 : rank * 3 + 3 - rank].clone(), rank * 3, 1)
    made = [
        LocalParameter.of("rows", first, 3),
        LocalParameter.of("vector", vector),
        LocalParameter.of("columns", second),
    ]  # type: ignore[arg-type]
    for part in made:
        part.local.grad = part.local.detach().clone()
    return made


def test_norms_and_sums_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(rank: int, group: Group) -> Any:
        parts = parts_of(rank, group)
        squares = torch.stack([part.local.detach().square().sum() for part in parts])
        kept = squares.clone()
        found = shards.sums(squares, parts)
        assert torch.equal(squares, kept)
        calls = group.own.calls
        norm = shards.total_norm(parts)
        parts[0].local.grad = None
        return found.tolist(), calls, float(norm), float(shards.total_norm(parts))

    wanted = [float(sum(n * n for n in range(12))), 5.0, float(sum((n - 3) ** 2 for n in range(10)))]
    for found, calls, norm, without in on_ranks(2, work, monkeypatch):
        assert found == wanted
        assert calls == 1  # for both tensors
        assert norm == pytest.approx(sum(wanted) ** 0.5)
        assert without == pytest.approx(sum(wanted[1:]) ** 0.5)


def test_sizes_boxes_and_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(rank: int, group: Group) -> Any:
        parts = parts_of(rank, group)
        for part in parts:
            held = part.local.detach()
            whole = part.whole.whole if part.split else part.whole  # type: ignore[attr-defined]
            assert torch.equal(shards.cut(part, whole), held)
            assert part.local.requires_grad == part.whole.requires_grad
        boxes = [shards.box_of(part.whole) for part in parts]
        return [(part.size, part.split) for part in parts], [(b.shape, b.start, b.size) for b in boxes]

    one, two = on_ranks(2, work, monkeypatch)
    assert one[0] == two[0] == [(9, True), (2, False), (10, True)]
    assert one[1] == [((4, 3), (0, 0), (3, 3)), ((2,), (0,), (2,)), ((2, 5), (0, 0), (2, 3))]
    assert two[1] == [((4, 3), (3, 0), (1, 3)), ((2,), (0,), (2,)), ((2, 5), (0, 3), (2, 2))]


def test_a_tensor_on_a_mesh_of_one_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    group, whole = Group(1), torch.ones(3, 2)
    part = LocalParameter.of("rows", Split(group, whole, whole.clone(), 0))  # type: ignore[arg-type]
    assert not part.split
    assert shards.gathered(part, whole) is whole
    assert shards.cut(part, whole) is whole
    part.local.grad = torch.ones(3, 2)
    assert float(shards.total_norm([part])) == pytest.approx(6**0.5)


def test_plain_parts_are_their_own() -> None:
    weight, bias = torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))
    parts = [LocalParameter.of("weight", weight, 2), LocalParameter.of("bias", bias)]
    assert [(part.size, part.split, part.groups, part.local is part.whole) for part in parts] == [
        (4, False, (), True),
        (2, False, (), True),
    ]
    assert float(shards.total_norm(parts)) == 0
    weight.grad, bias.grad = torch.full((3, 2), 2.0), torch.tensor([3.0, 4.0])
    assert float(shards.total_norm(parts)) == 7
    assert shards.gathered(parts[0], weight) is weight
    parts[0].hand_over_gradient()
    assert weight.grad.tolist() == [[2.0, 2.0]] * 3


def test_a_gradient_is_handed_over_as_the_parameter_lies() -> None:
    """In one piece, though a share of columns is a view with gaps; where there is none there is none."""
    group, whole, gradients = Group(2), torch.zeros(2, 5), torch.arange(10.0).view(2, 5)
    split: Any = Split(group, whole, whole[:, 3:].clone(), 3, 1)
    part = LocalParameter.of("columns", split)
    asked = []

    def redistribute(placements: Any) -> Split:
        asked.append(placements)
        return Split(group, gradients, gradients[:, 3:], 3, 1)

    split.grad = type("Gradient", (), {"redistribute": staticmethod(redistribute)})
    part.hand_over_gradient()
    assert part.local.grad is not None
    assert part.local.grad.tolist() == [[3.0, 4.0], [8.0, 9.0]]
    assert part.local.grad.is_contiguous()
    assert asked == [split.placements]
    split.grad = None
    part.hand_over_gradient()
    assert part.local.grad is None

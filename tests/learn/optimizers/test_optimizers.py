"""Every optimizer against its formula, step by step, in double precision; and what all of them must hold to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from kit.ranks_in_threads import Group, Split, on_ranks
from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import choice
from ordsmed.learn.groups import groups
from ordsmed.learn.optimizers import adagrad, adamw, lamb, muon, stableadamw
from ordsmed.nn.shards import LocalParameter

RATES = [0.1, 0.05, 0.2, 0.0, 0.3]
EVERY = [
    adamw.AdamW(),
    adamw.AdamW(variant="bert"),
    adamw.AdamW(variant="keras"),
    lamb.Lamb(),
    lamb.Lamb(correct=False, adapt="matrices", clamp=(0.1, 10.0)),
    lamb.Lamb(adapt="decayed"),
    muon.Muon(),
    muon.Muon(adjust="original", rest_rate=0.02),
    adamw.AdamW(cautious="updates"),
    adamw.AdamW(variant="bert", cautious="decay"),
    muon.Muon(neurons=0.95, momentum_warmup=2, cautious="decay"),
    muon.Muon(cautious="updates"),
    stableadamw.StableAdamW(),
    adagrad.Adagrad(),
    adagrad.Adagrad(initial=0.0, epsilon=1e-10, decay=0.1),
]
every = pytest.mark.parametrize("how", EVERY, ids=lambda how: f"{type(how).__module__.split('.')[-1]}-{how}")


class Net(nn.Module):
    """A table, matrices tall and wide, vectors; one vector begins at 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.up, self.norm = nn.Embedding(7, 4), nn.Linear(4, 6), nn.LayerNorm(6)
        self.down = nn.Linear(6, 1, bias=False)


def give(network: nn.Module, chance: torch.Generator, size: float = 1.0) -> None:
    for p in network.parameters():
        p.grad = torch.randn(p.shape, generator=chance) * size


def take(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()


Step = tuple[torch.Tensor, int, float]
Formula = Callable[[torch.Tensor, Iterator[Step], float, str], torch.Tensor]


def agree(
    how: Any,
    formula: Formula,
    *,
    sizes: tuple[float, ...] = (1, 1, 1, 1, 1),
    kinds: str = "all",
    rtol: float = 1e-5,
    atol: float = 2e-6,
) -> None:
    """Train on random gradients and compare each weight with the formula (weight, steps, decay, kind)."""
    network, chance = Net(), torch.Generator().manual_seed(1)
    starts = {name: p.detach().clone() for name, p in network.named_parameters()}
    slopes: dict[str, list[torch.Tensor]] = {name: [] for name in starts}
    optimizer = how.build(groups(network))
    for rate, size in zip(RATES, sizes, strict=True):
        give(network, chance, size)
        for name, p in network.named_parameters():
            assert p.grad is not None
            slopes[name].append(p.grad.double())
        take(optimizer, rate)
    for name, p in network.named_parameters():
        kind = "table" if "words" in name else "matrix" if p.ndim > 1 else "vector"
        if kinds in ("all", kind):
            steps = ((s, t, r) for t, (s, r) in enumerate(zip(slopes[name], RATES, strict=True), 1))
            decay = getattr(how, "decay", 0.0) if kind != "vector" else 0.0
            wanted = formula(starts[name].double(), steps, decay, kind)
            assert not torch.allclose(wanted, starts[name].double(), rtol=1e-3)
            assert torch.allclose(p.double(), wanted, rtol=rtol, atol=atol), (name, p, wanted)


def moments(steps: Iterator[Step], betas: tuple[float, float]) -> Iterator[tuple[Any, Any, Any, int, float]]:
    first = second = torch.zeros((), dtype=torch.float64)
    for slope, step, rate in steps:
        first = betas[0] * first + (1 - betas[0]) * slope
        second = betas[1] * second + (1 - betas[1]) * slope**2
        yield slope, first, second, step, rate


def adamw_formula(how: Any) -> Formula:
    """Loshchilov and Hutter 2017, algorithm 2: moments, bias correction, decay outside the moments."""

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        for _, first, second, step, rate in moments(steps, how.betas):
            unbiased = first / (1 - how.betas[0] ** step), second / (1 - how.betas[1] ** step)
            weight = weight - rate * (unbiased[0] / (unbiased[1].sqrt() + how.epsilon) + decay * weight)
        return weight

    return formula


@pytest.mark.parametrize(
    "how", [adamw.AdamW(), adamw.AdamW((0.9, 0.95), 1e-6, 0.1), adamw.AdamW((0.0, 0.5), 1e-3, 0.0)]
)
def test_the_formula(how: adamw.AdamW) -> None:
    agree(how, adamw_formula(how))


@pytest.mark.parametrize("how", [adamw.AdamW((0.9, 0.99), 1e-6, 0.1), adamw.AdamW((0.5, 0.9), 0.1, 0.0)])
def test_bert_and_keras(how: adamw.AdamW) -> None:
    """Google's AdamWeightDecayOptimizer and NVIDIA's over Keras's Adam, with a large epsilon."""

    def bert(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        for _, first, second, _, rate in moments(steps, how.betas):
            weight = weight - rate * (first / (second.sqrt() + how.epsilon) + decay * weight)
        return weight

    def keras(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        for _, first, second, step, rate in moments(steps, how.betas):
            weight = weight - rate * decay * weight
            scaled = rate * math.sqrt(1 - how.betas[1] ** step) / (1 - how.betas[0] ** step)
            weight = weight - scaled * first / (second.sqrt() + how.epsilon)
        return weight

    agree(replace(how, variant="bert"), bert)
    agree(replace(how, variant="keras"), keras)


@pytest.mark.parametrize("variant", ["torch", "bert"])
@pytest.mark.parametrize("cautious", ["decay", "updates"])
def test_cautious_adamw(variant: Any, cautious: Any) -> None:
    """Decay where the update leads towards 0; updates with the gradient's sign, lengthened by what is left out."""
    how, left_out = adamw.AdamW((0.9, 0.95), 1e-6, 0.4, variant, cautious), []

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        for slope, first, second, step, rate in moments(steps, how.betas):
            if variant == "torch":
                first, second = first / (1 - how.betas[0] ** step), second / (1 - how.betas[1] ** step)
            directions_ = first / (second.sqrt() + how.epsilon)
            falls = (directions_ * weight > 0) if cautious == "decay" else torch.ones_like(weight)
            if cautious == "updates":
                agrees = (directions_ * slope > 0).double()
                directions_ = directions_ * agrees / max(float(agrees.mean()), 1e-3)
                left_out.append(float(agrees.mean()))
            weight = weight - rate * directions_ - rate * decay * weight * falls
        return weight

    agree(how, formula)
    assert cautious == "decay" or min(left_out) < 1 == max(left_out)


@pytest.mark.parametrize("how", [how for how in EVERY if getattr(how, "cautious", "") == "decay"], ids=str)
def test_cautious_decay_leaves_rows_without_gradient_to_the_bit(how: Any) -> None:
    network = Net()
    before = network.words.weight.detach().clone()
    give(network, torch.Generator().manual_seed(1))
    assert network.words.weight.grad is not None
    network.words.weight.grad[2:] = 0.0
    take(how.build(groups(network)), 0.1)
    assert torch.equal(network.words.weight[2:], before[2:])
    assert not torch.equal(network.words.weight[:2], before[:2])


@pytest.mark.parametrize("adapt", ["all", "matrices", "decayed"])
@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("clamp", [None, (0.5, 1.5)])
@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_lamb(adapt: Any, correct: bool, clamp: Any, decay: float) -> None:
    """You et al. 2019, algorithm 2, with whom the ratio spares."""
    how = lamb.Lamb(betas=(0.878, 0.974), decay=decay, adapt=adapt, correct=correct, clamp=clamp)

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        spared = {"all": False, "matrices": kind == "vector", "decayed": decay == 0}[adapt]
        for _, first, second, step, rate in moments(steps, how.betas):
            if correct:
                first, second = first / (1 - how.betas[0] ** step), second / (1 - how.betas[1] ** step)
            directions_ = first / (second.sqrt() + how.epsilon) + decay * weight
            tall, long = weight.norm(), directions_.norm()
            if clamp:
                tall = tall.clamp(*clamp)
            ratio = 1.0 if spared or not (tall > 0 and long > 0) else tall / long
            weight = weight - rate * ratio * directions_
        return weight

    agree(how, formula)


def test_lamb_stands_where_nothing_pulls() -> None:
    network = Net()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = lamb.Lamb(decay=0.0).build(groups(network))
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    take(optimizer, 0.1)
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (0.1, 0.1, 5, 50, 1)])
@pytest.mark.parametrize("epsilon", [1e-8, 0.5])
def test_stableadamw(sizes: tuple[float, ...], epsilon: float) -> None:
    how, slowed = stableadamw.StableAdamW((0.9, 0.99), epsilon, 0.1), []

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        first = second = torch.zeros_like(weight)
        for slope, step, rate in steps:
            one, two = (b * (1 - b ** (step - 1)) / (1 - b**step) for b in how.betas)
            first, second = one * first + (1 - one) * slope, two * second + (1 - two) * slope**2
            rms = (slope**2 / second.clamp_min(how.epsilon**2)).mean().sqrt()
            slowed.append(float(rms) > 1.01)
            slower = rate / max(1.0, float(rms))
            weight = weight - slower * decay * weight - slower * first / (second.sqrt() + how.epsilon)
        return weight

    agree(how, formula, sizes=sizes)
    assert any(slowed)


def test_stableadamw_is_adamw_where_slopes_shrink() -> None:
    """The debiased betas are the bias correction; nothing is clipped."""
    how = stableadamw.StableAdamW(betas=(0.9, 0.99), decay=0.1)
    agree(how, adamw_formula(how), sizes=(1, 0.1, 0.01, 0.01, 0.01))


@pytest.mark.parametrize(
    "how", [adagrad.Adagrad(), adagrad.Adagrad(initial=0.1), adagrad.Adagrad(0.0, 1e-2, 0.1)], ids=str
)
def test_adagrad(how: adagrad.Adagrad) -> None:
    """ELMo's: accumulators begin at 1."""

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        seen = torch.full_like(weight, how.initial)
        for slope, _, rate in steps:
            slope = slope + decay * weight
            seen = seen + slope**2
            weight = weight - rate * slope / (seen.sqrt() + how.epsilon)
        return weight

    agree(how, formula)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has its own since 2.9")
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("steps", [1, 5])
def test_muon_is_torchs_bit_by_bit(adjust: Any, steps: int) -> None:
    shapes = [(6, 4), (4, 6), (1, 5), (5, 1), (8, 8), (64, 33)]
    torch.manual_seed(0)
    ours = nn.ParameterList(torch.randn(shape) for shape in shapes)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    one = muon.Muon(momentum=0.9, decay=0.2, steps=steps, adjust=adjust).build(groups(ours))
    two = torch.optim.Muon(theirs, weight_decay=0.2, momentum=0.9, ns_steps=steps, adjust_lr_fn=adjust)
    chance = torch.Generator().manual_seed(1)
    for rate in RATES:
        give(ours, chance)
        for p, q in zip(ours, theirs, strict=True):
            q.grad = p.grad
        take(one, rate)
        take(two, rate)
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def test_muon_makes_matrices_orthogonal() -> None:
    torch.manual_seed(0)
    for shape in ((40, 12), (12, 40)):
        values = torch.linalg.svdvals(muon.orthogonal(torch.randn(shape).bfloat16(), 5).float())
        assert 0.6 < values.min() < values.max() < 1.3


SWITCHED = [
    muon.Muon(0.9, neurons=0.8),
    muon.Muon(0.9, cautious="updates"),
    muon.Muon(0.9, cautious="decay"),
    muon.Muon(0.95, momentum_warmup=3),
]


@pytest.mark.parametrize("how", SWITCHED, ids=str)
def test_muons_switches(how: muon.Muon) -> None:
    """NorMuon's rows, cautious updates and decay, and a rising momentum, each compared with its formula."""

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        mean, rows = torch.zeros_like(weight).float(), torch.zeros(len(weight), 1).double()
        for slope, step, rate in steps:
            risen = min((step - 1) / how.momentum_warmup, 1) if how.momentum_warmup else 1
            momentum = 0.85 + (how.momentum - 0.85) * risen if how.momentum_warmup else how.momentum
            mean.lerp_(slope.float(), 1 - momentum)
            directions_ = muon.orthogonal(slope.float().lerp(mean, momentum).bfloat16(), how.steps).double()
            if how.neurons:
                rows = how.neurons * rows + (1 - how.neurons) * (directions_**2).mean(1, keepdim=True)
                even = directions_ / rows.sqrt()
                directions_ = even * directions_.norm() / even.norm()
            if how.cautious == "updates":
                agrees = directions_ * slope > 0
                directions_ = directions_ * agrees / float(agrees.double().mean())
            falls = directions_ * weight > 0 if how.cautious == "decay" else torch.ones_like(weight)
            directions_ = directions_ * muon.adjustment(weight, how.adjust)
            weight = weight - rate * directions_ - rate * decay * weight * falls
        return weight

    tolerance = {"rtol": 2e-2, "atol": 2e-3} if how.cautious == "updates" else {}  # scaled in bf16
    agree(how, formula, kinds="matrix", **tolerance)


def test_muon_turns_queries_keys_and_values_each_by_itself() -> None:
    """Rows lie head by head; what one matrix of each learns alone is what the three learn together."""
    torch.manual_seed(0)
    apart = nn.ModuleList(nn.Linear(8, 6, bias=False) for _ in range(3))  # 2 heads of 3
    fused = nn.ModuleDict({"gather": nn.Linear(8, 18, bias=False), "mix": nn.Linear(8, 18, bias=False)})
    together = nn.ModuleDict({"gather": nn.Linear(8, 18, bias=False), "mix": nn.Linear(8, 18, bias=False)})

    def rows(tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([tensor.unflatten(0, (2, 3)) for tensor in tensors], 1).flatten(0, 2)

    with torch.no_grad():
        fused["gather"].weight.copy_(rows([layer.weight for layer in apart]))  # type: ignore[arg-type, operator]
    together.load_state_dict(fused.state_dict())
    for layer in apart:
        layer.weight.grad = torch.randn(6, 8)
    for network in (fused, together):
        for layer in network.values():
            layer.weight.grad = rows([layer.weight.grad for layer in apart])  # type: ignore[arg-type, misc]
    take(muon.Muon().build(groups(apart)), 0.1)
    take(muon.Muon(qkv={"gather": 3}).build(groups(fused)), 0.1)
    take(muon.Muon().build(groups(together)), 0.1)
    torch.testing.assert_close(fused["gather"].weight, rows([layer.weight for layer in apart]))  # type: ignore[arg-type]
    assert not torch.allclose(together["gather"].weight, fused["gather"].weight, rtol=1e-2)  # type: ignore[arg-type]
    assert torch.equal(together["mix"].weight, fused["mix"].weight)  # type: ignore[arg-type]
    for qkv, found in (({"gather": 4}, "gather.weight of 18 rows"), ({"query": 3}, "no matrix")):
        with pytest.raises(RecipeError, match=rf"optimizer\.qkv: \w+: matches {found}"):
            muon.Muon(qkv=qkv).build(groups(fused))


def test_rows_of_normuon_are_as_long_as_each_other() -> None:
    """After its first step; without it they are not, and the whole is as long either way."""
    torch.manual_seed(0)
    slope, lengths = torch.randn(6, 40) * torch.logspace(0, 1, 6)[:, None], {}
    for neurons in (0.0, 0.95):
        layer = nn.Linear(40, 6, bias=False)
        nn.init.zeros_(layer.weight)
        layer.weight.grad = slope.clone()
        take(muon.Muon(neurons=neurons, steps=1).build(groups(layer)), 1.0)
        lengths[neurons] = layer.weight.detach().norm(dim=1)
    assert lengths[0.0].max() > 2 * lengths[0.0].min()
    torch.testing.assert_close(lengths[0.95], lengths[0.95].mean().expand(6))
    torch.testing.assert_close(lengths[0.95].norm(), lengths[0.0].norm(), rtol=1e-2, atol=0)


def test_muon_takes_filters_as_rows() -> None:
    """A kernel of a convolution is a matrix of its filters."""
    torch.manual_seed(0)
    flat = nn.Linear(6, 4, bias=False)
    filters = nn.Conv1d(3, 4, 2, bias=False)
    filters.weight.data.copy_(flat.weight.detach().view(4, 3, 2))
    chance = torch.Generator().manual_seed(1)
    give(flat, chance)
    filters.weight.grad = flat.weight.grad.view(4, 3, 2)  # type: ignore[union-attr]
    for network in (flat, filters):
        take(muon.Muon().build(groups(network)), 0.1)
    assert torch.equal(filters.weight.view(4, 6), flat.weight)


def test_muon_leaves_the_rest_to_adamw() -> None:
    how = muon.Muon(rest_rate=0.5, rest_betas=(0.8, 0.9), rest_epsilon=1e-4, rest_decay=0.3)
    like = adamw.AdamW(how.rest_betas, how.rest_epsilon)

    def formula(weight: torch.Tensor, steps: Iterator[Step], decay: float, kind: str) -> torch.Tensor:
        halved = ((slope, step, rate / 2) for slope, step, rate in steps)
        return adamw_formula(like)(weight, halved, 0.3 if kind == "table" else 0.0, kind)

    for kind in ("table", "vector"):
        agree(how, formula, kinds=kind)


def test_only_matrices_decay_and_the_rate_is_the_loops() -> None:
    layer = nn.Linear(4, 4)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimizer = replace(adamw.AdamW(), decay=0.5).build(groups(layer))
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}
    for p in layer.parameters():
        p.grad = torch.zeros_like(p)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    assert torch.allclose(layer.weight, before["weight"] * 0.95)
    assert torch.equal(layer.bias, before["bias"])


@every
def test_groups_keep_what_they_say_and_begin_at_rate_0(how: Any) -> None:
    given = groups(Net())
    before = [dict(group) for group in given]
    made = how.build(given).param_groups
    assert [dict(group) for group in given] == before
    assert {group["lr"] for group in made} == {0.0}
    assert sorted(n for group in made for n in group["names"]) == sorted(n for group in given for n in group["names"])
    for group in made:
        told = next(g for g in given if g["names"] == group["names"])
        assert {key: group[key] for key in told} == told


@every
def test_a_restart_goes_on_bit_by_bit(how: Any) -> None:
    """What is kept is tensors in `state`, and all of it: put back into a new optimizer, the same bits follow."""
    one, two = Net(), Net()
    first, second = how.build(groups(one)), how.build(groups(two))
    chance = torch.Generator().manual_seed(1)
    for _ in range(3):
        give(one, chance)
        take(first, 0.1)
    two.load_state_dict(one.state_dict())
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert all(isinstance(value, torch.Tensor) for value in first.state[p].values())
        assert first.state[p]["step"].shape == ()
        assert sum(value.numel() == p.numel() > 1 for value in first.state[p].values()) <= how.moments
        second.state[q] = {name: value.clone() for name, value in first.state[p].items()}
    chances = [torch.Generator().manual_seed(2), torch.Generator().manual_seed(2)]
    for _ in range(3):
        for network, optimizer, slopes in zip((one, two), (first, second), chances, strict=True):
            give(network, slopes)
            take(optimizer, 0.1)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    assert max(sum(v.shape == p.shape for v in first.state[p].values()) for p in one.parameters()) == how.moments


@every
def test_what_has_no_gradient_stands(how: Any) -> None:
    """In a group with others, in one of its own, and where nothing has any; its step is not counted."""
    network = Net()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = how.build(groups(network))
    take(optimizer, 0.1)
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())
    give(network, torch.Generator().manual_seed(1))
    network.words.weight.grad = network.norm.bias.grad = None
    take(optimizer, 0.1)
    stood = {name for name, p in network.named_parameters() if torch.equal(p, before[name])}
    assert stood == {"words.weight", "norm.bias"}
    assert float(optimizer.state[network.up.weight]["step"]) == 1
    assert float(optimizer.state[network.norm.bias].get("step", 0)) == 0


@every
def test_a_rank_may_hold_nothing_of_a_tensor(how: Any) -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.none, self.bias = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.zeros(0))
            self.full = nn.Linear(3, 2)

    for network in (Part(), nn.ParameterList([torch.zeros(0, 3)])):
        optimizer = how.build(groups(network))
        for _ in range(2):
            give(network, torch.Generator().manual_seed(1))
            take(optimizer, 0.1)
        assert all(p.isfinite().all() for p in network.parameters())


@every
def test_where_nothing_pulls_only_decay_moves(how: Any) -> None:
    network = Net()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = how.build(groups(network))
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    take(optimizer, 0.01)
    vectors = {name for name, p in network.named_parameters() if p.ndim == 1}
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters() if name in vectors)
    assert all(torch.allclose(p, before[name], rtol=0.0101, atol=0.0101) for name, p in network.named_parameters())


SPLIT = [
    lamb.Lamb(),
    lamb.Lamb(clamp=(0.5, 1.5)),
    stableadamw.StableAdamW(),
    adamw.AdamW(cautious="updates"),
    adamw.AdamW(cautious="decay"),
]


@pytest.mark.parametrize("how", SPLIT, ids=str)
def test_weights_split_over_ranks_learn_what_whole_ones_learn(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms are of complete tensors; padding rows, with gradients of 0, are not counted in means."""
    chance = torch.Generator().manual_seed(1)
    table, matrix = torch.randn(5, 4, generator=chance), torch.randn(3, 6, generator=chance)
    slopes = [[torch.randn(w.shape, generator=chance) * size for w in (table, matrix)] for size in (0.1, 3.0, 1.0)]

    def group_of(parts: list[LocalParameter], kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            "decayed": True,
            "share": 1.0,
            "names": [p.name for p in parts],
            "parts": parts,
            "params": [p.local for p in parts],
        }

    def learned(rank: int, group: Group) -> list[torch.Tensor]:
        def boxes(table: torch.Tensor, matrix: torch.Tensor) -> list[torch.Tensor]:
            if group.size == 1:
                return [table.clone(), matrix.clone()]
            padded = torch.nn.functional.pad(table, (0, 0, 0, 3))
            return [padded[rank * 4 : rank * 4 + 4].clone(), matrix[:, rank * 3 : rank * 3 + 3].clone()]

        one, two = (box.requires_grad_() for box in boxes(table, matrix))
        first, second = one, two
        if group.size > 1:
            first, second = Split(group, torch.empty(8, 4), one, rank * 4), Split(group, matrix, two, rank * 3, 1)
        parts = [LocalParameter("table", first, one, 5), LocalParameter("matrix", second, two)]
        optimizer = how.build([group_of(parts[:1], "table"), group_of(parts[1:], "matrix")])
        for both in slopes:
            one.grad, two.grad = boxes(*both)
            take(optimizer, 0.1)
        return [one.detach(), two.detach()]

    [[table_alone, matrix_alone]] = on_ranks(1, learned, monkeypatch)
    (above, left), (below, right) = on_ranks(2, learned, monkeypatch)
    assert not torch.allclose(table_alone, table, rtol=0.1)
    torch.testing.assert_close(torch.cat([above, below])[:5], table_alone)
    torch.testing.assert_close(torch.cat([left, right], 1), matrix_alone)


LAST = [
    (muon, {"momentum": 0.0, "steps": 1, "decay": 0.0, "rest_rate": 0.0, "rest_decay": 0.0}),
    (muon, {"steps": 99, "rest_betas": (0.0, 0.0)}),
    (lamb, {"clamp": (0.0, 1e-9), "decay": 0.0}),
    (lamb, {"epsilon": 0.99}),
    (adagrad, {"initial": 0.0, "epsilon": 1e-30}),
    (adagrad, {"initial": 1e-30}),
    (stableadamw, {"betas": (0.0, 0.999999), "decay": 9.0}),
]


@pytest.mark.parametrize(("kind", "how"), LAST)
def test_the_last_values_that_can_be_are_taken(kind: Any, how: dict[str, Any]) -> None:
    made = choice(kind)(**how)
    assert {name: getattr(made, name) for name in how} == how


WRONG = [
    ("adamw", "betas", [0.9, 1.0]),
    ("adamw", "betas", [0.9]),
    ("adamw", "epsilon", 0.0),
    ("adamw", "decay", -0.1),
    ("adamw", "variant", "tensorflow"),
    ("lamb", "betas", [-0.1, 0.9]),
    ("lamb", "epsilon", 1.0),
    ("lamb", "decay", float("inf")),
    ("lamb", "adapt", "none"),
    ("lamb", "clamp", [1.0, 0.5]),
    ("lamb", "clamp", [-1.0, 0.5]),
    ("lamb", "clamp", [0.5, 0.5]),
    ("muon", "momentum", -0.1),
    ("muon", "momentum", 1.0),
    ("muon", "neurons", 1.0),
    ("muon", "qkv", {"gather": 0}),
    ("muon", "cautious", "yes"),
    ("muon", "momentum_warmup", -1),
    ("adamw", "cautious", True),
    ("muon", "steps", 0),
    ("muon", "steps", 100),
    ("muon", "adjust", "other"),
    ("muon", "decay", float("nan")),
    ("muon", "rest_rate", -1.0),
    ("muon", "rest_betas", [0.9, 2.0]),
    ("muon", "rest_epsilon", 0.0),
    ("muon", "rest_decay", -1.0),
    ("stableadamw", "betas", [1.0, 0.9]),
    ("stableadamw", "epsilon", -1e-8),
    ("stableadamw", "decay", -1.0),
    ("adagrad", "initial", -1.0),
    ("adagrad", "initial", 0.0),
    ("adagrad", "epsilon", -1.0),
    ("adagrad", "decay", -1.0),
]


@pytest.mark.parametrize(("kind", "key", "value"), WRONG)
def test_what_cannot_be_is_refused(kind: str, key: str, value: Any) -> None:
    cls = choice({"adamw": adamw, "lamb": lamb, "muon": muon, "stableadamw": stableadamw, "adagrad": adagrad}[kind])
    with pytest.raises(RecipeError, match=rf"optimizer\.{key}"):
        settings.decode(cls, {key: value}, "r.toml: optimizer")


def test_a_momentum_rises_to_its_value() -> None:
    with pytest.raises(RecipeError, match=r"optimizer\.momentum_warmup: .*momentum of 0.8"):
        settings.decode(muon.Muon, {"momentum": 0.8, "momentum_warmup": 10}, "r.toml: optimizer")


def test_settings_decode() -> None:
    made = settings.decode(lamb.Lamb, {"clamp": [0, 10], "betas": [0.878, 0.974]}, "r.toml: optimizer")
    assert made == lamb.Lamb(betas=(0.878, 0.974), clamp=(0.0, 10.0))

"""The chunked loss equals torch's in value and gradients, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kit.ranks_in_threads import Split, on_ranks
from ordsmed.learn.sampling import Draw, keys
from ordsmed.nn import loss
from ordsmed.nn.loss import token_hits, token_loss

N, D, V = 37, 12, 50


def asked(seed=0, bias=True, weighted=True):
    made = torch.Generator().manual_seed(seed)
    hidden = torch.randn(N, D, generator=made, requires_grad=True)
    table = torch.randn(V, D, generator=made, requires_grad=True)
    slant = torch.randn(V, generator=made, requires_grad=True) if bias else None
    targets = torch.randint(0, V, (N,), generator=made)
    weights = (torch.rand(N, generator=made) < 0.6).float() if weighted else torch.rand(N, generator=made)
    return hidden, table, slant, targets, weights


def plain(hidden, table, bias, targets, weights):
    return (weights * F.cross_entropy(F.linear(hidden, table, bias), targets, reduction="none")).sum()


def gradients(value, leaves, upstream=1.0):
    (value * upstream).backward()
    found = [leaf.grad.clone() for leaf in leaves if leaf is not None]
    for leaf in leaves:
        if leaf is not None:
            leaf.grad = None
    return found


def near(one, other, tolerance=1e-5):
    return bool((one - other).abs().max() <= tolerance * max(1e-6, float(other.abs().max())))


@pytest.fixture(params=[1 << 23, 8 * V, 7 * V, V, 1])
def chunk(request, monkeypatch):
    """All rows at once, several to a chunk with and without a rest, one a chunk."""
    monkeypatch.setattr(loss, "CHUNK_SCORES", request.param)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_value_and_gradients_are_torchs(chunk, bias, weighted):
    inputs = asked(bias=bias, weighted=weighted)
    ours, theirs = token_loss(*inputs), plain(*inputs)
    assert near(ours.detach(), theirs.detach())
    for mine, wanted in zip(gradients(ours, inputs[:3], 0.3), gradients(theirs, inputs[:3], 0.3), strict=True):
        assert near(mine, wanted)


def test_a_weight_of_0_hides_a_slot():
    hidden, table, bias, targets, weights = asked()
    weights[5:9] = 0
    other = hidden.detach().clone()
    other[5:9] = 100.0
    one = token_loss(hidden, table, bias, targets, weights)
    assert float(one.detach()) == pytest.approx(
        float(token_loss(other, table, bias, targets, weights).detach()), rel=1e-6
    )
    one.backward()
    assert (hidden.grad[5:9] == 0).all()
    assert (hidden.grad[weights > 0].abs().amax(1) > 0).all()


def test_all_weights_0_give_0_and_no_gradient():
    hidden, table, bias, targets, weights = asked()
    value = token_loss(hidden, table, bias, targets, weights * 0)
    value.backward()
    assert float(value.detach()) == 0
    assert all(not leaf.grad.any() for leaf in (hidden, table, bias))


def test_shapes_of_rows_and_places_are_flattened():
    hidden, table, bias, targets, weights = asked()
    rows = [hidden[:36].detach().reshape(4, 9, D), table, bias, targets[:36].reshape(4, 9), weights[:36].reshape(4, 9)]
    flat = [hidden[:36].detach(), table, bias, targets[:36], weights[:36]]
    assert torch.equal(token_loss(*rows), token_loss(*flat))


def test_large_scores_stay_finite():
    hidden, table, bias, targets, weights = asked()
    with torch.no_grad():
        hidden.mul_(1e3)
    ours, theirs = token_loss(hidden, table, bias, targets, weights), plain(hidden, table, bias, targets, weights)
    assert near(ours.detach(), theirs.detach())
    assert all(torch.isfinite(g).all() for g in gradients(ours, (hidden, table, bias)))


def test_a_shifted_target_changes_the_loss():
    hidden, table, bias, targets, weights = asked()
    one = token_loss(hidden, table, bias, targets, weights)
    assert abs(float((one - token_loss(hidden, table, bias, targets.roll(1), weights)).detach())) > 0.1


def test_bf16_is_close_and_sums_in_fp32():
    inputs = asked(weighted=False)
    exact = token_loss(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rough = token_loss(*inputs)
    assert rough.dtype == torch.float32
    assert float(rough.detach()) == pytest.approx(float(exact.detach()), rel=1e-2)
    pairs = zip(gradients(rough, inputs[:3]), gradients(exact, inputs[:3]), strict=True)
    for mine, wanted in pairs:
        assert mine.dtype == torch.float32
        assert near(mine, wanted, 0.05)


def test_the_table_used_twice_gets_both_gradients():
    """Tied: words are looked up in the same table that scores them."""
    _, table, bias, targets, weights = asked()
    ids = torch.arange(N) % V
    ours = token_loss(F.embedding(ids, table), table, bias, targets, weights)
    theirs = plain(F.embedding(ids, table), table, bias, targets, weights)
    for mine, wanted in zip(gradients(ours, (table, bias)), gradients(theirs, (table, bias)), strict=True):
        assert near(mine, wanted)


def test_without_gradients_the_value_is_the_same(chunk):
    inputs = asked()
    with torch.no_grad():
        quiet = token_loss(*inputs)
    assert torch.equal(quiet, token_loss(*inputs).detach())


def test_hits_count_the_best_score(chunk):
    hidden, table, bias, targets, weights = asked()
    with torch.no_grad():
        best = F.linear(hidden, table, bias).argmax(1)
        targets[::2] = best[::2]
        assert float(token_hits(hidden, table, bias, targets, weights)) == float(weights[targets == best].sum())
        assert float(token_hits(hidden, table, bias, best, weights)) == float(weights.sum())


def test_chunks_cover_every_row_once():
    for rows in (0, 1, 2, 100, 2049):
        found = [n for part in loss._chunks(rows, 1 << 20, 1 << 24) for n in range(rows)[part]]
        assert found == list(range(rows))


@pytest.mark.parametrize("size", [0.1, 30.0, 400.0])
def test_scores_of_any_size(size: float) -> None:
    """Small ones take no shift by their highest, large ones must: e^400 is no fp32 number."""
    torch.manual_seed(0)
    hidden, table = torch.randn(9, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    targets, weights = torch.arange(9) % 7, torch.ones(9)
    ours = token_loss(hidden * size, table, None, targets, weights)
    mine = torch.autograd.grad(ours, [hidden, table])
    theirs = torch.nn.functional.cross_entropy(hidden * size @ table.T, targets, reduction="sum")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for a, b in zip(mine, torch.autograd.grad(theirs, [hidden, table]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * size)


def written_down(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, weights: Tensor, drawn: Tensor
) -> Tensor:
    own = (hidden * table[targets]).sum(1) + bias[targets]
    others = (hidden @ table[drawn].T + bias[drawn]).masked_fill(drawn[None] == targets[:, None], -torch.inf)
    scores = torch.cat([own[:, None], others], 1)
    losses = torch.nn.functional.cross_entropy(scores, torch.zeros_like(targets), reduction="none")
    return (losses * weights).sum()


@pytest.mark.parametrize("chunk", [1 << 24, 40])
def test_a_sampled_loss_is_the_written_one(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients; targets among the candidates do not count twice; scores far from 0 do not run over."""
    monkeypatch.setattr(loss, "CHUNK_SCORES", chunk)
    torch.manual_seed(0)
    hidden, table, bias = torch.randn(14, 5), torch.randn(50, 5) * 3, torch.randn(50) * 20
    targets, drawn = torch.randint(50, (14,)), torch.randperm(50)[:17]
    targets[3] = drawn[4]
    weights = torch.tensor([1.0, 0.0] * 7)
    found = []
    for way in (0, 1):
        inputs = [x.clone().requires_grad_() for x in (hidden, table, bias)]
        h, t, b = inputs
        if way:
            value = written_down(h, t, b, targets, weights, drawn)
        else:
            value = loss.sampled_loss(h, (t[targets], b[targets]), (t[drawn], b[drawn]), targets, weights, drawn)
        (value * 0.5).backward()
        found.append([value.detach(), *(x.grad for x in inputs)])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


def test_with_every_word_drawn_it_is_the_whole_softmax() -> None:
    torch.manual_seed(0)
    hidden, table, bias, targets = torch.randn(6, 5), torch.randn(30, 5), torch.randn(30), torch.randint(30, (6,))
    words, weights = torch.randperm(30), torch.ones(6)
    whole = loss.token_loss(hidden, table, bias, targets, weights)
    sampled = loss.sampled_loss(
        hidden, (table[targets], bias[targets]), (table[words], bias[words]), targets, weights, words
    )
    assert torch.allclose(whole, sampled, rtol=1e-5)


@pytest.mark.parametrize("offset", [-95.0, 95.0, -300.0, 300.0])
def test_scores_that_are_all_low_or_all_high(offset: float) -> None:
    """Where no score is near 0 every exp is 0 or runs over, unless the highest is taken off first."""
    torch.manual_seed(0)
    hidden, table = torch.randn(5, 4, requires_grad=True), torch.randn(7, 4)
    bias, targets = torch.full((7,), offset), torch.arange(5)
    ours = token_loss(hidden, table, bias, targets, torch.ones(5))
    theirs = F.cross_entropy(hidden @ table.T + bias, targets, reduction="sum")
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-4)
    mine, wanted = (torch.autograd.grad(value, hidden)[0] for value in (ours, theirs))
    torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-4)


# a table split by rows over ranks

WAYS = pytest.mark.parametrize("by_hand", [("cpu",), ()])  # a CPU leaves padding out, a GPU keeps it
SPLITS = [(0, 49), (49, 49), (98, 49)]  # 50 words: the second rank has one and rows of padding, the last nothing else
PADDED = 147


def split_over_ranks(monkeypatch, hidden, table, bias, work):
    """`work(hidden, table, bias)` on each rank, and what each box learned of it."""

    def one(rank, group):
        first, count = SPLITS[rank]
        padded = (
            F.pad(table.detach(), (0, 0, 0, PADDED - V), value=7.0),
            F.pad(bias.detach(), (0, PADDED - V), value=7.0),
        )
        boxes = [whole[first : first + count].clone().requires_grad_() for whole in padded]
        own = hidden.detach().clone().requires_grad_()
        value = work(own, *(Split(group, w, b, first) for w, b in zip(padded, boxes, strict=True)))
        return value, own, *boxes

    return on_ranks(len(SPLITS), one, monkeypatch)


@WAYS
@pytest.mark.parametrize("chunk", [1 << 24, 7 * V])
def test_a_split_table_gives_what_the_whole_one_gives(
    chunk: int, by_hand: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradients on every rank, with scores far above those that need no shift."""
    monkeypatch.setattr(loss, "BY_HAND", by_hand)
    monkeypatch.setattr(loss, "DEVICE_SCORES", chunk)
    monkeypatch.setattr(loss, "CHUNK_SCORES", chunk)
    hidden, table, bias, targets, weights = asked()
    with torch.no_grad():
        bias.add_(200)
    wanted = token_loss(hidden, table, bias, targets, weights)
    to_hidden, to_table, to_bias = gradients(wanted, (hidden, table, bias), 0.3)

    def work(own, split_table, split_bias):
        value = token_loss(own, split_table, split_bias, targets, weights, V)
        (value * 0.3).backward()
        return value.detach()

    for (first, count), (value, *leaves) in zip(
        SPLITS, split_over_ranks(monkeypatch, hidden, table, bias, work), strict=True
    ):
        assert near(value, wanted.detach())
        held = [F.pad(to_table, (0, 0, 0, PADDED - V)), F.pad(to_bias, (0, PADDED - V))]
        expected = [to_hidden, *(whole[first : first + count] for whole in held)]
        for leaf, gradient in zip(leaves, expected, strict=True):
            grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            assert (grad - gradient).abs().max() <= 1e-4 * to_table.abs().max()


@WAYS
def test_a_split_table_hits_what_the_whole_one_hits(by_hand: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of equal scores counts, whichever rank has it."""
    monkeypatch.setattr(loss, "BY_HAND", by_hand)
    hidden, table, bias, targets, weights = asked()
    with torch.no_grad():
        table[49], bias[49] = table[2], bias[2]
        table[21], bias[21] = table[2], bias[2]
        targets[:] = F.linear(hidden, table, bias).argmax(1)
        targets[3], targets[7] = 49, 21
        wanted = float(token_hits(hidden, table, bias, targets, weights))
    assert 0 < wanted <= float(weights.sum())
    with torch.no_grad():
        found = split_over_ranks(
            monkeypatch, hidden, table, bias, lambda h, t, b: token_hits(h, t, b, targets, weights, V)
        )
    assert [float(one[0]) for one in found] == [wanted] * len(SPLITS)


@WAYS
@pytest.mark.parametrize("how", [{}, {"temperature": 1.5}, {"never_right": True}])
def test_words_drawn_from_a_split_table_are_the_whole_ones(how, by_hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "BY_HAND", by_hand)
    hidden, table, bias, targets, weights = asked(weighted=False)
    with torch.no_grad():
        bias.sub_(90)  # without a shift every share is 0
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(N))), 1, V, **how)
    wanted, drawn = loss.token_loss_and_draws(hidden, table, bias, targets, weights, V, draw)
    assert near(wanted.detach(), plain(hidden, table, bias, targets, weights).detach())
    assert drawn.shape == targets.shape
    assert len(set(drawn.tolist())) > 10
    scores = F.linear(hidden, table, bias).detach() / how.get("temperature", 1.0)
    if "never_right" in how:
        assert (drawn != targets).all()
        scores[range(N), targets] = -torch.inf
    alone = draw.word(scores.softmax(1), draw.block(draw.sums(scores.softmax(1)), slice(0, N)), slice(0, N))[1]
    assert torch.equal(drawn, alone)
    for value, *_ in split_over_ranks(
        monkeypatch, hidden, table, bias, lambda h, t, b: loss.token_loss_and_draws(h, t, b, targets, weights, V, draw)
    ):
        assert near(value[0].detach(), wanted.detach())
        assert torch.equal(value[1], drawn)


@pytest.mark.parametrize("with_bias", [True, False])
def test_a_gpu_scores_as_many_rows_on_every_rank(with_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even ones: fewer on the last rank would cost it the fast kernels, and all wait for it. Padding learns nothing."""
    monkeypatch.setattr(loss, "BY_HAND", ())
    hidden, table, bias, targets, weights = asked(weighted=False)
    scores, scored = loss._scores, []
    monkeypatch.setattr(loss, "_scores", lambda h, t, *given: (scored.append(len(t)), scores(h, t, *given))[1])
    wanted = token_loss(hidden, table, bias if with_bias else None, targets, weights)
    scored.clear()

    def work(own, split_table, split_bias):
        value = token_loss(own, split_table, split_bias if with_bias else None, targets, weights, V)
        value.backward()
        with torch.no_grad():
            return value.detach(), loss.token_logs(own, split_table, split_bias if with_bias else None, targets, V)[0]

    for (first, count), ((value, logs), _, box, *_) in zip(
        SPLITS, split_over_ranks(monkeypatch, hidden, table, bias, work), strict=True
    ):
        assert near(value, wanted.detach())
        assert near(-(weights * logs).sum(), wanted.detach())
        assert not box.grad[max(V - first, 0) : count].any()
    assert set(scored) == {49}


def test_rows_behind_the_vocabulary_are_void() -> None:
    hidden, table, bias, targets, weights = asked()
    count = 30
    targets = targets % count
    wanted = token_loss(hidden, table[:count], bias[:count], targets, weights)
    found = token_loss(hidden, table, bias, targets, weights, count)
    assert torch.equal(found, wanted)
    learned = gradients(found, (table, bias))
    assert all(gradient[:count].any() and not gradient[count:].any() for gradient in learned)
    with torch.no_grad():
        bias[count:] += 100
        assert torch.equal(
            token_hits(hidden, table, bias, targets, weights, count),
            token_hits(hidden, table[:count], bias[:count], targets, weights),
        )


def test_sixteen_bits_in_chunks_learn_what_they_learn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk's part of the table's gradient counts."""
    inputs, found = asked(weighted=False), []
    for chunk in (1 << 24, 6 * V):
        monkeypatch.setattr(loss, "CHUNK_SCORES", chunk)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(gradients(token_loss(*inputs), inputs[:3]))
    for at_once, in_chunks in zip(*found, strict=True):
        assert near(in_chunks, at_once, 0.02)


def test_a_sampled_loss_takes_rows_of_places() -> None:
    hidden, table, bias, targets, weights = asked()
    drawn = torch.randperm(V, generator=torch.Generator().manual_seed(3))[:17]
    others, own = (table[drawn], bias[drawn]), (table[targets], bias[targets])
    flat = loss.sampled_loss(hidden[:36], (own[0][:36], own[1][:36]), others, targets[:36], weights[:36], drawn)
    rows = loss.sampled_loss(
        hidden[:36].view(4, 9, D),
        (own[0][:36], own[1][:36]),
        others,
        targets[:36].view(4, 9),
        weights[:36].view(4, 9),
        drawn,
    )
    assert torch.equal(flat, rows)


# the way of devices other than the CPU


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, three chunks of rows and a vocabulary that needs 14 more words to be even."""
    monkeypatch.setattr(loss, "BY_HAND", ())
    monkeypatch.setattr(loss, "ALIGNMENT", 64)
    monkeypatch.setattr(loss, "DEVICE_SCORES", 13 * V)


@pytest.mark.parametrize("bias", [True, False])
def test_a_device_tells_and_learns_what_torch_does(on_device: None, bias: bool) -> None:
    inputs = asked(bias=bias, weighted=False)
    ours, theirs = token_loss(*inputs), plain(*inputs)
    assert near(ours.detach(), theirs.detach())
    for mine, wanted in zip(gradients(ours, inputs[:3], 0.3), gradients(theirs, inputs[:3], 0.3), strict=True):
        assert near(mine, wanted)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_a_device_in_16_bits_pads_the_vocabulary_and_learns_the_same(
    on_device: None, bias: bool, dtype: torch.dtype, bound: float
) -> None:
    """Nothing is learned of words that are not there, and the same of those that are."""
    inputs = asked(bias=bias, weighted=False)
    theirs = plain(*inputs)
    wanted = gradients(theirs, inputs[:3])
    with torch.autocast("cpu", dtype):
        ours = token_loss(*inputs)
    found = gradients(ours, inputs[:3])
    assert near(ours.detach(), theirs.detach(), bound)
    assert [gradient.shape for gradient in found] == [leaf.shape for leaf in inputs[:3] if leaf is not None]
    assert all(near(mine, gradient, 2 * bound) for mine, gradient in zip(found, wanted, strict=True))


def test_fp16_learns_of_words_that_are_all_but_never_right(on_device: None) -> None:
    """A share of 3e-7 is next to nothing in fp16, where 6e-8 is the smallest number: what it learns is still right."""
    hidden = torch.zeros(64, 1)
    table, bias = torch.zeros(V, 1, requires_grad=True), torch.zeros(V)
    bias[1:] = -15.0
    bias.requires_grad_()
    targets, weights = torch.zeros(64, dtype=torch.int64), torch.ones(64)
    with torch.autocast("cpu", torch.float16):
        value = token_loss(hidden, table, bias, targets, weights)
    value.backward()
    share = float(np.exp(-15.0) / (1 + (V - 1) * np.exp(-15.0)))
    assert bias.grad[1:].tolist() == pytest.approx([64 * share] * (V - 1), rel=0.02)


def test_a_device_hits_and_draws_what_a_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain draws, wilder ones, and such as are never right; in fp32 they are the very same words."""
    hidden, table, bias, targets, weights = asked()
    rows = torch.from_numpy(keys(7, np.arange(N)))
    found = []
    for by_hand in (("cpu",), ()):
        monkeypatch.setattr(loss, "BY_HAND", by_hand)
        own = [token_hits(hidden, table, bias, targets, weights)]
        for how in ({}, {"temperature": 1.7}, {"never_right": True}):
            draw = Draw.of(rows, 1, V, **how)
            own += loss.token_loss_and_draws(hidden, table, bias, targets, weights, V, draw)
        found.append([value.detach() for value in own])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) if one.ndim else near(one, other)


def test_in_validation_nothing_is_kept_for_learning(on_device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = asked()
    monkeypatch.setattr(loss, "_Gradients", None)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        value = token_loss(*inputs)
        hits = token_hits(inputs[0].bfloat16(), *inputs[1:])
    assert near(value, plain(*inputs).detach(), 2e-2)
    assert 0 <= float(hits) <= float(inputs[4].sum())


# gradients in 16 bits


def apart(found: Tensor, exact: Tensor) -> float:
    """The length of the difference, as a share of the exact one's."""
    return float((found.double() - exact).norm() / exact.norm())


def confident(share: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states in bf16 that lean to their targets so far that these have such a share in the mean."""
    made = torch.Generator().manual_seed(4)
    rows, words, width = 384, 300, 32
    table = torch.randn(words, width, generator=made).bfloat16()
    targets, noise = torch.randint(words, (rows,), generator=made), torch.randn(rows, width, generator=made)
    low, high = 0.0, 2.0
    for _ in range(40):
        lean = (low + high) / 2
        hidden = (0.3 * noise + lean * table[targets].float()).bfloat16()
        own = (hidden.float() @ table.float().T).softmax(1).gather(1, targets[:, None]).mean()
        low, high = (lean, high) if own < share else (low, lean)
    return hidden, table, torch.zeros(words), targets


def rounded_once(scores: Tensor, hidden: Tensor, table: Tensor, targets: Tensor) -> list[Tensor]:
    """As others do it: shares less the targets' 1 in fp32, rounded to bf16, then the products."""
    gradients = (scores.softmax(1) - F.one_hot(targets, len(table))).bfloat16()
    return [gradients @ table, gradients.T @ hidden, gradients.float().sum(0)]


@pytest.mark.parametrize("by_hand", [("cpu",), ()])
@pytest.mark.parametrize("share", [0.04, 0.52, 0.96])
def test_gradients_in_bf16_are_no_rougher_than_softmax_less_1_rounded_once(
    share: float, by_hand: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "BY_HAND", by_hand)
    monkeypatch.setattr(loss, "CHUNK_SCORES", 100 * 300)
    monkeypatch.setattr(loss, "DEVICE_SCORES", 100 * 300)
    hidden, table, bias, targets = confident(share)
    scores = (hidden @ table.T).float()
    gradients = scores.double().softmax(1) - F.one_hot(targets, len(table))
    assert float(scores.softmax(1).gather(1, targets[:, None]).mean()) == pytest.approx(share, abs=0.01)
    exact = [gradients @ table.double(), gradients.T @ hidden.double(), gradients.sum(0)]
    leaves = [hidden.requires_grad_(), table.float().requires_grad_(), bias.requires_grad_()]
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(token_loss(*leaves, targets, torch.ones(len(hidden))), leaves)
    usual = rounded_once(scores, hidden.detach(), table, targets)
    for mine, theirs, wanted in zip(found, usual, exact, strict=True):
        assert apart(mine, wanted) < 1.1 * apart(theirs, wanted)


def test_a_third_of_a_loss_in_bf16_learns_a_third() -> None:
    """A factor rounded to 16 bits is off by the same for every place: 1/3 by 2e-3, and the norm with it."""
    inputs = asked(weighted=False)
    for name, made in {"whole": token_loss, "sampled": sampled}.items():
        with torch.autocast("cpu", torch.bfloat16):
            one, third = (gradients(made(*inputs), inputs[:3], by) for by in (1.0, 1 / 3))
        for whole, part in zip(one, third, strict=True):
            assert float(3 * part.norm() / whole.norm()) == pytest.approx(1, abs=7e-4), name


def sampled(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    words = torch.arange(0, V, 2)
    return loss.sampled_loss(
        hidden, (table[targets], bias[targets]), (table[words], bias[words]), targets, weights, words
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_confident_words_of_a_split_table_in_16_bits(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that has a target subtracts its 1, and no other; each hidden state learns it once."""
    hidden, table, bias, targets, weights = asked()
    with torch.no_grad():
        hidden.copy_(2 * table[targets] + 0.1 * hidden)
    weights[:] = 1
    exact = gradients(token_loss(hidden, table, bias, targets, weights), (hidden, table, bias))
    with torch.autocast("cpu", dtype):
        whole = gradients(token_loss(hidden, table, bias, targets, weights), (hidden, table, bias))

    def work(own, split_table, split_bias):
        with torch.autocast("cpu", dtype):
            value = token_loss(own, split_table, split_bias, targets, weights, V)
        value.backward()
        return value.detach()

    for (first, count), (_, *leaves) in zip(
        SPLITS, split_over_ranks(monkeypatch, hidden, table, bias, work), strict=True
    ):
        held = [F.pad(whole[1], (0, 0, 0, PADDED - V)), F.pad(whole[2], (0, PADDED - V))]
        for leaf, gradient in zip(leaves, [whole[0], *(one[first : first + count] for one in held)], strict=True):
            grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            assert float((grad - gradient).norm()) <= 0.05 * float(gradient.norm())
    assert all(apart(mine, wanted) < 0.2 for mine, wanted in zip(whole, exact, strict=True))


# single changes that nothing noticed


def test_in_fp16_exps_are_of_scores_less_the_highest() -> None:
    """e^40 is a number in fp32; the products of the gradients take it in fp16, which ends at e^11."""
    hidden, table = torch.tensor([[8.0, 0.0], [0.0, 8.0]]), torch.tensor([[5.0, 0.0], [0.0, 5.0], [4.9, 0.0]])
    leaves = [hidden.requires_grad_(), table.requires_grad_()]
    targets, weights = torch.tensor([2, 1]), torch.ones(2)
    exact = torch.autograd.grad(token_loss(*leaves, None, targets, weights), leaves)
    with torch.autocast("cpu", torch.float16):
        rough = torch.autograd.grad(token_loss(*leaves, None, targets, weights), leaves)
    for mine, wanted in zip(rough, exact, strict=True):
        assert near(mine, wanted, 5e-2)


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, V), (torch.bfloat16, 64), (torch.float16, 64)])
def test_a_device_multiplies_by_an_even_vocabulary_in_16_bits_alone(
    on_device: None, dtype: torch.dtype, rows: int
) -> None:
    hidden, table, bias, *_ = asked()
    for slant in (bias, None):
        product, added = loss._aligned(table, slant, hidden.to(dtype))
        assert product.shape == (rows, D)
        assert product.dtype == dtype
        assert rows == V or added[V:].tolist() == [-torch.inf] * (rows - V)


def test_a_sampled_loss_whose_target_stands_high_above_the_candidates() -> None:
    """e to 200 is no number: the target's score may be the highest."""
    hidden, table, bias, targets, weights = asked(weighted=False)
    with torch.no_grad():
        bias[targets] += 200
    drawn = torch.tensor([word for word in range(V) if word not in set(targets.tolist())])
    assert len(drawn) > 3
    value = loss.sampled_loss(
        hidden, (table[targets], bias[targets]), (table[drawn], bias[drawn]), targets, weights, drawn
    )
    assert torch.isfinite(value)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(value, (hidden, table, bias)))


def test_the_first_of_equal_words_is_the_best_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "TILE", (4, 8))
    table = torch.ones(40, 3)
    with torch.no_grad():
        value, column = loss._highest_of_all(torch.ones(5, 3), table, None)
    assert (value.tolist(), column.tolist()) == ([3.0] * 5, [0] * 5)


def test_a_rank_without_words_offers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where all scores are minus infinity, as those of a rank that holds none."""
    bare = loss.Range(None, 98, 0, 49)
    monkeypatch.setattr(loss.Range, "reduce", lambda self, values, by=None: values)
    nothing = torch.full((2,), -torch.inf)
    assert (
        loss._ranks_best(nothing, torch.zeros(2, dtype=torch.int64), bare).tolist()
        == [torch.iinfo(torch.int64).max] * 2
    )


def test_a_targets_score_of_a_sampled_loss_is_summed_up_in_fp32() -> None:
    hidden, row = torch.ones(1, 2_048, dtype=torch.bfloat16), torch.full((1, 2_048), 1.0, dtype=torch.bfloat16)
    row[0, 1_024:] = 2**-8  # 1,028 in all, which in bf16 is 1,024 or 1,032
    none = (torch.zeros(1, 2_048), torch.full((1,), 1_028.0))
    value = loss.sampled_loss(hidden, (row, torch.zeros(1)), none, torch.tensor([0]), torch.ones(1), torch.tensor([1]))
    assert float(value) == pytest.approx(float(np.log(2)), abs=1e-3)


def test_what_learns_nothing_collects_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, table, bias, targets, weights = (x.detach() for x in asked())
    monkeypatch.setattr(loss, "_Gradients", None)
    assert torch.isfinite(token_loss(hidden, table, bias, targets, weights))

"""The kernel of cross-entropy: losses, shares and draws are the plain form's, whatever the width, and in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ordsmed.learn import sampling
from ordsmed.learn.sampling import Draw, keys
from ordsmed.nn import loss
from ordsmed.nn.kernels import switch

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*encountered in.*:RuntimeWarning", "ignore:All-NaN.*:RuntimeWarning"
)  # the interpreter's numpy
BOUND = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other kernel is tried: under the interpreter that takes its time."""
    monkeypatch.setattr(switch, "KERNELS", ("cross_entropy",))


def scored(rows: int, width: int, dtype: torch.dtype, seed: int = 0, spread: float = 3.0) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, width, generator=chance).mul_(spread).to(dtype)
    return scores, torch.randint(0, width, (rows,), generator=chance)


@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])  # a smaller example would cost minutes
@given(
    rows=st.integers(1, 4),
    width=st.one_of(st.integers(1, 700), st.just(4097)),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(list(BOUND)),
    lift=st.sampled_from([0.0, 5.0]),
    spread=st.sampled_from([0.1, 3.0, 40.0]),
)
def test_losses_and_shares_of_any_shape(
    rows: int, width: int, seed: int, dtype: torch.dtype, lift: float, spread: float
) -> None:
    pytest.importorskip("triton")
    from ordsmed.nn.kernels.cross_entropy import cross_entropy, plain

    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores, targets = (tensor.to(device) for tensor in scored(rows, width, dtype, seed, spread))
    wanted, shares = plain(scores, targets, lift)
    before = scores.clone()
    losses, none = cross_entropy(scores, targets, width, lift=lift, shares=False)
    assert torch.equal(scores, before), "nothing is written where nothing is learned"
    assert not none.numel()
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=1e-5)
    again, _ = cross_entropy(scores, targets, width, lift=lift)
    assert torch.equal(again, losses)
    torch.testing.assert_close(scores, shares, rtol=BOUND[dtype], atol=1e-7)


def test_rows_that_are_part_of_wider_ones(device: torch.device) -> None:
    from ordsmed.nn.kernels.cross_entropy import cross_entropy, plain

    wide, targets = (tensor.to(device) for tensor in scored(5, 300, torch.float32))
    scores, targets = wide[:, :200], targets % 200
    rest, (wanted, shares) = wide[:, 200:].clone(), plain(scores, targets)
    losses, _ = cross_entropy(scores, targets, 200)
    torch.testing.assert_close(losses, wanted)
    torch.testing.assert_close(scores, shares)
    assert torch.equal(wide[:, 200:], rest)


@pytest.mark.parametrize("lift", [0.0, 5.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_confident_target_s_share_is_less_1_before_it_is_rounded(
    device: torch.device, dtype: torch.dtype, lift: float
) -> None:
    """Shares of 0.4 to 0.9995: what 16 bits keep is a share below a half, and the difference to 1 above."""
    from ordsmed.nn.kernels.cross_entropy import cross_entropy, plain

    scores, targets = (tensor.to(device) for tensor in scored(12, 300, torch.float32))
    scores.scatter_(1, targets[:, None], torch.linspace(8.0, 18.0, 12, device=device)[:, None])
    given, factor = scores.to(dtype), float(np.exp(lift))
    shares = given.double().softmax(1)
    own = shares.gather(1, targets[:, None])
    assert float(own.min()) < 0.4
    assert float(own.max()) > 0.9995
    exact = shares.scatter_add(1, targets[:, None], -(own > 0.5).double()) * factor
    for made in (cross_entropy(given.clone(), targets, 300, lift=lift), plain(given, targets, lift)):
        torch.testing.assert_close(made[0].double(), -own.log().squeeze(1), rtol=1e-3, atol=1e-5)
    cross_entropy(given, targets, 300, lift=lift)
    torch.testing.assert_close(made[1].double(), exact, rtol=BOUND[dtype], atol=1e-6)
    torch.testing.assert_close(given.double(), exact, rtol=BOUND[dtype], atol=1e-6)


def test_scores_by_column_are_refused(device: torch.device) -> None:
    from ordsmed.nn.kernels.cross_entropy import cross_entropy

    scores, targets = (tensor.to(device) for tensor in scored(5, 40, torch.float32))
    with pytest.raises(AssertionError, match="one after the other"):
        cross_entropy(scores.T.contiguous().T, targets, 40)
    keys = torch.arange(10, device=device)[::2]
    drawn = [cross_entropy(scores, targets, 40, keys=some, shares=False)[1] for some in (keys, keys.clone())]
    assert torch.equal(*drawn)


def test_what_is_no_number_stays_so_in_its_row(device: torch.device) -> None:
    from ordsmed.nn.kernels.cross_entropy import cross_entropy, plain

    scores, targets = (tensor.to(device) for tensor in scored(4, 333, torch.bfloat16))
    scores[1, 7], scores[2, 200] = torch.nan, torch.inf
    scores[3, :200], targets[3] = -torch.inf, 250
    wanted, _ = plain(scores, targets)
    losses, words = cross_entropy(scores, targets, 333, keys=targets)
    assert losses.isfinite().tolist() == wanted.isfinite().tolist() == [True, False, False, True]
    assert scores.isfinite().all(1).tolist() == [True, False, False, True]
    assert (words[[0, 3]] >= 0).all()
    assert words[3] >= 200
    assert (words < 333).all()


@pytest.mark.parametrize("words", [1, 128, 1_003, 4_500])
def test_words_are_drawn_as_learn_draws_them(device: torch.device, words: int) -> None:
    from ordsmed.nn.kernels.cross_entropy import BLOCK, cross_entropy

    assert BLOCK.value == sampling.BLOCK
    rows = 24
    scores, targets = (tensor.to(device) for tensor in scored(rows, words, torch.float32))
    padded = torch.nn.functional.pad(scores, (0, -words % 128), value=-torch.inf)
    draw = Draw.of(torch.from_numpy(keys(3, np.arange(rows))).to(device), 1, words)
    shares = scores.softmax(1)
    wanted = draw.word(shares, draw.block(draw.sums(shares), slice(0, rows)), slice(0, rows))[1]
    _, drawn = cross_entropy(padded, targets, words, keys=draw.slot_keys)
    assert torch.equal(drawn, wanted)
    assert not padded[:, words:].any()


@pytest.mark.parametrize("wins", [0, 1])
def test_noise_is_exact_where_it_is_large(device: torch.device, wins: int) -> None:
    """Large noise decides draws: the logarithm of a number near 1 would round it away. Two words, all but equal."""
    from ordsmed.nn.kernels.cross_entropy import cross_entropy

    slots = torch.arange(1 << 20)
    slots = slots[sampling.gumbel(slots, torch.tensor(0)).topk(24).indices]
    first, second = (sampling.gumbel(slots, torch.tensor(word)) for word in (0, 1))
    scores = torch.stack([torch.zeros(24), first - second + (1e-4 if wins else -1e-4)], 1).to(device)
    _, drawn = cross_entropy(scores, torch.zeros_like(slots).to(device), 2, keys=slots.to(device), shares=False)
    assert drawn.tolist() == [wins] * 24


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_loss_is_learned_by_the_kernel_as_without(
    device: torch.device, only: None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value, gradients and draws of the whole loss, in chunks, with a vocabulary that is padded."""
    monkeypatch.setattr(loss, "BY_HAND", ())
    monkeypatch.setattr(loss, "DEVICE_SCORES", 13 * 200)
    chance = torch.Generator().manual_seed(1)
    hidden, table = (torch.randn(n, 24, generator=chance).to(device).requires_grad_() for n in (26, 200))
    bias = torch.randn(200, generator=chance).to(device).requires_grad_()
    targets, weights = torch.arange(26, device=device), torch.rand(26, generator=chance).to(device)
    draw = Draw.of(torch.from_numpy(keys(7, np.arange(26))).to(device), 1, 200)

    def learned(choice: str) -> list[Tensor]:
        assert ("cross entropy" in switch.begin(choice, device)) == (choice == "auto")
        made = []
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            for drawn in (None, draw):
                value, words = loss._loss(hidden, table, bias, targets, weights, 200, drawn)
                made += [
                    value.detach(),
                    *torch.autograd.grad(value, (hidden, table, bias), torch.tensor(0.3).to(device)),
                ]
                made += [words] if drawn and dtype == torch.float32 else []
        return made

    plain = learned("plain")
    monkeypatch.setattr(loss, "_shares_by_torch", None)
    ours = learned("auto")
    for one, other in zip(ours, plain, strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=scale * 4 * BOUND[dtype])


@pytest.mark.long
@pytest.mark.skipif(torch.__version__ < "2.12", reason="gives other gradients; nothing compiles so much at once")
def test_with_the_kernel_a_loss_is_one_graph(device: torch.device, only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's compiler sees the kernel as an operator that writes into what it is given."""
    monkeypatch.setattr(loss, "BY_HAND", ())
    assert "cross entropy" in switch.begin("auto", device)
    monkeypatch.setattr(loss, "_shares_by_torch", None)
    torch.manual_seed(0)
    hidden, table = (torch.randn(n, 8).to(device).requires_grad_() for n in (6, 50))
    targets, weights = torch.arange(6, device=device), torch.ones(6, device=device)

    def learned(of: Any) -> Any:
        return torch.autograd.grad(of(hidden, table, None, targets, weights), (hidden, table))

    compiled = torch.compile(loss.token_loss, fullgraph=True, backend="aot_eager")
    for one, other in zip(learned(compiled), learned(loss.token_loss), strict=True):
        torch.testing.assert_close(one, other)
    torch.compiler.reset()

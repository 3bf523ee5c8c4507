"""Log-probabilities of targets: torch's own, in any number of chunks, and which target is the best."""

from __future__ import annotations

import pytest
import torch

from ordsmed.nn import loss


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_they_are_torchs(bias: bool, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of scores whose exp is no number; rows of padding behind the vocabulary score nothing."""
    torch.manual_seed(0)
    hidden, table, targets = torch.randn(37, 8) * scale, torch.randn(60, 8), torch.randint(0, 51, (37,))
    own = torch.randn(60) if bias else None
    scores = hidden @ table[:51].T + (own[:51] if own is not None else 0.0)
    targets[::3] = scores[::3].argmax(1)
    wanted = scores.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    for tile in ((1024, 2048), (5, 7), (1, 1)):
        monkeypatch.setattr(loss, "TILE", tile)
        logs, best = loss.token_logs(hidden, table, own, targets, 51, best=True)
        assert torch.allclose(logs, wanted, rtol=1e-5, atol=1e-5 * scale)
        assert best.tolist() == (scores.argmax(1) == targets).tolist()


def test_the_first_of_equals_is_the_best() -> None:
    hidden, table = torch.ones(3, 2), torch.ones(5, 2)
    logs, best = loss.token_logs(hidden, table, None, torch.tensor([0, 1, 4]), best=True)
    assert best.tolist() == [True, False, False]
    assert torch.allclose(logs, -torch.tensor([5.0, 5.0, 5.0]).log())
    assert [len(x) for x in loss.token_logs(hidden[:0], table, None, torch.zeros(0, dtype=torch.long))] == [0, 0]


def test_several_ask_one_state() -> None:
    torch.manual_seed(0)
    hidden, table, targets, states = (
        torch.randn(3, 8),
        torch.randn(20, 8),
        torch.arange(5),
        torch.tensor([2, 0, 0, 1, 2]),
    )
    logs, best = loss.token_logs(hidden, table, None, targets, states=states, best=True)
    each = [
        loss.token_logs(hidden[n : n + 1], table, None, targets[k : k + 1], best=True) for k, n in enumerate(states)
    ]
    assert torch.allclose(logs, torch.cat([one for one, _ in each]))
    assert best.tolist() == [bool(one) for _, one in each]


@pytest.mark.parametrize("low", [-75.0, -100.0])
def test_scores_that_are_all_low_are_told_exactly(low: float) -> None:
    """e to -100 is a number still, with two digits."""
    torch.manual_seed(0)
    hidden, table, targets = torch.randn(7, 4), torch.randn(9, 4), torch.arange(7)
    bias = torch.full((9,), low)
    logs, _ = loss.token_logs(hidden, table, bias, targets)
    wanted = (hidden @ table.T).log_softmax(1)[torch.arange(7), targets]
    torch.testing.assert_close(logs, wanted, rtol=1e-4, atol=5e-5)

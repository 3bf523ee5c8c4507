"""Sampling: draws follow the softmax, are the same wherever they are made, and spare the right word where asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ordsmed.learn.masking import choose_again
from ordsmed.learn.sampling import STEP, Draw, candidates, gumbel, keys, log_expected
from ordsmed.nn.loss import token_loss, token_loss_and_draws

CHANCES = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01])


def drawn(scores: torch.Tensor, places: int, **how: float) -> torch.Tensor:
    """A word for every slot of rows 0, 1, 2, ..."""
    rows = len(scores) // places
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(rows))), places, scores.shape[1], **how)
    return draw.best(scores, slice(0, len(scores)), torch.zeros(len(scores), dtype=torch.int64))[1]


@pytest.mark.long
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_draws_follow_the_softmax(places: int, temperature: float) -> None:
    count = 120_000
    words = drawn(CHANCES.log().expand(count, 5), places, temperature=temperature)
    wanted = (CHANCES.log() / temperature).softmax(0)
    found = torch.bincount(words, minlength=5) / count
    assert ((found - wanted).abs() < 5 * (wanted * (1 - wanted) / count).sqrt()).all()


def test_places_of_a_row_draw_apart() -> None:
    words = drawn(torch.tensor([0.5, 0.5]).log().expand(40_000, 2), 2).view(-1, 2)
    both = float((words[:, 0] == words[:, 1]).float().mean())
    assert both == pytest.approx(0.5, abs=0.02)


def test_noise_is_gumbel_and_a_function_of_its_key() -> None:
    noise = gumbel(torch.from_numpy(keys(1, np.arange(20))), 50_000)
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(np.pi**2 / 6, abs=0.02)
    assert torch.isfinite(noise).all()
    again = gumbel(torch.from_numpy(keys(1, np.asarray([7]))), 100)
    assert torch.equal(again[0], noise[7, :100])
    assert not torch.equal(gumbel(torch.from_numpy(keys(2, np.asarray([7]))), 100)[0], noise[7, :100])


def test_chunks_and_halves_of_the_words_draw_the_same() -> None:
    """However slots are cut, and where the words lie on two ranks."""
    torch.manual_seed(0)
    places, words = 5, 97
    scores, targets = torch.randn(4 * places, words), torch.randint(0, words, (4 * places,))
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(4))), places, words, never_right=True)
    value, whole = draw.best(scores, slice(0, 20), targets)
    assert (whole != targets).all()
    cut = [draw.best(scores[a:b], slice(a, b), targets[a:b])[1] for a, b in ((0, 3), (3, 11), (11, 20))]
    assert torch.equal(torch.cat(cut), whole)
    left, right = (draw.best(scores[:, a:b], slice(0, 20), targets, a) for a, b in ((0, 40), (40, words)))
    assert torch.equal(torch.where(left[0] >= right[0], left[1], right[1] + 40), whole)
    assert torch.equal(torch.maximum(left[0], right[0]), value)
    assert STEP > 1


def test_a_shift_of_all_scores_moves_no_draw() -> None:
    torch.manual_seed(1)
    scores = torch.randn(3_000, 50)
    assert (drawn(scores, 3) == drawn(scores + 1e-6 * torch.randn_like(scores), 3)).float().mean() > 0.999


def test_the_loss_beside_the_draws_is_the_loss() -> None:
    torch.manual_seed(2)
    hidden, table, bias = torch.randn(2, 6, 8), torch.randn(40, 8), torch.randn(40)
    targets, weights = torch.randint(0, 40, (2, 6)), torch.ones(2, 6)
    draw = Draw.of(torch.from_numpy(keys(3, np.arange(2))), 6, 40)
    one, two = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    loss, words = token_loss_and_draws(one, table, bias, targets, weights, 40, draw)
    plain = token_loss(two, table, bias, targets, weights, 40)
    loss.backward()
    plain.backward()
    assert torch.equal(loss, plain)
    assert torch.equal(one.grad, two.grad)
    assert words.shape == targets.shape
    scores = torch.nn.functional.linear(hidden, table, bias).flatten(0, 1)
    assert torch.equal(draw.best(scores, slice(0, 12), targets.flatten())[1], words.flatten())


def test_places_drawn_with_replacement() -> None:
    """About N^2 / 2L pairs of a row fall on one place, as in the reference."""
    allowed = np.ones((4_000, 128), np.bool_)
    allowed[:, [0, 127]] = False
    numbers = np.arange(4_000)
    places, weights = choose_again(allowed, np.full(4_000, 19), 19, 3, numbers)
    assert weights.all()
    assert allowed[numbers[:, None], places].all()
    pairs = np.mean([19 - len(np.unique(row)) for row in places])
    assert pairs == pytest.approx(19 - 126 * (1 - (1 - 1 / 126) ** 19), rel=0.03)
    few, counted = choose_again(allowed[:1], np.asarray([4]), 19, 3, numbers[:1])
    assert counted.sum() == 4
    assert not few[0, 4:].any()
    assert not choose_again(np.zeros((1, 9), np.bool_), np.asarray([3]), 5, 3, numbers[:1])[1].any()


@pytest.mark.parametrize(("count", "vocabulary"), [(1, 7), (8, 20), (500, 1_000), (8_192, 793_471)])
def test_candidates_differ_and_come_again(count: int, vocabulary: int) -> None:
    found, tries = candidates(5, count, vocabulary)
    assert len(set(found.tolist())) == count <= tries
    assert 0 <= found.min() <= found.max() < vocabulary
    again, more = candidates(5, count, vocabulary)
    assert np.array_equal(found, again)
    assert tries == more
    assert count < 8 or not np.array_equal(found, candidates(6, count, vocabulary)[0])


def test_candidates_are_as_frequent_as_expected() -> None:
    """Log-uniform draws without return: the formula of the log-expected counts against many drawings."""
    vocabulary, count, rounds = 60, 12, 4_000
    seen, expected = np.zeros(vocabulary), np.zeros(vocabulary)
    for key in range(rounds):
        found, tries = candidates(key, count, vocabulary)
        seen[found] += 1
        expected += log_expected(torch.arange(vocabulary), torch.tensor(tries), vocabulary).exp().numpy()
    assert np.allclose(seen / rounds, expected / rounds, atol=0.025)
    assert seen[0] > seen[10] > seen[50]


def test_rare_words_of_a_large_vocabulary_have_their_chance() -> None:
    """The formula in 64 bits: k + 2 and k + 1 are the same number in fp32 far out."""
    found = log_expected(torch.tensor([0, 793_470]), torch.tensor(20_000), 793_471).double().exp()
    share = np.log1p(1 / 793_471) / np.log(793_472)
    assert found[1].item() == pytest.approx(-np.expm1(20_000 * np.log1p(-share)), rel=1e-5)
    assert found[0].item() == pytest.approx(1.0)

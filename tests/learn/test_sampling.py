"""Sampling: draws follow the softmax, are the same wherever they are made, and spare the right word where asked."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from ordsmed.learn.masking import choose_again
from ordsmed.learn.sampling import BLOCK, Draw, _log_uniform, candidates, gumbel, keys, log_expected
from ordsmed.nn.loss import token_loss, token_loss_and_draws

CHANCES = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01])


def best(draw: Draw, scores: torch.Tensor, slots: slice, targets: torch.Tensor) -> torch.Tensor:
    """Draw a word for each slot from its scores, as the loss does."""
    shares = (scores if draw.plain else draw.tempered(scores, targets)).softmax(1)
    return draw.word(shares, draw.block(draw.sums(shares), slots), slots)[1]


def drawn(scores: torch.Tensor, places: int, **how: float) -> torch.Tensor:
    """A word for every slot of rows 0, 1, 2, ..."""
    rows = len(scores) // places
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(rows))), places, scores.shape[1], **how)
    return best(draw, scores, slice(0, len(scores)), torch.zeros(len(scores), dtype=torch.int64))


def surprise(found: np.ndarray, wanted: np.ndarray) -> float:
    """Pearson's chi-square, in deviations from what is expected of it; rare cells are put together."""
    order = np.argsort(-wanted)
    groups = np.minimum(np.floor(np.cumsum(wanted[order]) / 12), wanted.sum() // 12 - 1).astype(int)
    seen, expected = (np.bincount(groups, counts[order]) for counts in (found, wanted))
    seen, expected = seen[expected > 0], expected[expected > 0]
    return float((((seen - expected) ** 2 / expected).sum() - len(seen)) / np.sqrt(2 * len(seen)))


@pytest.mark.long
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_draws_follow_the_softmax(places: int, temperature: float) -> None:
    count = 60_000
    words = drawn(CHANCES.log().expand(count, 5), places, temperature=temperature)
    wanted = (CHANCES.log() / temperature).softmax(0)
    found = torch.bincount(words, minlength=5) / count
    assert ((found - wanted).abs() < 5 * (wanted * (1 - wanted) / count).sqrt()).all()


@pytest.mark.long
@pytest.mark.parametrize("shape", ["flat", "zipf", "two blocks"])
def test_draws_of_places_are_independent(shape: str) -> None:
    """Every pair of places of a row: how far apart their words stand (which noise that is shared, shifted, would
    show), both words together, and each alone; neighbouring rows likewise."""
    rows, places, words = 12_000, 5, 300
    scores = {
        "flat": torch.zeros(words),
        "zipf": -torch.arange(1.0, words + 1).log(),
        "two blocks": torch.where(torch.arange(words) % BLOCK < 2, 3.0, 0.0),
    }[shape]
    chances = scores.softmax(0).double().numpy()
    apart = np.correlate(chances, chances, "full")
    drew = drawn(scores.expand(rows * places, words), places).view(rows, places).numpy()
    assert surprise(np.bincount(drew.ravel(), minlength=words), rows * places * chances) < 5
    lines = [*drew.T, np.roll(drew[:, 0], 1)]
    for i, one in enumerate(lines):
        for other in lines[:i]:
            shift = np.bincount(one - other + words - 1, minlength=2 * words - 1)
            assert surprise(shift, rows * apart) < 5
            together = np.bincount(one * words + other, minlength=words * words)
            assert surprise(together, rows * np.outer(chances, chances).ravel()) < 5


def test_noise_is_gumbel_and_a_function_of_its_key() -> None:
    row_keys = torch.from_numpy(keys(1, np.arange(20)))[:, None]
    noise = gumbel(row_keys, torch.arange(50_000))
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(np.pi**2 / 6, abs=0.02)
    assert torch.isfinite(noise).all()
    assert torch.equal(gumbel(row_keys[7:8], torch.arange(100)), noise[7:8, :100])
    assert not torch.equal(
        gumbel(torch.from_numpy(keys(2, np.asarray([7])))[:, None], torch.arange(100))[0], noise[7, :100]
    )


def test_the_least_and_the_greatest_noise_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.learn.sampling._hashed", lambda keys, numbers: torch.tensor([0, -1]))
    assert gumbel(torch.zeros(1), torch.zeros(2)).tolist() == pytest.approx([22.87, -2.81], abs=0.01)


@pytest.mark.parametrize("words", [97, 128, 300, 384])
def test_chunks_and_parts_of_the_words_draw_the_same(words: int) -> None:
    """However slots are cut, and where the words lie on ranks, one of which may have none."""
    torch.manual_seed(0)
    places = 5
    shares = torch.randn(4 * places, words).exp()
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(4))), places, words)
    whole = draw.word(shares, draw.block(draw.sums(shares), slice(0, 20)), slice(0, 20))
    cut = [
        draw.word(shares[a:b], draw.block(draw.sums(shares[a:b]), slice(a, b)), slice(a, b))[1]
        for a, b in ((0, 3), (3, 11), (11, 20))
    ]
    assert torch.equal(torch.cat(cut), whole[1])
    for borders in ((0, 40, words), (0, 64, 96, words), (0, 1, words - 1, words), (0, words, words)):
        parts = [(shares[:, a:b], a) for a, b in pairwise(borders)]
        sums = torch.stack([draw.sums(*part) for part in parts]).sum(0)
        assert torch.allclose(sums, draw.sums(shares))
        block = draw.block(sums, slice(0, 20))
        found = [draw.word(part, block, slice(0, 20), first) for part, first in parts if part.shape[1]]
        values = torch.stack([value for value, _ in found])
        columns = torch.stack([column + first for (_, column), (_, first) in zip(found, parts, strict=False)])
        assert torch.equal(values.amax(0), whole[0])
        assert torch.equal(columns.gather(0, values.argmax(0)[None])[0], whole[1])


def test_a_draw_that_is_never_right() -> None:
    """Also where nothing else has a share in fp32."""
    scores = torch.full((600, 200), -200.0)
    targets = torch.arange(600) % 200
    scores[torch.arange(600), targets] = 0.0
    draw = Draw.of(torch.from_numpy(keys(5, np.arange(200))), 3, 200, never_right=True)
    words = best(draw, scores, slice(0, 600), targets)
    assert (words != targets).all()
    assert len(words.unique()) > 150
    half = draw.tempered(scores[:, 100:], targets, 100)
    assert torch.isneginf(half).sum() == 300


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
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    assert torch.allclose(one.grad, two.grad, atol=1e-6)
    assert words.shape == targets.shape
    scores = torch.nn.functional.linear(hidden, table, bias).flatten(0, 1)
    assert torch.equal(best(draw, scores, slice(0, 12), targets.flatten()), words.flatten())


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


@pytest.mark.long
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


def test_the_last_word_of_a_vocabulary_is_drawn_too() -> None:
    """Word k of V as often as log((k + 2) / (k + 1)) / log(V + 1): the shares of all words make 1."""
    found = np.bincount(_log_uniform(3, 0, 40_000, 4), minlength=4) / 40_000
    wanted = np.log((np.arange(4) + 2) / (np.arange(4) + 1)) / np.log(5)
    assert wanted.sum() == pytest.approx(1)
    assert found == pytest.approx(wanted, abs=0.01)

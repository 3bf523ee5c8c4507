"""The scalar mix: the mean at first, the softmax of its weights then, ELMo's norm over the tokens that count."""

from __future__ import annotations

import pytest
import torch

from ordsmed.nn.mix import ScalarMix, normalized

LAYERS = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(1))


def set_to(mix, weights, gamma=1.0):
    with torch.no_grad():
        mix.weights.copy_(torch.tensor(weights))
        mix.gamma.fill_(gamma)
    return mix


def test_it_begins_as_the_mean():
    torch.testing.assert_close(ScalarMix(3)(LAYERS), LAYERS.mean(0))


def test_it_is_gamma_times_the_sum_by_the_softmax_of_the_weights():
    mix = set_to(ScalarMix(3), [0.5, -1.0, 2.0], 0.25)
    shares = torch.tensor([0.5, -1.0, 2.0]).exp()
    wanted = 0.25 * torch.einsum("l,lbtd->btd", shares / shares.sum(), LAYERS)
    torch.testing.assert_close(mix(LAYERS), wanted)
    torch.testing.assert_close(mix(list(LAYERS)), wanted)


def test_all_of_it_learns():
    mix = ScalarMix(3)
    (mix(LAYERS).square().sum() + mix.penalty()).backward()
    assert {name: tuple(p.shape) for name, p in mix.named_parameters()} == {"weights": (3,), "gamma": (1,)}
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in mix.parameters())


def test_the_penalty_is_the_sum_of_squares():
    assert set_to(ScalarMix(3), [1.0, -2.0, 3.0]).penalty().item() == 14


def test_the_norm_is_over_all_tokens_that_count():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    layer = LAYERS[0].clone()
    found = normalized(layer, mask)
    counted = found[mask.bool()]
    assert counted.mean().item() == pytest.approx(0, abs=1e-6)
    assert counted.square().mean().item() == pytest.approx(1, abs=1e-5)
    layer[1, 2:] = 1e6  # padding changes nothing
    torch.testing.assert_close(normalized(layer, mask)[mask.bool()], counted)
    mix = set_to(ScalarMix(3, norm=True), [0.0, 0.0, 50.0], 2.0)
    torch.testing.assert_close(mix(LAYERS, mask), 2 * normalized(LAYERS[2], mask))
    assert torch.isfinite(normalized(torch.ones(2, 3))).all()


def test_another_number_of_layers_is_refused():
    with pytest.raises(ValueError):
        ScalarMix(2)(LAYERS)

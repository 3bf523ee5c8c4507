"""Dropout: the stated share of zeros, the mean kept, and the same zeros for the same key alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ordsmed.base import chance
from ordsmed.base.menu import choice
from ordsmed.learn.objectives import clm, mlm
from ordsmed.nn import attention as machine
from ordsmed.nn.dropout import Drop, Dropout, begin_micro_batch, drawn_bytes, factors, number_layers
from ordsmed.nn.models import bert, gpt2, megatron_bert, modern


class Signs:
    vocabulary, pad, end, stop = 60, 0, 5, 3


def byte_mask(shape, rate, *key, dtype=torch.float32):
    return factors(*drawn_bytes(shape, rate, *key), dtype)


def objective_of(**rates):
    shape = {"width": 32, "layers": 2, "heads": 2, "positions": 64, **rates}
    return mlm.Mlm().build(bert.Bert(**shape), Signs()).train()


def zeros_of(layer, x, key):
    begin_micro_batch(*key)
    return layer(x) == 0


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5])
def test_the_stated_share_is_zero_and_the_mean_is_kept(rate):
    layer = Dropout(rate).train()
    begin_micro_batch(0, 1, 0, 0)
    y = layer(torch.ones(1000, 1000))
    assert float((y == 0).float().mean()) == pytest.approx(rate, abs=1 / 512 + 2e-3)
    assert float(y.mean()) == pytest.approx(1, abs=3e-3)
    assert y.unique().numel() == 2


def test_a_kernel_is_told_the_same_key_and_share():
    """Of its own for every micro-batch, layer and stream; nothing where nothing is dropped."""
    layers, drops = [Dropout(0.1).train() for _ in range(3)], []
    number_layers(nn.Sequential(*layers))
    layers[2].stream = 3
    for micro in (0, 1):
        begin_micro_batch(7, 1, micro)
        drops += [layer.drop() for layer in layers]
        assert drops[-3:] == [layer.drop() for layer in layers]
    assert len({drop.key for drop in drops}) == 6
    assert {drop.dropped for drop in drops} == {26}
    assert all(drop.state % (1 << 64) == int(chance.bits(drop.key)) for drop in drops)
    assert min(drop.state for drop in drops) < 0 < max(drop.state for drop in drops)
    assert layers[0].eval().drop() == Dropout(0.0).train().drop() == Drop()


def test_zeros_fall_evenly():
    """No row, column or place in the eight bytes of a draw is spared."""
    kept = byte_mask(torch.Size([512, 512]), 0.1, 7, 0) > 0
    for share in (kept.float().mean(0), kept.float().mean(1), kept.flatten().view(-1, 8).float().mean(0)):
        assert share.min() > 0.83
        assert share.max() < 0.96


@pytest.mark.parametrize("shape", [(3,), (1, 1), (7, 5, 3), (0, 4)])
def test_any_shape_has_a_mask(shape):
    assert byte_mask(torch.Size(shape), 0.1, 1, 2).shape == torch.Size(shape)


def test_the_same_key_gives_the_same_zeros_and_any_other_another():
    layer, x = Dropout(0.2).train(), torch.ones(64, 64)
    first = zeros_of(layer, x, (1, 2, 3, 4))
    assert torch.equal(first, zeros_of(layer, x, (1, 2, 3, 4)))
    for other in ((9, 2, 3, 4), (1, 9, 3, 4), (1, 2, 9, 4), (1, 2, 3, 9)):
        assert not torch.equal(first, zeros_of(layer, x, other)), other


def test_backward_passes_where_forward_did():
    layer, x = Dropout(0.3).train(), torch.ones(50, 50, requires_grad=True)
    begin_micro_batch(0)
    y = layer(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_add_is_residual_and_dropout():
    layer, x, residual = Dropout(0.3).train(), torch.randn(40, 40), torch.randn(40, 40)
    begin_micro_batch(0)
    wanted = residual + layer(x)
    begin_micro_batch(0)
    assert torch.allclose(layer.add(x, residual), wanted)
    assert torch.equal(layer.eval().add(x, residual), residual + x)


def test_off_it_does_nothing():
    x = torch.randn(30, 30)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_no_two_layers_share_a_mask():
    objective = objective_of(dropout=0.2, attention_dropout=0.2)
    layers = [m for m in objective.modules() if isinstance(m, Dropout)]
    assert [layer.place for layer in layers] == list(range(len(layers)))
    assert len(layers) == 1 + 3 * 2
    begin_micro_batch(0)
    masks = [layer.mask(torch.Size([64, 64]), torch.float32) for layer in layers]
    for one in range(len(masks)):
        for other in range(one):
            shared = ((masks[one] == 0) & (masks[other] == 0)).float().mean()
            assert float(shared) == pytest.approx(0.04, abs=0.01)  # as chance has it


def test_a_layer_that_is_used_elsewhere_keeps_its_place():
    shared = Dropout(0.1)
    network = nn.Sequential(Dropout(0.1), shared, nn.Sequential(shared, Dropout(0.1)))
    number_layers(network)
    assert [m.place for m in network.modules() if isinstance(m, Dropout)] == [0, 1, 2]


@pytest.fixture
def seen(monkeypatch):
    """Every mask made while a network runs: (place, shape, share of zeros)."""
    made = []
    plain = Dropout.draw

    def watch(self, shape):
        drawn, factor = plain(self, shape)
        made.append((self.place, tuple(shape), float((drawn == 0).float().mean())))
        return drawn, factor

    monkeypatch.setattr(Dropout, "draw", watch)
    return made


@pytest.mark.parametrize("family", [(bert, mlm), (gpt2, clm)], ids=["bert", "gpt2"])
def test_networks_drop_hidden_states_and_attention_at_their_rates(family, seen):
    models, objectives = family
    settings = choice(models)(width=64, layers=2, heads=2, positions=64, dropout=0.1, attention_dropout=0.25)
    objective = choice(objectives)().build(settings, Signs()).train()
    ids = torch.randint(0, 60, (8, 64))
    begin_micro_batch(0)
    objective.model(ids, torch.arange(64).repeat(8, 1))
    attention = [share for _, shape, share in seen if shape == (8, 2, 64, 64)]
    hidden = [share for _, shape, share in seen if shape == (8, 64, 64)]
    assert len(attention) == 2
    assert len(hidden) == 1 + 2 * 2
    assert attention == pytest.approx([0.25] * 2, abs=0.01)
    assert hidden == pytest.approx([26 / 256] * 5, abs=0.012)
    assert len({place for place, _, _ in seen}) == len(seen)


def test_a_network_repeats_itself_for_a_key_and_is_still_in_eval():
    objective, ids = objective_of(), torch.randint(0, 60, (2, 20))
    positions = torch.arange(20).repeat(2, 1)

    def run(*key):
        begin_micro_batch(*key)
        with torch.no_grad():
            return objective.model(ids, positions)

    assert torch.equal(run(0, 1), run(0, 1))
    assert not torch.equal(run(0, 1), run(0, 2))
    objective.eval()
    assert torch.equal(run(0, 1), run(0, 2))


def test_attention_weights_are_dropped_and_not_what_they_gather(monkeypatch):
    """With values that are all 1 the output of a head is the sum of its weights: dropout shows there, mean kept."""
    layer = machine.SelfAttention(64, 1, 0.5, causal=False).train()
    query = key = torch.randn(4, 1, 200, 64)
    begin_micro_batch(3)
    mixed = layer._attend(query * 0, key * 0, torch.ones(4, 1, 200, 64), None, causal=False)
    assert float(mixed.mean()) == pytest.approx(1, abs=0.02)
    assert mixed.std() > 0.02
    assert torch.allclose(mixed.std(-1), torch.zeros(4, 1, 200), atol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.001, 0.999])
def test_what_is_kept_is_scaled_by_its_real_keep_rate(rate: float) -> None:
    """Bytes know shares of 256ths alone: at 0.1 it is 26 of them, so 256 / 230 and not 1 / 0.9."""
    mask, dropped = byte_mask(torch.Size([64, 64]), rate, 5), min(max(round(rate * 256), 1), 255)
    assert mask.max().item() == pytest.approx(256 / (256 - dropped), rel=1e-6)
    source = np.random.SFC64([5]).random_raw(512).view(np.uint8).reshape(64, 64)
    assert torch.equal(mask > 0, torch.from_numpy(source >= dropped))


def test_ranks_that_share_a_layer_draw_by_their_stream() -> None:
    """Layers that are split draw apart, in the key of the layer; where activations are whole, ranks draw alike."""
    layer, size = Dropout(0.5).train(), torch.Size([40, 40])
    begin_micro_batch(1, 2)
    alone = layer.mask(size, torch.float32)
    masks = []
    for stream in (1, 2):
        begin_micro_batch(1, 2, stream=stream)
        assert torch.equal(layer.mask(size, torch.float32), alone), "no layer of its own"
        layer.stream = stream
        masks.append(layer.mask(size, torch.float32))
        layer.stream = 0
    assert not torch.equal(*masks)
    assert not any(torch.equal(mask, alone) for mask in masks)


def test_torchs_own_chance_is_seeded_by_the_micro_batch() -> None:
    """What draws without a key (a GPU's kernels) repeats itself as well, each rank of a group by itself."""
    drawn = {}
    for parts, stream in (((1,), 0), ((1,), 1), ((1,), 2), ((2,), 0)):
        for _ in range(2):
            begin_micro_batch(*parts, stream=stream)
            found = torch.rand(3).tolist()
            assert drawn.setdefault((parts, stream), found) == found
    assert len({tuple(found) for found in drawn.values()}) == 4


@pytest.mark.parametrize("family", [bert, megatron_bert, gpt2, modern])
@pytest.mark.parametrize("branch", ["attention.mix", "down"])
def test_what_blocks_add_is_dropped_and_never_what_they_add_to(family, branch):
    """A branch that gives 0 leaves a block as it is without dropout; one that gives a constant is dropped in shares."""
    torch.manual_seed(0)
    settings = choice(family)(width=32, layers=2, heads=2, positions=64, dropout=0.5, attention_dropout=0.0)
    block = settings.build(60).blocks[1].train()
    how = {"turn": modern.angles(torch.arange(40).repeat(4, 1), 100.0, 16)} if family is modern else {}
    x = torch.randn(4, 40, 32)

    def run(learns):
        number_layers(block)
        begin_micro_batch(7)
        with torch.no_grad():
            return block.train(learns)(x, None, **how)

    with torch.no_grad():
        for name, weight in block.named_parameters():
            if "mix." in name or "down." in name:
                weight.zero_()
    assert torch.equal(run(True), run(False))
    with torch.no_grad():
        layer = block.get_submodule(branch)
        layer.bias = nn.Parameter(torch.full((32,), 3.0))
    changed = (run(True) != run(False)).float().mean()
    assert changed > 0.3 or (family is modern and branch == "down"), "ModernBERT drops inside its feed-forward layers"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.37, 0.999])
def test_a_mask_is_made_in_the_numbers_it_is_used_in(rate: float, dtype: torch.dtype) -> None:
    dropped = min(max(round(rate * 256), 1), 255)
    bytes_ = np.random.SFC64([5, 6]).random_raw(13).view(np.uint8)[:99].reshape(9, 11)
    wanted = torch.from_numpy(np.where(bytes_ >= dropped, np.float32(256 / (256 - dropped)), np.float32(0))).to(dtype)
    found = byte_mask(torch.Size([9, 11]), rate, 5, 6, dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found, wanted)

"""Adapters: nothing changes at first, they alone learn, and the plain network they are merged into does the same."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.families import WORDS, masked, packed, shaken
from ordsmed.base.errors import RecipeError
from ordsmed.learn.groups import groups
from ordsmed.nn.adapters import Adapters, merged, put_in
from ordsmed.nn.dropout import Dropout, begin_micro_batch, number_layers
from ordsmed.nn.models import bert, electra, elmo, gpt2, megatron_bert, modern, roberta
from ordsmed.weights.weights import load_into, own_tensors

TINY = {"width": 32, "layers": 2, "heads": 4, "positions": 64, "attention_dropout": 0.1}
FAMILIES = {
    "bert": bert.Bert(**TINY),
    "roberta": roberta.Roberta(**TINY),
    "gpt2": gpt2.Gpt2(**TINY),
    "electra": electra.Electra(**TINY, embedding=16),
    "megatron_bert": megatron_bert.MegatronBert(**TINY),
    "modern": modern.ModernBert(**TINY, dropout=0.1, window=8),
}
ALL = ("gather", "mix", "up", "down")
every_family = pytest.mark.parametrize("family", FAMILIES)


def network(family="bert"):
    torch.manual_seed(8)
    return shaken(FAMILIES[family].build(WORDS))


def adapted(family="bert", **how):
    model, how = network(family), Adapters(**how)
    put_in(model, how)
    return model, how


def learn(model, steps=3):
    """Plain steps towards anything at all."""
    wanted = torch.randn(32, generator=torch.Generator().manual_seed(2))
    for _ in range(steps):
        (model(*packed()) - wanted).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None


def names_of_learners(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@every_family
def test_at_first_nothing_changes_to_the_bit(family):
    plain, (model, _) = network(family).train(), adapted(family, on=ALL, dropout=0.3)
    outputs = []
    for one in (plain, model.train()):
        begin_micro_batch(1)
        outputs.append(one(*packed()))
    assert torch.equal(*outputs)


def test_fresh_adapters_are_as_the_authors_had_them():
    """Kaiming's for a gradient of sqrt(5): uniform to 1 / sqrt(width), whatever the rank; up begins as 0."""
    model, _ = adapted(rank=16)
    layer = model.blocks[1].attention.mix
    assert float(layer.adapter_down.detach().abs().max()) == pytest.approx(32**-0.5, rel=0.02)
    assert not layer.adapter_up.any()


@every_family
def test_merged_is_the_plain_network_that_does_the_same(family):
    model, how = adapted(family, rank=4, scale=0.5, on=ALL, learn="norm")
    before = model(*packed()).detach()
    learn(model)
    after = model.double()(*packed()).detach()
    assert (after - before).abs().max() > 0.01
    plain = network(family).double()
    load_into(plain, merged(own_tensors(model), how), "merged")
    assert (plain(*packed()) - after).abs().max() < 1e-6


@every_family
def test_names_are_the_plain_ones_and_the_adapters(family):
    plain, (model, _) = network(family), adapted(family, rank=4)
    layers = [f"blocks.{n}.attention.{name}" for n in range(2) for name in ("gather", "mix")]
    added = {f"{layer}.adapter_{end}" for layer in layers for end in ("down", "up")}
    theirs, ours = own_tensors(plain), own_tensors(model)
    assert ours.keys() == theirs.keys() | added
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    assert names_of_learners(model) == added


def test_only_adapters_what_learn_names_and_heads_get_gradients():
    objective = masked(FAMILIES["bert"])
    how = Adapters(rank=4, on=("up",), learn=r"norm\.|^model\.words")
    assert put_in(objective.model, how) == 2
    objective.head(objective.model(*packed())).square().sum().backward()
    with_gradient = {name for name, parameter in objective.named_parameters() if parameter.grad is not None}
    assert with_gradient == names_of_learners(objective)
    body = {name for name in with_gradient if name.startswith("model.")}
    adapters = {f"model.blocks.{n}.up.adapter_{end}" for n in range(2) for end in ("down", "up")}
    norms = {
        f"model.{norm}norm.{end}"
        for end in ("weight", "bias")
        for norm in ("", *(f"blocks.{n}.{which}" for n in range(2) for which in ("", "attention_")))
    }
    assert body == adapters | norms | {"model.words.weight"}
    assert {name for name in with_gradient if name.startswith("head.")} == {
        "head.dense.weight",
        "head.dense.bias",
        "head.norm.weight",
        "head.norm.bias",
        "head.bias",
    }
    grouped = [name for group in groups(objective) for name in group["names"]]
    assert sorted(grouped) == sorted(with_gradient)


def test_an_adapter_is_scaled_and_drops_what_it_reads():
    model, _ = adapted(rank=2, scale=3.0, dropout=0.5)
    layer, x = model.blocks[0].attention.mix, torch.randn(50, 32)
    nn.init.normal_(layer.adapter_up)
    base = torch.nn.functional.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x) - base, 3 * x @ layer.adapter_down.T @ layer.adapter_up.T)
    number_layers(model)
    places = [m.place for m in model.modules() if isinstance(m, Dropout)]
    assert len(set(places)) == 1 + 5 * 2
    begin_micro_batch(1)
    kept = layer.train().dropout.mask(x.shape, x.dtype)
    torch.testing.assert_close(layer(x) - base, 3 * (x * kept) @ layer.adapter_down.T @ layer.adapter_up.T)


def test_blocks_computed_again_give_the_same_gradients():
    found = []
    for again in (False, True):
        model, _ = adapted(on=ALL, dropout=0.2)
        number_layers(model.train())
        for block in model.blocks if again else ():
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        begin_micro_batch(1)
        model(*packed()).square().sum().backward()
        found.append([p.grad for p in model.parameters() if p.requires_grad])
    assert len(found[0]) == 2 * 2 * len(ALL)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_cannot_be_is_refused():
    with pytest.raises(RecipeError, match=r"adapters\.on: found query; wanted layers .*: down, gather, mix, up"):
        adapted(on=("mix", "query"))
    names = ", ".join(f"model.{name}" for name in ("words.weight", "places.weight", "types.weight", "norm.weight"))
    with pytest.raises(
        RecipeError, match=rf"adapters\.learn: found norms, which matches no weight; .* such as {names}$"
    ):
        adapted(learn="norms")
    small = elmo.Elmo(width=8, cells=8, highways=1, filters=((1, 4), (2, 4)))
    with pytest.raises(RecipeError, match=r"adapters: found a network of LSTMs \(ELMo\).*; wanted a Transformer"):
        put_in(small.build(WORDS), Adapters())
    model, _ = adapted()
    with pytest.raises(RecipeError, match=r"adapters\.on: found gather; wanted layers of the blocks: down, up"):
        put_in(model, Adapters())


@pytest.mark.parametrize(
    "how", [{"rank": 0}, {"scale": 0.0}, {"scale": float("nan")}, {"dropout": 1.0}, {"on": ()}, {"learn": "("}]
)
def test_settings_that_cannot_be_are_refused(how):
    with pytest.raises(ValueError, match=f"^{next(iter(how))}: found .*; wanted "):
        Adapters(**how)

"""What families share: fresh weights by their kind, sizes that cannot be, smaller ones, rates for fine-tuning."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from kit.families import WORDS, packed, shaken
from ordsmed.base.menu import choice
from ordsmed.nn import activations
from ordsmed.nn.adapters import Adapters
from ordsmed.nn.lstm import Lstm
from ordsmed.nn.models import bert, electra, elmo, gpt2, megatron_bert, modern, roberta
from ordsmed.train.mesh import precision
from ordsmed.train.mesh.layout import Layout

SHAPE: dict[str, Any] = {"width": 64, "layers": 3, "heads": 4, "positions": 50, "initializer_std": 0.05}
DEEP = 0.05 / math.sqrt(6)
FRESH: list[tuple[Any, dict[str, float]]] = [  # ends of names -> spreads other than 0.05
    (bert.Bert(**SHAPE, tied=False), {}),
    (roberta.Roberta(**SHAPE), {}),
    (megatron_bert.MegatronBert(**SHAPE), {"mix.weight": DEEP, "down.weight": DEEP}),
    (megatron_bert.MegatronBert(**SHAPE, deep=False), {}),
    (
        electra.Electra(**SHAPE, embedding=32),
        {"project.weight": math.sqrt(2 / (32 + 64)), "detect.out.weight": math.sqrt(2 / 65)},
    ),
    (gpt2.Gpt2(**SHAPE, tied=False), {"mix.weight": DEEP, "down.weight": DEEP, "places.weight": 0.01}),
    (gpt2.Gpt2(**SHAPE, deep=False, positions_initializer_std=0.07), {"places.weight": 0.07}),
    (
        modern.ModernBert(**SHAPE, norm_bias=True, attention_bias=True, inner_bias=True, head_bias=True, tied=False),
        {"mix.weight": DEEP, "down.weight": DEEP, "head.dense.weight": DEEP},
    ),
]
CUT = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))  # spread of what ends at 2


@pytest.mark.parametrize(("settings", "others"), FRESH, ids=lambda x: type(x).__module__ if hasattr(x, "width") else "")
def test_fresh_weights(settings: Any, others: dict[str, float]) -> None:
    torch.manual_seed(3)
    model = settings.build(WORDS)
    parts = {"model": model, "head": settings.token_head(model)}
    parts |= {"pair": settings.pair_head(model)} if settings.capabilities.pairs else {}
    parts |= {"detect": settings.detect_head(model)} if settings.capabilities.detects else {}
    for name, parameter in torch.nn.ModuleDict(parts).named_parameters():
        weight = parameter.detach()
        if weight.ndim == 1:
            wanted = 1.0 if name.endswith("weight") else 0.0
            assert (weight == wanted).all(), name
            continue
        spread = next((value for end, value in others.items() if name.endswith(end)), 0.05)
        cut = isinstance(settings, modern.ModernBert)
        room = 5 / math.sqrt(2 * weight.numel())
        assert float(weight.std()) == pytest.approx(spread * (CUT if cut else 1.0), rel=room), name
        assert abs(float(weight.mean())) < 5 * spread / math.sqrt(weight.numel()), name
        assert not cut or weight.abs().max() <= 2 * spread, name


def test_fresh_elmos() -> None:
    """Glorot's, input and recurrence as one matrix; the table that scores by its width."""
    torch.manual_seed(3)
    lstm = Lstm(40, 90, cell_clip=3.0, projection_clip=3.0)
    for weight in (lstm.enter, lstm.carry):
        assert float(weight.detach().abs().max()) == pytest.approx(math.sqrt(6 / (2 * 40 + 4 * 90)), rel=0.01)
    assert lstm.project is not None
    assert float(lstm.project.detach().abs().max()) == pytest.approx(math.sqrt(6 / 130), rel=0.01)
    assert not lstm.bias.any()
    assert Lstm(40, 40, cell_clip=0.0, projection_clip=0.0).project is None
    head = elmo.Elmo(width=64, cells=8).word_head(500)
    assert float(head.table.weight.detach().std()) == pytest.approx(1 / 8, rel=0.05)
    assert not head.bias.any()


ENCODERS = (bert, roberta, megatron_bert, electra)
TAKEN: list[tuple[Any, dict[str, Any]]] = [
    (bert.Bert, {"types": 0}),
    (bert.Bert, {"dropout": 0.999, "attention_dropout": 0.0, "epsilon": 0.0, "initializer_std": 9.9}),
    *((choice(m), {"width": 1, "layers": 1, "positions": 1}) for m in (*ENCODERS, gpt2)),
    (modern.ModernBert, {"width": 2, "layers": 1, "positions": 1, "inner": 1, "window": 1, "every": 1, "theta": 1.0}),
    (modern.ModernBert, {"layers": 3, "whole": (0, 2), "local_theta": 1.0}),
    (
        elmo.Elmo,
        {
            "width": 1,
            "cells": 1,
            "layers": 1,
            "letter": 1,
            "highways": 0,
            "filters": ((1, 1),),
            "longest_word": 4,
            "cell_clip": 0.0,
            "projection_clip": 0.0,
            "dropout": 0.0,
        },
    ),
    (elmo.Elmo, {"filters": ((7, 1),), "longest_word": 7}),
    (Adapters, {"rank": 1, "scale": 1e-9, "dropout": 0.0}),
    (Adapters, {"dropout": 0.999, "scale": 1e9}),
]
REFUSED: list[tuple[Any, str, Any]] = [
    *((choice(m), name, 0) for m in (*ENCODERS, gpt2, modern) for name in ("width", "layers", "positions")),
    *((choice(m), name, -1) for m in (bert, gpt2, modern) for name in ("heads", "inner")),
    *((choice(m), "heads", 7) for m in (bert, gpt2, modern)),
    *((bert.Bert, name, value) for name in ("dropout", "attention_dropout") for value in (1.0, -0.1)),
    *((bert.Bert, "epsilon", value) for value in (1.0, -1e-9)),
    *(
        (gpt2.Gpt2, name, value)
        for name in ("initializer_std", "positions_initializer_std")
        for value in (0.0, 10.0, math.nan)
    ),
    (bert.Bert, "types", -1),
    (electra.Electra, "embedding", -1),
    (modern.ModernBert, "heads", 256),
    (modern.ModernBert, "every", 0),
    (modern.ModernBert, "window", 0),
    (modern.ModernBert, "whole", (22,)),
    (modern.ModernBert, "whole", (-1,)),
    *((modern.ModernBert, name, value) for name in ("theta", "local_theta") for value in (0.9, math.inf)),
    *((elmo.Elmo, name, 0) for name in ("width", "cells", "layers", "letter")),
    (elmo.Elmo, "highways", -1),
    *((elmo.Elmo, "filters", value) for value in ((), ((0, 4),), ((2, 0),))),
    *((elmo.Elmo, "longest_word", value) for value in (3, 6)),
    (elmo.Elmo, "cell_clip", -0.1),
    (elmo.Elmo, "projection_clip", -0.1),
    (elmo.Elmo, "dropout", 1.0),
    (Adapters, "scale", math.inf),
    (Adapters, "dropout", -0.1),
]


@pytest.mark.parametrize(("settings", "how"), TAKEN)
def test_the_last_values_that_can_be_are_taken(settings: Any, how: dict[str, Any]) -> None:
    made = settings(**how)
    assert {name: getattr(made, name) for name in how} == how


@pytest.mark.parametrize(("settings", "name", "value"), REFUSED)
def test_what_cannot_be_is_refused(settings: Any, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: found .*; wanted "):
        settings(**{name: value})


def test_what_is_left_to_the_width() -> None:
    for m in (*ENCODERS, gpt2):
        assert (choice(m)(width=192).heads, choice(m)(width=192).inner) == (3, 768)
    assert (modern.ModernBert(width=192).heads, modern.ModernBert(width=192).inner) == (3, 288)
    assert (bert.Bert(width=32).heads, bert.Bert(width=32, heads=2, inner=5).inner) == (1, 5)
    assert electra.Electra(width=192).embedding == 192


@pytest.mark.parametrize("settings", [made for made, _ in FRESH], ids=lambda made: type(made).__module__)
def test_a_smaller_one_is_else_the_same(settings: Any) -> None:
    """Heads and inner widths follow the new width; an ELECTRA's embeddings shrink as the network does."""
    changed = {"width": 128, "layers": 1, "heads": 2}
    changed["inner"] = 192 if isinstance(settings, modern.ModernBert) else 512
    if isinstance(settings, electra.Electra):
        changed["embedding"] = 64
    assert asdict(settings.smaller(128, 1)) == asdict(settings) | changed


def test_a_smaller_elmo() -> None:
    small = replace(elmo.Elmo(), dropout=0.3).smaller(64, 1)
    assert (small.width, small.cells, small.layers, small.highways, small.dropout) == (64, 512, 1, 1, 0.3)
    assert small.filters == ((1, 8), (2, 8), (3, 16))
    assert elmo.Elmo(width=512, cells=4).smaller(8, 1).cells == 1


@pytest.mark.parametrize(
    ("m", "rates"),
    [  # at width 1024, 768, 512, 384, 256, 192, 128
        (bert, (3e-5, 3e-5, 1e-4, 5e-4, 1e-3, 1e-3, 1.5e-3)),
        (roberta, (1e-5, 1e-5, 1e-4, 5e-4, 1e-3, 1e-3, 1.5e-3)),
        (gpt2, (3e-5, 3e-5, 1e-4, 5e-4, 1e-3, 1e-3, 1.5e-3)),
        (electra, (5e-5, 1e-4, 1e-4, 3e-4, 3e-4, 1e-3, 1.5e-3)),
        (elmo, (1e-3,) * 7),
    ],
)
def test_rates_for_fine_tuning(m: Any, rates: tuple[float, ...]) -> None:
    assert (
        tuple(choice(m)(width=width).tuning().learning_rate for width in (1024, 768, 512, 384, 256, 192, 128)) == rates
    )


def test_how_families_are_fine_tuned_beside_the_rate() -> None:
    def rest(settings: Any) -> list[Any]:
        return list(asdict(settings.tuning()).values())[1:]  # warmup, layer_decay, decay, betas, freeze, pool

    assert rest(bert.Bert()) == rest(gpt2.Gpt2()) == [0.1, 1.0, 0.01, (0.9, 0.999), False, None]
    assert rest(roberta.Roberta()) == [0.06, 1.0, 0.1, (0.9, 0.98), False, None]
    assert rest(electra.Electra()) == [0.1, 0.8, 0.01, (0.9, 0.999), False, None]
    assert rest(electra.Electra(width=1024)) == [0.1, 0.9, 0.01, (0.9, 0.999), False, None]
    assert rest(elmo.Elmo()) == [0.0, 1.0, 0.01, (0.9, 0.999), True, None]
    pools = [modern.ModernBert().tuning().pool, modern.ModernBert(causal=True).tuning().pool]
    assert pools == ["mean", None]


def test_what_an_elmo_costs() -> None:
    """2 x multiply-adds: gates of input and recurrence, the projection, in both directions."""
    made = elmo.Elmo(width=6, cells=10, layers=3)
    lstm = Lstm(6, 10, cell_clip=0.0, projection_clip=0.0)
    held = sum(weight.numel() for weight in lstm.parameters() if weight.ndim == 2)
    assert made.flops(1) == made.flops(50) == 2 * 2 * 3 * held
    assert elmo.Elmo(width=6, cells=6, layers=1).flops(9) == 2 * 2 * 4 * 6 * 12
    assert made.head_flops(100) == 2 * 2 * 6 * 100
    assert made.longest() > 10**9


def test_activations_are_those_of_their_names() -> None:
    from transformers.activations import ACT2FN

    x = torch.linspace(-4, 4, 101)
    for there, here in activations.HUGGING_FACE.items():
        wanted = torch.tanh(x) if there == "tanh" else ACT2FN[there](x)
        torch.testing.assert_close(activations.ACTIVATIONS[here](x), wanted, rtol=1e-5, atol=1e-6)
        assert activations.HUGGING_FACE[activations.hugging_face_name(here)] == here
    assert (activations.hugging_face_name("gelu"), activations.hugging_face_name("gelu_tanh")) == ("gelu", "gelu_new")
    assert (activations.hugging_face_name("silu"), activations.from_config({}, "act", "gelu_new")) == (
        "silu",
        "gelu_tanh",
    )
    assert activations.from_config({"act": "swish"}, "act", "gelu") == "silu"
    with pytest.raises(ValueError, match="act: found mish; wanted gelu or"):
        activations.from_config({"act": "mish"}, "act", "gelu")
    assert set(activations.ACTIVATIONS) == set(activations.HUGGING_FACE.values())


@pytest.mark.parametrize("m", [bert, megatron_bert, electra])
def test_tokens_of_which_no_type_is_told_are_of_the_first(m: Any) -> None:
    model = shaken(choice(m)(**SHAPE).build(WORDS))
    ids, positions, _ = packed()
    one, first, second = (
        model(ids, positions, None, types) for types in (None, torch.zeros_like(ids), torch.ones_like(ids))
    )
    torch.testing.assert_close(one, first)
    assert not torch.allclose(one, second, atol=1e-2)


def test_a_masked_head_norms_last() -> None:
    """Dense, activation, norm: what scores words has mean 0 and variance 1."""
    torch.manual_seed(0)
    settings = bert.Bert(width=64, layers=1, heads=1)
    head = settings.token_head(settings.build(30))
    out = head.transform(torch.randn(5, 64) * 9).detach()
    torch.testing.assert_close(out.mean(1), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.var(1, correction=0), torch.ones(5), rtol=1e-3, atol=0)


def test_types_in_fp32_make_no_stream_of_fp32() -> None:
    settings = megatron_bert.MegatronBert(width=64, layers=1, heads=1)
    network = settings.build(30)
    precision.return_half(network, Layout(precision="bf16"))
    kinds = []
    network.blocks[0].register_forward_pre_hook(lambda _, given: kinds.append(given[0].dtype))
    ids = torch.zeros(2, 4, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16):
        network(ids, ids)
    assert kinds == [torch.bfloat16]

"""Texts end to end, for kernels without a mask, are looked at as by a mask; and nobody calls these kernels in vain.

No kernel runs here: what stands in for it computes the definition and refuses what the real one would.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ordsmed.base.machine.devices import Accelerator
from ordsmed.base.menu import choice
from ordsmed.data.batch import Batch
from ordsmed.nn import attention, varlen
from ordsmed.nn.attention import SelfAttention, nearby, visibility
from ordsmed.nn.models import bert, gpt2, modern
from ordsmed.nn.varlen import EndToEnd, Texts, bounds, why_not

GPU = torch.device("cuda", 0)
NEEDS = pytest.mark.skipif(not varlen.has_windows(), reason="this torch has no such function")


def defined(
    query: Tensor, key: Tensor, value: Tensor, cuts: Tensor, longest: int, scale: float, sides: tuple[int, int]
) -> Tensor:
    """What torch says of these arguments: [tokens, H, d], and how far each token sees to the left and right."""
    assert query.ndim == 3
    assert all(part.stride(-1) == 1 for part in (query, key, value))
    assert (cuts.dtype, int(cuts[0]), int(cuts[-1])) == (torch.int32, 0, len(query))
    assert bool((cuts.diff() >= 0).all())
    assert int(cuts.diff().max()) <= longest
    before, after = (len(query) if side < 0 else side for side in sides)
    places, text = torch.arange(len(query)), torch.bucketize(torch.arange(len(query)), cuts, right=True)
    ahead = places - places[:, None]
    seen = (text[:, None] == text) & (ahead <= after) & (ahead >= -before)
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), value)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU's kernels here: which were called, and how."""
    names: list[str] = []

    def public(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        return_aux: Any = None,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        names.append(f"public {window_size}")
        assert scale is not None
        assert (cu_seq_q is cu_seq_k, max_q == max_k, return_aux) == (True, True, None)
        return defined(query, key, value, cu_seq_q, max_q, scale, window_size)

    def operator(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cum_seq_q: Tensor,
        cum_seq_k: Tensor,
        max_q: int,
        max_k: int,
        dropout_p: float,
        is_causal: bool,
        return_debug_mask: bool,
        *,
        scale: float,
        window_size_left: int,
        window_size_right: int,
    ) -> tuple[Tensor, ...]:
        sides = window_size_left, window_size_right
        names.append(f"operator {sides} {dropout_p}")
        assert is_causal == (sides == (-1, 0))
        assert (cum_seq_q is cum_seq_k, max_q == max_k, return_debug_mask) == (True, True, False)
        return (defined(query, key, value, cum_seq_q, max_q, scale, sides),)

    module = types.ModuleType("torch.nn.attention.varlen")  # which an older torch lacks
    module.varlen_attn = public  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", operator)
    monkeypatch.setattr(attention, "why_not", lambda *_: "")
    return names


def documents() -> Tensor:
    return torch.tensor([[1] * 4 + [2] * 5 + [0] * 2, [1] * 11, [1] * 1 + [2] * 9 + [3]])


class Looker(nn.Module):
    """A block, as far as attention asks it."""

    def __init__(self, *, causal: bool, rate: float) -> None:
        super().__init__()
        self.compiled = False
        torch.manual_seed(1)
        self.attention = SelfAttention(24, 3, rate, causal=causal, scale=0.3)


def gradients(block: Any, visible: Any, turn: Any) -> list[Tensor]:
    """What a layer gives, and the gradients of what it was given and of its weights."""
    x = torch.randn(3, 11, 24, generator=torch.Generator().manual_seed(2)).requires_grad_()
    block.zero_grad()
    out = block.attention(x, visible, turn=turn)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(weight.grad for weight in block.parameters())]


@pytest.mark.parametrize("turned", [False, True], ids=["", "with rotary positions"])
@pytest.mark.parametrize("packed", [True, False], ids=["texts", "whole rows"])
@pytest.mark.parametrize(
    ("causal", "reach", "sides"),
    [(False, None, (-1, -1)), (True, None, (-1, 0)), (False, 2, (2, 2)), (True, 3, (3, 0))],
)
def test_texts_end_to_end_are_looked_at_as_by_a_mask(
    called: list[str], causal: bool, reach: int | None, sides: tuple[int, int], packed: bool, turned: bool
) -> None:
    parts, block = documents() if packed else None, Looker(causal=causal, rate=0.0).train()
    turn = modern.angles(torch.arange(11).expand(3, -1), 100.0, 8) if turned else None
    found = []
    for blocks in (None, nn.ModuleList([block])):
        texts = parts if parts is None or blocks is None else Texts(parts, cuts_of(parts))
        seen = visibility(texts, causal=causal, blocks=blocks)
        seen = nearby(seen, reach, documents(), causal=causal, blocks=blocks) if reach else seen
        found.append(gradients(block, seen, turn))
        assert isinstance(seen, EndToEnd) == (blocks is not None and (packed or reach is not None))
    assert called == ([f"public {sides}"] if packed or reach else [])
    assert all(torch.isfinite(one).all() for one in found[1])
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(*found, strict=True))


def cuts_of(parts: Tensor) -> Tensor:
    found = bounds(parts)
    assert found is not None
    return found


def test_dropout_is_the_operators_and_only_of_training(called: list[str]) -> None:
    block, parts = Looker(causal=True, rate=0.25).train(), documents()
    seen = visibility(Texts(parts, cuts_of(parts)), causal=True, blocks=nn.ModuleList([block]))
    dropped = gradients(block, seen, None)
    plain = gradients(block.eval(), seen, None)
    assert called == ["operator (-1, 0) 0.25", "public (-1, 0)"]
    assert all(torch.equal(one, other) for one, other in zip(dropped, plain, strict=True))


@pytest.mark.parametrize("family", [bert, gpt2, modern], ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_network_says_the_same_of_texts_end_to_end(called: list[str], family: Any) -> None:
    more = {"inner": 48, "window": 4, "every": 2} if family is modern else {}
    torch.manual_seed(3)
    network = choice(family)(width=32, layers=2, heads=2, **more).build(50).eval()
    parts = documents()
    tokens = torch.randint(0, 50, parts.shape)
    places = torch.arange(11).expand(3, -1)
    masked = network(tokens, places, parts)
    assert not called
    packed = network(tokens, places, Texts(parts, cuts_of(parts)))
    assert len(called) == 2
    assert torch.allclose(masked, packed, atol=1e-5)


def test_where_texts_begin() -> None:
    assert cuts_of(documents()).tolist() == [0, 4, 9, 11, 22, 23, 32, 33]
    assert cuts_of(torch.tensor([[1, 1], [1, 1]])).tolist() == [0, 2, 4], "a text ends with its row"
    assert cuts_of(torch.tensor([[0, 0], [5, 5]], dtype=torch.int32)).tolist() == [0, 2, 4]
    assert bounds(torch.tensor([[1, 2, 1]])) is None, "a text in two pieces"
    assert bounds(torch.tensor([[0, 1, 1]])) is None, "padding in front"
    assert cuts_of(documents()).dtype == torch.int32


def test_a_batch_tells_a_device_where_its_texts_begin() -> None:
    parts, rows = documents().int(), torch.zeros(3, 11, dtype=torch.int64)
    batch = Batch(torch.arange(3), rows, rows, rows, torch.ones(3, 11), documents=parts)
    network = bert.Bert(width=8, layers=1, heads=1).build(10)
    assert batch.texts(network) is parts
    away = batch.to(torch.device("meta"))
    texts = away.texts(network)
    assert isinstance(texts, Texts)
    assert texts.documents is away.documents
    assert (texts.bounds.shape, texts.bounds.device.type) == ((8,), "meta")
    assert away.texts(nn.Identity()) is away.documents, "a network of somebody's own asks for no more than numbers"
    parts[0] = torch.tensor([1, 2] * 5 + [1])
    assert isinstance(batch.to(torch.device("meta")).texts(network), Tensor), "masks alone tell of these"
    assert dataclasses.replace(batch, documents=None).to(torch.device("meta")).texts(network) is None


def test_rows_of_both_kinds_and_too_many_texts_have_masks(called: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parts, blocks = documents(), nn.ModuleList([Looker(causal=False, rate=0.0)])
    texts = Texts(parts, cuts_of(parts))
    see: Callable[..., Any] = visibility
    assert isinstance(see(texts, causal=False, blocks=blocks), EndToEnd)
    assert isinstance(see(texts, causal=False, blocks=blocks, rows=torch.tensor([True, False, True])), Tensor)
    assert isinstance(see(texts, causal=False), Tensor)
    monkeypatch.setattr(attention, "MAX_TEXTS", 7)
    assert isinstance(see(texts, causal=False, blocks=blocks), Tensor)
    monkeypatch.undo()
    assert isinstance(see(texts, causal=False, blocks=blocks), Tensor), "a CPU has no such kernel"


@NEEDS
@pytest.mark.long
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_compiled_blocks_are_one_graph_however_many_texts_there_are(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own operators, forward and back, on a device that computes nothing; a reach is a graph of its own."""
    from torch._dynamo.backends.registry import lookup_backend

    monkeypatch.setattr(attention, "why_not", lambda *_: "")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # of this device torch would not tell
    block, graphs = Looker(causal=False, rate=rate).to("meta", torch.bfloat16).train(), []
    block.compiled = True

    def backend(graph: Any, inputs: list[Tensor]) -> Any:
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    forward = torch.compile(block.attention, fullgraph=True, backend=backend)
    for texts, reach in ((5, None), (8, None), (6, None), (9, 2), (7, 2)):
        parts = torch.empty(3, 11, dtype=torch.int64, device="meta")
        cuts = torch.empty(texts + 1, dtype=torch.int32, device="meta")
        seen = visibility(Texts(parts, cuts), causal=False, blocks=nn.ModuleList([block]))
        seen = seen if reach is None else nearby(seen, reach, parts)
        x = torch.empty(3, 11, 24, device="meta", dtype=torch.bfloat16, requires_grad=True)
        forward(x, seen).sum().backward()
        assert x.grad is not None
        assert len(graphs) == (1 if reach is None else 2)


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    half = torch.bfloat16
    monkeypatch.setattr(varlen, "has_windows", lambda: True)
    assert why_not(torch.device("cpu"), half, 64) == "a GPU (here: cpu)"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert why_not(GPU, half, 64) == why_not(GPU, torch.float16, 256) == ""
    assert why_not(GPU, torch.float32, 64) == "bf16 or fp16 (here: fp32)"
    assert why_not(GPU, half, 264) == "heads of at most 256 numbers, a multiple of 8 (here: 264)"
    assert why_not(GPU, half, 20).endswith("a multiple of 8 (here: 20)")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    assert why_not(GPU, half, 64) == "compute capability 8.0 (some GPU: 7.5)"
    assert why_not(GPU, half, 64, Accelerator("A100", (8, 0))) == ""
    assert why_not(GPU, half, 64, Accelerator("MI210", (9, 0), amd=True)).startswith("an NVIDIA GPU")
    monkeypatch.setattr(varlen, "has_windows", lambda: False)
    assert why_not(GPU, half, 64) == f"torch 2.11 or later (here: {torch.__version__})"
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert why_not(GPU, half, 64).startswith("an NVIDIA GPU")


@pytest.mark.parametrize(("more", "has"), [("window_size: tuple[int, int] = (-1, -1)", True), ("", False)])
def test_a_function_without_windows_is_none(more: str, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("torch.nn.attention.varlen")
    exec(f"def varlen_attn(query, is_causal=False, {more}): ...", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert varlen.has_windows.__wrapped__() == has
    monkeypatch.setitem(sys.modules, module.__name__, None)
    assert not varlen.has_windows.__wrapped__()


@NEEDS
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_the_installed_torch_takes_these_arguments(rate: float) -> None:
    """Shapes and types by torch's own rules, there and back, on a device that computes nothing."""
    fused = torch.empty(3, 11, 3, 3, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
    query, key, value = (part.transpose(1, 2) for part in fused.unbind(3))
    cuts = torch.empty(8, dtype=torch.int32, device="meta")
    mixed = EndToEnd(cuts, 11, 4).attend(query, key, value, causal=False, scale=0.25, rate=rate)
    assert (mixed.shape, mixed.dtype) == (query.shape, torch.bfloat16)
    mixed.sum().backward()
    assert fused.grad is not None
    assert (fused.grad.shape, fused.grad.dtype) == (fused.shape, torch.bfloat16)
    names = {argument.name for argument in torch.ops.aten._flash_attention_forward.default._schema.arguments}
    assert {"scale", "window_size_left", "window_size_right", "dropout_p", "cum_seq_q"} <= names
    assert varlen.MAX_TEXTS == 2**16 - 1

"""Attention equals its definition on every path, and sees what it may."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

from ordsmed.nn import attention, cpu_attention
from ordsmed.nn.attention import (
    Cache,
    KeyValueCache,
    Neighbors,
    Runs,
    SelfAttention,
    as_scores,
    lower,
    nearby,
    visibility,
)
from ordsmed.nn.cpu_attention import BackByBlocks, HeadByHead
from ordsmed.nn.dropout import Dropout, begin_micro_batch

B, T, D, H = 2, 11, 24, 3


def defined(layer, x, may_see):
    """Softmax of scaled products, head by head, from the layer's own matrices."""
    d = D // H
    fused = torch.nn.functional.linear(x, layer.gather.weight, layer.gather.bias)
    heads = []
    for head in range(H):
        query, key, value = (fused[..., (3 * head + part) * d : (3 * head + part + 1) * d] for part in range(3))
        scores = query @ key.transpose(1, 2) / math.sqrt(d)
        heads.append(scores.masked_fill(~may_see, -torch.inf).softmax(-1) @ value)
    return layer.mix(torch.cat(heads, -1))


def layer_of(causal, rate=0.0):
    torch.manual_seed(1)
    return SelfAttention(D, H, rate, causal=causal)


def documents():
    return torch.tensor([[1] * 4 + [2] * 5 + [0] * 2, [1] * 11])


def keep_everything(self, shape):
    return torch.ones(shape, dtype=torch.uint8), 1.0


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("parts", [None, documents()], ids=["one text", "packed"])
@pytest.mark.parametrize("by_hand", [True, False], ids=["with dropout's path", "with torch's kernel"])
def test_every_path_is_the_definition(causal, parts, by_hand, monkeypatch):
    layer, x = layer_of(causal, 0.1 if by_hand else 0.0).train(), torch.randn(B, T, D)
    monkeypatch.setattr(Dropout, "draw", keep_everything)
    seen = visibility(parts, causal=causal)
    may_see = seen[:, 0] if seen is not None else lower(T, x.device) if causal else torch.ones(T, T, dtype=torch.bool)
    with torch.no_grad():
        assert (layer(x, seen) - defined(layer, x, may_see)).abs().max() < 1e-5


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("parts", [None, documents()], ids=["one text", "packed"])
def test_both_paths_have_the_same_gradients(causal, parts, monkeypatch):
    monkeypatch.setattr(Dropout, "draw", keep_everything)
    found = []
    for rate in (0.1, 0.0):
        layer = layer_of(causal, rate).train()
        torch.manual_seed(2)
        x = torch.randn(B, T, D, requires_grad=True)
        layer(x, visibility(parts, causal=causal)).square().sum().backward()
        found.append([x.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*found, strict=True):
        assert torch.isfinite(one).all()
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


@pytest.mark.parametrize("at_a_time", [1, 1 << 17], ids=["row by row", "all rows"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("parts", [None, documents()], ids=["one text", "packed"])
def test_head_by_head_is_torch_s_operators_one_by_one(causal, parts, at_a_time, monkeypatch):
    """To the last digits, dropout and its gradients included: each machine sums small products up as it likes."""
    monkeypatch.setattr(cpu_attention, "HEAD_SCORES", at_a_time)
    layer, seen = layer_of(causal, 0.4).train(), visibility(parts, causal=causal)
    fused, gradient = torch.randn(B, T, H, 3, D // H, requires_grad=True), torch.randn(B, T, H, D // H)
    begin_micro_batch(3)
    out = layer._attend_by_head(fused, seen)
    out.backward(gradient)
    found, fused.grad = fused.grad, None
    query, key, value = (part.transpose(1, 2) for part in fused.unbind(3))
    scores = torch.matmul(query * layer.scale, key.transpose(-1, -2))
    if seen is None and causal:
        seen = lower(T, fused.device)
    scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    left = scores.softmax(-1) * layer.dropout.mask(scores.shape, torch.float32)
    assert 0.2 < (left[..., 0, 0] == 0).float().mean() < 0.7
    wanted = torch.matmul(left, value).transpose(1, 2)
    wanted.backward(gradient)
    assert torch.allclose(out, wanted, rtol=1e-5, atol=1e-6)
    assert torch.allclose(found, fused.grad, rtol=1e-5, atol=1e-6)


def neighbors(causal):
    visible = None if causal else documents()[:, None, :, None] == documents()[:, None, None, :]
    return Neighbors.of(visible, 2, (B, T), causal=causal)


SEEN = {
    "one text": lambda causal: None,
    "packed": lambda causal: visibility(documents(), causal=causal),
    "runs": lambda causal: Runs((4, 5, 2, 11)),
    "neighbors": neighbors,
}


@pytest.mark.parametrize(("held", "queries"), [(1, 4), (T * T * H, 512), (1 << 20, 512)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("seen", SEEN)
def test_slopes_by_blocks_are_those_of_torch_s_kernel(seen, causal, held, queries, monkeypatch):
    """In bf16 without dropout, however long its blocks are."""
    monkeypatch.setattr(cpu_attention, "BLOCK_SCORES", held)
    monkeypatch.setattr(cpu_attention, "QUERIES", queries)
    counted = []
    plain = BackByBlocks.apply
    monkeypatch.setattr(BackByBlocks, "apply", lambda *args: counted.append(1) or plain(*args))
    gradients = []
    for half in (True, False):
        layer = layer_of(causal).train()
        torch.manual_seed(2)
        x = torch.randn(B, T, D, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = layer(x, SEEN[seen](causal))
        out.float().square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in layer.parameters())])
    assert counted
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() <= 0.03 * other.norm()


def test_who_takes_which_way_on_a_cpu(monkeypatch):
    monkeypatch.setattr(HeadByHead, "apply", None)
    monkeypatch.setattr(BackByBlocks, "apply", None)
    drops, plain, x = layer_of(False, 0.1).train(), layer_of(False).train(), torch.randn(B, T, D)
    drops(x, Runs((T,) * B))
    plain(x, None)
    with torch.autocast("cpu", torch.bfloat16):
        drops(x, None)
        with pytest.raises(TypeError):
            plain(x, None)
        long = torch.randn(1, cpu_attention.QUERIES + 1, D)
        layer_of(True).train()(long, None)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        plain.eval()(x, None)
    drops.eval()(x, None)
    with pytest.raises(TypeError):
        drops.train()(x, None)


class Looker(nn.Module):
    """A block, as far as attention asks it."""

    def __init__(self, causal, rate=0.0, compiled=False):
        super().__init__()
        self.attention, self.compiled = layer_of(causal, rate), compiled


@pytest.fixture
def cheap(monkeypatch):
    """Calls that cost nothing: runs are always cheaper."""
    monkeypatch.setattr(attention, "CALL_COST", 0)


@pytest.mark.parametrize(("causal", "reach"), [(True, None), (False, None), (False, 1), (False, 3)])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_texts_looked_at_one_by_one_are_the_same_as_by_a_mask(cheap, causal, rate, reach, monkeypatch):
    monkeypatch.setattr(Dropout, "draw", keep_everything)
    block, found = Looker(causal, rate).train(), []
    for blocks in (None, nn.ModuleList([block])):
        visible = visibility(documents(), causal=causal, blocks=blocks)
        torch.manual_seed(2)
        x = torch.randn(B, T, D, requires_grad=True)
        seen = as_scores(nearby(visible, reach, x[..., 0]) if reach else visible)
        assert isinstance(seen, Runs) == (blocks is not None)
        out = block.attention(x, seen)
        block.zero_grad()
        out.square().sum().backward()
        found.append([out.detach(), x.grad, *(p.grad for p in block.parameters())])
    for one, other in zip(*found, strict=True):
        assert torch.isfinite(one).all()
        assert (one - other).abs().max() <= 1e-5 * max(1.0, float(other.abs().max()))


def test_runs_are_texts_and_padding_where_they_are_cheaper_than_a_mask(cheap, monkeypatch):
    def runs(parts, **how):
        found = visibility(parts, causal=False, blocks=nn.ModuleList([Looker(causal=False, **how)]))
        return found.sizes if isinstance(found, Runs) else None

    assert runs(documents()) == (4, 5, 2, 11)
    assert runs(documents(), compiled=True) is None
    assert runs(torch.tensor([[1, 2, 1]])) is None, "a text in two pieces"
    assert runs(torch.tensor([[0, 1, 1]])) is None, "padding in front"
    assert runs(torch.tensor([[1, 2, 0], [1, 1, 1]])) == (1, 1, 1, 3)
    assert runs(torch.tensor([[1, 1, 0], [1, 1, 1]])) is None, "a text a row"
    monkeypatch.setattr(attention, "CALL_COST", H * (2 * 11**2 - (16 + 25 + 4 + 121)) // 4)
    assert runs(documents()) is None


def test_dropout_drops_alike_where_a_layer_is_computed_again_and_in_no_two_runs(cheap):
    block = Looker(False, 0.5).train()
    visible = visibility(torch.tensor([[1] * 6 + [2] * 6]), causal=False, blocks=nn.ModuleList([block]))
    x = torch.randn(1, 6, D).repeat(1, 2, 1)
    one, again = block.attention(x, visible), block.attention(x, visible)
    assert torch.equal(one, again)
    assert not torch.allclose(one[:, :6], one[:, 6:])


def test_the_path_by_hand_is_taken_only_where_something_is_dropped(monkeypatch):
    called = []
    plain = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: called.append(1) or plain(*a, **k)
    )
    x = torch.randn(B, T, D)
    layer_of(False, 0.1).train()(x, None)
    assert not called
    layer_of(False, 0.1).eval()(x, None)
    layer_of(False, 0.0).train()(x, None)
    assert len(called) == 2


def test_visibility_is_the_same_document_and_for_causal_what_stands_before():
    parts = torch.tensor([[1, 1, 2, 0]])
    both = visibility(parts, causal=False)
    assert both.shape == (1, 1, 4, 4)
    assert both[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert visibility(parts, causal=True)[0, 0].int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    assert visibility(None, causal=True) is None


def test_no_row_is_empty():
    """Padding sees padding: a row of softmax over nothing would be NaN."""
    for causal in (True, False):
        assert visibility(documents(), causal=causal).any(-1).all()


def test_lower_is_the_lower_triangle():
    assert lower(3, torch.device("cpu")).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_what_is_read_later_stands_behind() -> None:
    """However often the room for it grows, and where rows are left."""
    kept, read = attention.KeyValueCache(), torch.arange(2 * 300.0).reshape(2, 1, 300, 1)
    cuts = [0, 2, 3, 200, 201, 300]
    for start, stop in itertools.pairwise(cuts):
        part = read[:, :, start:stop]
        key, value = kept.extend(part, part + 5)
        assert torch.equal(key, read[:, :, :stop])
        assert torch.equal(value, read[:, :, :stop] + 5)
    kept.select(torch.tensor([1]))
    key, value = kept.extend(read[1:, :, :1], read[1:, :, 1:2])
    assert torch.equal(key, torch.cat([read[1:], read[1:, :, :1]], 2))
    assert torch.equal(value, torch.cat([read[1:] + 5, read[1:, :, 1:2]], 2))


def test_what_a_cache_lets_new_tokens_see() -> None:
    """All before them and themselves; of documents those of their own; no mask where one token sees all."""
    cpu = torch.device("cpu")
    cache = attention.Cache(1)
    assert cache.visible(3, None, cpu) is None
    assert cache.visible(1, None, cpu) is None
    seen = cache.visible(2, None, cpu)
    assert seen is not None
    assert seen.tolist() == [[[[True] * 5 + [False], [True] * 6]]]
    cache = attention.Cache(1)
    cache.visible(2, torch.tensor([[1, 2]]), cpu)
    seen = cache.visible(2, torch.tensor([[2, 3]]), cpu)
    assert seen is not None
    assert seen.tolist() == [[[[False, True, True, False], [False, False, False, True]]]]
    with pytest.raises(ValueError, match="documents for some tokens; wanted them for all tokens or for none"):
        cache.visible(1, None, cpu)


def test_what_a_run_sees() -> None:
    def seen(size: int, reach: int | None, *, causal: bool) -> list[str] | None:
        found = attention.Runs((size,), reach).seen(size, causal=causal)
        return None if found is None else ["".join("x" if score == 0 else "." for score in row) for row in found]

    assert seen(3, None, causal=False) is seen(2, 1, causal=False) is None
    assert seen(3, None, causal=True) == seen(3, 2, causal=True) == ["x..", "xx.", "xxx"]
    assert seen(3, 1, causal=False) == ["xx.", "xxx", ".xx"]
    assert seen(3, 1, causal=True) == ["x..", "xx.", ".xx"]


@pytest.mark.parametrize(("length", "reach", "same"), [(3, 2, True), (3, 1, False)])
def test_a_reach_that_holds_a_whole_row_changes_nothing(length: int, reach: int, same: bool) -> None:
    visible = torch.ones(1, 1, length, length, dtype=torch.bool)
    found = attention.nearby(visible, reach, torch.zeros(1, length))
    assert (found is visible) == same
    assert attention.nearby(None, 2, torch.zeros(1, 3)) is None
    assert same or found[0, 0].tolist() == attention.near(length, reach, torch.device("cpu")).tolist()  # type: ignore[index]


# neighbors by blocks


@pytest.mark.parametrize("texts", ["one", "runs", "mask"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "reach"), [(32, 4), (37, 4), (40, 5), (9, 1)])
def test_neighbors_by_blocks_are_the_same_as_by_a_mask(length, reach, causal, texts, monkeypatch):
    """Values and gradients, of rows that blocks fill and others; of one text, several, and with padding."""
    torch.manual_seed(1)
    block = Looker(causal).train()
    cuts = [[0] * 3, [length // 3, 0, length // 2]][texts != "one"]
    parts = torch.stack([1 + (torch.arange(length) >= cut).int() for cut in cuts])
    if texts == "mask":
        parts[1, -3:] = 0
    found = []
    for blocks in (None, nn.ModuleList([block])):
        mask = None if texts == "one" else visibility(parts, causal=causal)
        visible = attention._runs(parts, 10**6) if texts == "runs" and blocks is not None else mask
        x = torch.randn(3, length, D, generator=torch.Generator().manual_seed(2)).requires_grad_()
        seen = as_scores(nearby(visible, reach, x[..., 0], causal=causal, blocks=blocks))
        assert isinstance(seen, attention.Neighbors) == (blocks is not None)
        block.zero_grad()
        out = block.attention(x, seen)
        out.square().sum().backward()
        found.append([out.detach(), x.grad, *(p.grad for p in block.parameters())])
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(*found, strict=True))


def test_neighbors_by_blocks_are_dropped_at_their_rate():
    """With dropout too; what is kept is scaled, so the mean stays."""
    block, x = Looker(False, 0.5).train(), torch.randn(3, 32, D)
    seen = nearby(None, 4, x[..., 0], blocks=nn.ModuleList([block]))
    drawn = torch.stack([block.attention(x, seen) for _ in range(2)])
    assert torch.equal(drawn[0], drawn[1])
    plain = block.eval().attention(x, seen)
    assert not torch.allclose(drawn[0], plain, atol=1e-3)


def test_short_rows_compiled_blocks_and_short_texts_have_masks_and_runs():
    told = nn.ModuleList([Looker(False)])
    short, long = torch.zeros(1, 31), torch.zeros(1, 32)
    assert isinstance(nearby(None, 4, short, blocks=told), torch.Tensor)
    assert isinstance(nearby(None, 4, long), torch.Tensor)
    assert isinstance(nearby(None, 4, long, blocks=nn.ModuleList([Looker(False, compiled=True)])), torch.Tensor)
    assert isinstance(nearby(Runs((4,) * 8), 4, long, blocks=told), Runs)
    assert isinstance(nearby(Runs((30, 2)), 4, long, blocks=told), attention.Neighbors)


def test_one_token_more_sees_all_that_was_read():
    """A kernel's own causal mask would let the only query see the first key alone."""
    layer, x = layer_of(True).eval(), torch.randn(2, 6, D)
    with torch.no_grad():
        whole, kept = layer(x, None), KeyValueCache()
        layer(x[:, :5], None, cache=kept)
        torch.testing.assert_close(layer(x[:, 5:], None, cache=kept), whole[:, 5:], rtol=1e-4, atol=1e-5)


def test_products_are_scaled_as_asked():
    torch.manual_seed(0)
    own, other = (SelfAttention(8, 2, 0.0, causal=False, scale=scale) for scale in (0.5, 1.0))
    other.load_state_dict(own.state_dict())
    with torch.no_grad():
        other.gather.weight[torch.arange(24) // 4 % 3 == 0] *= 0.5  # rows of queries
        other.gather.bias[torch.arange(24) // 4 % 3 == 0] *= 0.5
        x = torch.randn(1, 5, 8)
        torch.testing.assert_close(own(x, None), other(x, None), rtol=1e-5, atol=1e-6)


def test_scores_of_a_mask_are_exact_on_a_cpu_whatever_products_are_made_in():
    with torch.autocast("cpu", torch.bfloat16):
        assert as_scores(lower(3, torch.device("cpu"))).dtype == torch.float32


@pytest.mark.parametrize("length", [3, 4, 5])
def test_what_was_read_within_reach_needs_no_mask(length):
    cache = Cache(1)
    cache.length = length
    seen = cache.nearby(None, 1, 3, torch.device("cpu"))
    assert (seen is None) == (length <= 4)
    assert seen is None or seen[0, 0].tolist() == [[False, True, True, True, True]]


@pytest.mark.parametrize(("shape", "keys"), [((3, 4, 600, 8), 600), ((2, 16, 512, 8), 4_096), ((5, 2, 8, 8), 8)])
def test_slopes_by_blocks_are_of_as_many_scores_as_the_cache_holds(shape, keys):
    count = torch.zeros(shape[:2])
    for rows, heads in cpu_attention._chunks(torch.Size(shape), keys):
        count[rows, heads] += 1
        some = count[rows, heads].numel()
        assert some == 1 or some * min(shape[2], cpu_attention.QUERIES) * keys <= cpu_attention.BLOCK_SCORES
    assert (count == 1).all()

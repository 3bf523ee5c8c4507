"""What blocks add, with dropout and norms, by a kernel: numbers and gradients are the plain form's, by one mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ordsmed.base import chance
from ordsmed.nn.dropout import Drop, Dropout, begin_micro_batch, number_layers
from ordsmed.nn.kernels import switch
from ordsmed.nn.models import bert, gpt2, megatron_bert, modern
from ordsmed.nn.residual import Sum, and_norm
from ordsmed.train.mesh import precision
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.parallel import _recompute

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy
BOUND = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
DROP = Drop(chance.key("some"), 77)
SMALL = {"width": 24, "layers": 1, "heads": 2, "positions": 16}
FAMILIES = {
    "bert": bert.Bert(**SMALL),
    "megatron_bert": megatron_bert.MegatronBert(**SMALL),
    "gpt2": gpt2.Gpt2(**SMALL),
    "modern": modern.ModernBert(
        **{**SMALL, "layers": 2}, every=2, inner=32, window=4, dropout=0.1, attention_bias=True
    ),
}


def leaves(device: torch.device, rows: tuple[int, ...], width: int, dtype: torch.dtype, kind: torch.dtype) -> Any:
    torch.manual_seed(0)
    shapes: tuple[tuple[int, ...], ...] = ((*rows, width), (*rows, width), (width,), (width,), (width,))
    made = [torch.randn(shape) for shape in shapes]
    made[1] += 3  # sums whose mean is not 0
    types = (dtype, kind, torch.float32, torch.float32, dtype)
    return [one.to(device, type_).requires_grad_() for one, type_ in zip(made, types, strict=True)]


def alike(ours: Any, theirs: Any, dtype: torch.dtype) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=BOUND[dtype] * (float(other.detach().abs().max()) + 1))


@pytest.mark.parametrize("how", ["after", "before", "before, without a shift, nothing dropped", "after, one use"])
@pytest.mark.parametrize(
    ("rows", "width", "dtype"),
    [((1,), 3, torch.float32), ((3,), 257, torch.float32), ((2, 9), 40, torch.bfloat16), ((2, 9), 40, torch.float16)],
)
def test_numbers_and_slopes_of_any_shape(
    device: torch.device, rows: tuple[int, ...], width: int, dtype: torch.dtype, how: str
) -> None:
    from ordsmed.nn.kernels.residual_norm import add_norm, plain

    products, residuals, scale, shift, bias = given = leaves(device, rows, width, dtype, dtype)
    after, drop = how.startswith("after"), Drop() if "nothing" in how else DROP
    if "without" in how:
        shift, given = None, given[:3] + given[4:]
    ours = add_norm(products + bias.detach(), residuals, scale, shift, 1e-5, dtype, bias=bias, drop=drop, after=after)
    sums, normed = plain(products + bias, residuals, scale, shift, 1e-5, dtype, drop=drop)
    theirs = (normed, normed) if after else (sums, normed)
    gradients = [torch.randn_like(one) for one in theirs]
    if "one use" in how:
        ours, theirs, gradients = ours[1:], theirs[1:], gradients[1:]
    learned = [torch.autograd.grad(way, given, gradients) for way in (ours, theirs)]
    alike([*ours, *learned[0]], [*theirs, *learned[1]], dtype)


@pytest.mark.parametrize("dtype", list(BOUND))
def test_a_sum_alone_and_a_norm_alone(device: torch.device, dtype: torch.dtype) -> None:
    from ordsmed.nn.kernels.residual_norm import add, add_norm, plain

    products, residuals, scale, shift, bias = leaves(device, (21,), 30, dtype, dtype)
    above = torch.randn_like(residuals)
    pairs = [(add(products + bias.detach(), residuals, bias, DROP), (products, residuals, bias))]
    pairs += [(add_norm(None, residuals, scale, shift, 1e-5, dtype)[1], (residuals, scale, shift))]
    plains = [plain(products + bias, residuals, None, None, 0.0, dtype, drop=DROP)[0]]
    plains += [plain(None, residuals, scale, shift, 1e-5, dtype)[1]]
    for (ours, its), theirs in zip(pairs, plains, strict=True):
        alike([ours, *torch.autograd.grad(ours, its, above)], [theirs, *torch.autograd.grad(theirs, its, above)], dtype)


def test_many_rows_are_summed_up_in_groups(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from ordsmed.nn.kernels import residual_norm

    monkeypatch.setattr(residual_norm, "GROUP", 4)
    monkeypatch.setattr(residual_norm, "WARPS", 2)
    products, residuals, scale, shift, _ = given = leaves(device, (45,), 6, torch.float32, torch.float32)
    ours, theirs = (
        way(products, residuals, scale, shift, 1e-5, torch.float32, drop=DROP)[1]
        for way in (residual_norm.add_norm, residual_norm.plain)
    )
    alike(*(torch.autograd.grad(one.sin().sum(), given[:4]) for one in (ours, theirs)), torch.float32)


def test_the_mask_is_bytes_of_noise_hashed_from_the_key(device: torch.device) -> None:
    from ordsmed.nn.kernels.residual_norm import add, mask

    zeros = torch.zeros(50, 44, device=device)
    kept = add(torch.ones_like(zeros), zeros, None, DROP)
    bits = chance.bits(DROP.key, np.arange(50 * 6)).astype("<u8").view(np.uint8).reshape(50, 48)[:, :44]
    assert torch.equal(kept.cpu() > 0, torch.from_numpy(bits >= 77))
    torch.testing.assert_close(kept, mask(zeros.shape, DROP, device), rtol=1e-6, atol=0)  # a GPU divides nearly exactly
    assert kept.unique().tolist() == pytest.approx([0, 256 / (256 - 77)])


def test_what_is_no_number_stays_so(device: torch.device) -> None:
    from ordsmed.nn.kernels.residual_norm import add

    zeros = torch.zeros(40, 16, device=device)
    assert add(torch.full_like(zeros, torch.nan), zeros, None, DROP).isnan().all()


@pytest.fixture
def taken(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernel alone is switched on, and torch's way takes its mask; when it was taken."""
    from ordsmed.nn.kernels import residual_norm

    list_of: list[str] = []
    monkeypatch.setattr(switch, "_running", {"residual_norm"})
    monkeypatch.setattr(residual_norm, "GROUP", 2)
    for name in ("add", "add_norm"):
        before = getattr(residual_norm, name)

        def noted(*given: Any, name: str = name, before: Any = before, **more: Any) -> Any:
            list_of.append(name)
            return before(*given, **more)

        monkeypatch.setattr(residual_norm, name, noted)

    def draw(layer: Dropout, shape: torch.Size) -> tuple[Tensor, float]:
        drop = layer.drop()
        return (residual_norm.mask(shape, drop, device) > 0).byte(), 256 / (256 - drop.dropped)

    monkeypatch.setattr(Dropout, "draw", draw)
    monkeypatch.setattr(Dropout, "_drop", lambda layer, x: x * layer.mask(x.shape, x.dtype))
    return list_of


def learned(network: nn.Module, device: torch.device, layout: Layout, choice: str) -> list[Tensor]:
    switch._running.clear()
    switch._running.update(("residual_norm",) if choice == "auto" else ())
    begin_micro_batch(3, 1, 0, 0)
    tokens = torch.arange(2 * 5, device=device).view(2, 5)
    with precision.autocast(layout, device):
        out = network(tokens, tokens % 5)
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad((out.float().sin()).sum(), weights, allow_unused=True)
    return [out.detach(), *(gradient for gradient in gradients if gradient is not None)]


@pytest.mark.parametrize(
    ("family", "how"),
    [
        *((family, how) for family in FAMILIES for how in ("fp32", "bf16, cast at once")),
        ("bert", "bf16"),
        ("gpt2", "bf16, exact norms"),
        ("bert", "bf16, exact norms"),
    ],
)
def test_networks_learn_as_by_torch(device: torch.device, taken: list[str], family: str, how: str) -> None:
    torch.manual_seed(1)
    layout = Layout(precision="fp32" if how == "fp32" else "bf16", exact=("norms",) if "exact" in how else ())
    network = FAMILIES[family].build(60).to(device).train()
    number_layers(network)
    precision.return_half(network, layout)
    if "once" in how:
        for block in network.blocks:
            precision.cast_at_once(block, torch.bfloat16, norms=False)
    theirs = learned(network, device, layout, "plain")
    assert taken == []
    ours = learned(network, device, layout, "auto")
    each = ["add_norm", "add_norm"] + (["add"] if family != "bert" else [])
    assert taken == (["add_norm"] * 3 if family == "modern" else each)  # modern's first block begins without a norm
    alike(ours, theirs, torch.float32 if how == "fp32" else torch.bfloat16)


@pytest.mark.parametrize("exact", [True, False])
def test_a_norm_gives_its_type(device: torch.device, taken: list[str], exact: bool) -> None:
    layout = Layout(precision="bf16", exact=("norms",) if exact else ())
    norm, other = nn.LayerNorm(6).to(device), nn.LayerNorm(6).to(device)
    precision.return_half(nn.Sequential(norm), layout)
    for kind in (torch.bfloat16, torch.float32):
        x = torch.randn(3, 6, device=device, dtype=kind)
        with precision.autocast(layout, device):
            assert and_norm(x, norm)[1].dtype == norm(x).dtype == (torch.float32 if exact else torch.bfloat16)
            assert and_norm(x, other)[1].dtype == other(x).dtype  # by torch, whatever that is
    assert len(taken) == 2


def test_a_block_computed_again_drops_the_same(device: torch.device, taken: list[str]) -> None:
    network = FAMILIES["bert"].build(60).to(device).train()
    number_layers(network)
    kept = learned(network, device, Layout(), "auto")
    for block in network.blocks:
        block.forward = lambda *given, inner=block.forward: _recompute(inner, *given)
    again = learned(network, device, Layout(), "auto")
    assert len(taken) == 2 + 4
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))


@pytest.mark.parametrize(
    ("how", "taken_as", "by_bias"),
    [
        ("as it is", ["add_norm"], True),
        ("looked at", ["add_norm"], False),
        ("frozen", ["add_norm"], False),
        ("a norm that is looked at", [], False),
        ("another norm", [], False),
        ("too wide", [], False),
        ("dropout that is looked at", [], False),
        ("an attention that is looked at", ["add_norm"], False),
    ],
)
def test_what_is_more_or_less_stays_as_it_is(
    device: torch.device,
    taken: list[str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    taken_as: list[str],
    by_bias: bool,
) -> None:
    layer, norm, dropout = nn.Linear(6, 10).to(device), nn.LayerNorm(10).to(device), Dropout(0.5).train()
    among = nn.Identity()
    hooked = {"looked at": layer, "a norm that is looked at": norm, "dropout that is looked at": dropout}
    for module in (hooked.get(how), among if "attention" in how else None):
        if module is not None:
            module.register_forward_hook(lambda *_: None)
    if how == "frozen":
        layer.requires_grad_(False)
    if how == "another norm":
        norm = type("Other", (nn.LayerNorm,), {})(10).to(device)
    if how == "too wide":
        monkeypatch.setattr("ordsmed.nn.residual.WIDEST", 9)
    x = torch.randn(3, 10, device=device, requires_grad=True)
    begin_micro_batch(1)
    adds = Sum(x, layer, dropout, norm, among)
    sums, normed = adds.and_norm(adds.product(torch.randn(3, 6, device=device)))
    torch.testing.assert_close(normed, norm(sums))
    assert taken == taken_as
    assert (adds.bias is not None) is by_bias


def test_without_dropout_and_norm_there_is_nothing_to_gain(device: torch.device, taken: list[str]) -> None:
    layer, x = nn.Linear(6, 6).to(device), torch.randn(3, 6, device=device)
    adds = Sum(x, layer, Dropout(0.0).train())
    assert torch.equal(adds.alone(adds.product(x)), x + layer(x))
    assert taken == []


def test_compiled_blocks_are_left_to_torch_s_compiler(device: torch.device, taken: list[str]) -> None:
    norm, x = nn.LayerNorm(6).to(device), torch.randn(3, 6, device=device)
    compiled = torch.compile(and_norm, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x, norm)[1], norm(x))
    assert taken == []


def test_rows_with_gaps_are_refused(device: torch.device) -> None:
    from ordsmed.nn.kernels.residual_norm import _launch, _launch_back

    x = torch.ones(3, 8, device=device)
    across, one = torch.ones(8, 3, device=device).T, torch.ones(8, device=device)
    with pytest.raises(AssertionError, match="contiguous"):
        _launch(across, x, one, one, 0, 0, 1e-5, x.dtype)
    with pytest.raises(AssertionError, match="contiguous"):
        _launch_back(x, None, None, across, torch.ones(3, 2, device=device), one, 0, 0, False, x.dtype, x.dtype)


def test_the_norm_is_of_the_sum_that_is_told(device: torch.device) -> None:
    from ordsmed.nn.kernels.residual_norm import add_norm

    products, residuals, scale, shift, _ = leaves(device, (6,), 40, torch.bfloat16, torch.bfloat16)
    sums, normed = add_norm(products, residuals.detach() + 100, scale, shift, 1e-5, torch.float32)
    wanted = torch.nn.functional.layer_norm(sums.float(), (40,), scale, shift, 1e-5)
    torch.testing.assert_close(normed, wanted, rtol=1e-3, atol=1e-3)


def test_where_the_sum_alone_is_used_it_learns_alone(device: torch.device) -> None:
    from ordsmed.nn.kernels.residual_norm import add_norm

    products, residuals, scale, shift, _ = given = leaves(device, (6,), 40, torch.float32, torch.float32)
    sums, _ = add_norm(products, residuals, scale, shift, 1e-5, torch.float32)
    above = torch.randn_like(sums)
    to_products, to_residuals, to_scale, to_shift = torch.autograd.grad(sums, given[:4], above, allow_unused=True)
    torch.testing.assert_close(to_products, above)
    torch.testing.assert_close(to_residuals, above)
    assert all(gradient is None or not gradient.any() for gradient in (to_scale, to_shift))


@pytest.mark.parametrize("kinds", [(torch.float32, torch.bfloat16), (torch.float16, torch.float32)])
def test_a_sum_of_two_types_is_of_the_wider(device: torch.device, kinds: tuple[torch.dtype, torch.dtype]) -> None:
    from ordsmed.nn.kernels.residual_norm import add

    products, residuals, *_ = leaves(device, (6,), 40, *kinds)
    sums = add(products, residuals, None, Drop())
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums, products.float() + residuals.float(), rtol=1e-6, atol=1e-6)
    gradients = torch.autograd.grad(sums, (products, residuals), torch.randn_like(sums))
    assert [gradient.dtype for gradient in gradients] == [*kinds]

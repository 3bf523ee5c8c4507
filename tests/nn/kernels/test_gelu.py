"""GELU's kernel: gradients of what comes in and of the bias are torch's, for any rows and columns and in 16 bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ordsmed.nn import activations
from ordsmed.nn.activations import ACTIVATIONS, activated
from ordsmed.nn.kernels import switch

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy
BOUND = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("shape", [(1, 1), (3, 257), (2, 65, 40)])
def test_slopes_of_any_shape(device: torch.device, shape: tuple[int, ...], dtype: torch.dtype, tanh: bool) -> None:
    from ordsmed.nn.kernels.gelu import linear_gelu, plain

    torch.manual_seed(0)
    x, weight = torch.randn(*shape[:-1], 6).to(device).requires_grad_(), torch.randn(shape[-1], 6).to(device)
    bias, above = torch.randn(shape[-1]).to(device), torch.randn(shape).to(device)
    leaves = (x, weight.requires_grad_(), bias.requires_grad_())
    results = []
    for way in (linear_gelu, plain):
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            out = way(*leaves, tanh=tanh)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, above.to(out.dtype))])
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=BOUND[dtype] * (float(other.abs().max()) + 1))


def test_what_is_no_number_stays_so(device: torch.device) -> None:
    from ordsmed.nn.kernels.gelu import _launch

    z, gradients = torch.randn(4, 30).to(device), torch.ones(4, 30).to(device)
    z[1, 3], gradients[2, 5] = torch.nan, torch.inf
    to_z, sums = _launch(gradients, z, False)
    assert (~to_z.isfinite()).nonzero().tolist() == [[1, 3], [2, 5]]
    assert (~sums.sum(0).isfinite()).nonzero().flatten().tolist() == [3, 5]


@pytest.fixture
def taken(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernel alone is switched on; when it was taken."""
    from ordsmed.nn.kernels import gelu

    monkeypatch.setattr(switch, "KERNELS", ("gelu",))
    assert "gelu" in switch.begin("auto", device)
    list_of: list[str] = []
    before = gelu.linear_gelu

    def noted(*given: Tensor, tanh: bool) -> Tensor:
        list_of.append("tanh" if tanh else "exact")
        return before(*given, tanh=tanh)

    monkeypatch.setattr(gelu, "linear_gelu", noted)
    return list_of


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_it_is_taken_for_gelu_alone(device: torch.device, taken: list[str], name: str) -> None:
    layer, x = nn.Linear(6, 10).to(device), torch.randn(3, 6, device=device)
    assert torch.equal(activated(layer, ACTIVATIONS[name], x), ACTIVATIONS[name](layer(x)))
    assert taken == {"gelu": ["exact"], "gelu_tanh": ["tanh"]}.get(name, [])


@pytest.mark.parametrize("how", ["frozen", "without a bias", "looked at", "another class"])
def test_layers_that_are_more_or_less_than_one_product_stay_as_they_are(
    device: torch.device, taken: list[str], how: str
) -> None:
    layer = nn.Linear(6, 10, bias=how != "without a bias").to(device)
    if how == "frozen":
        layer.requires_grad_(False)
    if how == "looked at":
        layer.register_forward_hook(lambda *_: torch.zeros(3, 10, device=device))
    if how == "another class":
        layer = type("Other", (nn.Linear,), {"forward": lambda self, x: x})(6, 10).to(device)
    x = torch.randn(3, 6, device=device)
    assert torch.equal(activated(layer, activations.F.gelu, x), activations.F.gelu(layer(x)))
    assert taken == []


def test_inputs_by_column_are_refused(device: torch.device) -> None:
    from ordsmed.nn.kernels.gelu import _launch

    z = torch.randn(4, 30).to(device)
    for gradients, inputs in ((z, z.T.contiguous().T), (z.T.contiguous().T, z)):
        with pytest.raises(AssertionError, match="contiguous"):
            _launch(gradients, inputs, False)


def test_slopes_that_are_one_number_again_and_again(device: torch.device) -> None:
    """As of a plain sum."""
    from ordsmed.nn.kernels.gelu import linear_gelu, plain

    x, weight, bias = (torch.randn(shape).to(device).requires_grad_() for shape in ((5, 6), (9, 6), (9,)))
    ours, theirs = (
        torch.autograd.grad(way(x, weight, bias, tanh=False).sum(), (x, weight, bias)) for way in (linear_gelu, plain)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

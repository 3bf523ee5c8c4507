"""Kernels are switched on where they can run and are right, and a line says so; what cannot leaves the plain form."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed as dist

from ordsmed.base.ranks import Ranks
from ordsmed.learn.objectives import bilm, mlm, rtd
from ordsmed.nn import kernels
from ordsmed.nn.kernel_shapes import shapes_of
from ordsmed.nn.kernels import switch
from ordsmed.nn.kernels.trial import Shapes
from ordsmed.nn.models import bert, electra, elmo

Signs: Any = functools.partial(
    SimpleNamespace, vocabulary=1_000, pad=0, start=2, stop=3, mask=4, end=5, unknown=1, special=(0, 1, 2, 3, 4, 5)
)  # as much of a tokenizer as objectives ask for
GPU, CPU = torch.device("cuda:0"), torch.device("cpu")


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One of NVIDIA's of architecture 9.0 with Triton and two kernels, both right."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(switch, "KERNELS", ("some_sum", "other"))
    for name in switch.KERNELS:
        tries(monkeypatch, name, lambda device, shapes: "")
    yield
    switch._running.clear()


def tries(monkeypatch: pytest.MonkeyPatch, name: str, check: Any) -> None:
    monkeypatch.setitem(sys.modules, f"ordsmed.nn.kernels.{name}", SimpleNamespace(check=check))


def test_no_operator_is_told_of_several_types_at_once() -> None:
    """torch 2.11 hands them over as numbers."""
    assert not [path for path in Path(kernels.__file__).parent.glob("*.py") if "ScalarType[]" in path.read_text()]


def test_both_run_and_are_said(a_gpu: None) -> None:
    assert switch.begin("auto", GPU) == "kernels: the project's for some sum, other"
    assert switch.runs("some_sum", GPU)
    assert switch.runs("other", GPU)
    assert not switch.runs("other", CPU)


def test_the_recipe_turns_them_off_and_a_cpu_has_none(a_gpu: None) -> None:
    switch.begin("auto", GPU)
    assert switch.begin("plain", GPU) == "kernels: torch's (set in the recipe)"
    assert not switch.runs("other", GPU)
    switch.begin("auto", GPU)
    assert switch.begin("auto", CPU) == ""
    assert not switch.runs("other", GPU)


def test_without_triton_a_line_says_what_to_do(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = switch.begin("auto", GPU)
    assert said == "kernels: torch's (Triton is not installed; `pip install triton` enables the project's kernels)"
    assert not switch.runs("other", GPU)


def test_an_old_gpu_is_told_by_its_name(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert switch.begin("auto", GPU) == "kernels: torch's (Some GPU has architecture 7.0; wanted 8.0 or later)"
    assert not switch.runs("other", GPU)
    monkeypatch.setattr(torch.version, "hip", "6.4")  # whose architectures are counted otherwise
    assert switch.begin("auto", GPU).startswith("kernels: the project's")


def test_a_compiler_that_lacks_is_one_line_and_the_plain_form(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(device: torch.device, shapes: Shapes) -> str:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nmore\nlines")

    for name in switch.KERNELS:
        tries(monkeypatch, name, check)
    said = switch.begin("auto", GPU)
    assert said.startswith("kernels: torch's (RuntimeError: Failed to find C compiler.")
    assert "\n" not in said
    assert not switch.runs("other", GPU)


def test_one_that_is_wrong_leaves_the_others(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tries(monkeypatch, "other", lambda device, shapes: "another sum than torch's")
    assert switch.begin("auto", GPU) == "kernels: the project's for some sum (not for other: another sum than torch's)"
    assert switch.runs("some_sum", GPU)
    assert not switch.runs("other", GPU)


def as_one_of_two(monkeypatch: pytest.MonkeyPatch, other: list[int]) -> Ranks:
    """Rank 0 of two, of which the other runs these kernels."""

    def least(own: torch.Tensor, op: Any) -> None:
        assert op == dist.ReduceOp.MIN
        own.copy_(torch.minimum(own, torch.tensor(other)))

    monkeypatch.setattr(dist, "all_reduce", least)
    return Ranks(CPU, world=2, store=dist.HashStore())


def test_what_another_rank_refuses_runs_nowhere(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that both share would drop otherwise on each; the line has the reason of the one that refuses."""
    ranks = as_one_of_two(monkeypatch, [1, 0])
    ranks.store.set("refused/other", "rank 1: Failed to find C compiler")
    said = switch.begin("auto", GPU, None, ranks)
    assert said == "kernels: the project's for some sum (not for other: rank 1: Failed to find C compiler)"
    assert switch.runs("some_sum", GPU)
    assert not switch.runs("other", GPU)


def test_a_rank_that_refuses_tells_the_others_why(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tries(monkeypatch, "other", lambda device, shapes: "another sum than torch's")
    ranks = as_one_of_two(monkeypatch, [1, 1])
    assert "not for other: another sum" in switch.begin("auto", GPU, None, ranks)
    assert ranks.store.get("refused/other") == b"rank 0: another sum than torch's"
    assert not switch.runs("other", GPU)


def test_each_is_tried_in_the_run_s_types_without_tf32(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def check(device: torch.device, shapes: Shapes) -> str:
        seen.append((shapes, torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
        return ""

    tries(monkeypatch, "other", check)
    asked = Shapes(torch.bfloat16, widths=(768,))
    try:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        switch.begin("auto", GPU, asked)
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    assert seen == [(asked, False, False)]


def test_types_and_widths_are_those_of_the_network() -> None:
    """Of both networks of ELECTRA; of norms that stay exact; of what is not there, none."""
    fakes = rtd.Rtd(generator=rtd.Generator(width=32))
    small = electra.Electra(width=64, layers=1, heads=2, dropout=0.0, attention_dropout=0.0)
    found = shapes_of(fakes.build(small, Signs()), torch.bfloat16)
    assert (found.dtype, found.residuals, found.normed) == (torch.bfloat16, (torch.bfloat16,), torch.bfloat16)
    assert found.widths == (32, 64)
    assert {128, 256} <= set(found.inner)
    assert (found.vocabulary, found.shifts, found.drops, found.cells) == ((1_000,), (True,), (False,), ())
    exact = shapes_of(mlm.Mlm().build(bert.Bert(width=64, layers=1), Signs()), torch.float16, ("norms",))
    assert (exact.residuals, exact.normed, exact.drops) == ((torch.float16, torch.float32), torch.float32, (True,))
    words = shapes_of(bilm.BiLm(samples=0).build(elmo.Elmo(width=32, cells=64), Signs()), torch.float32)
    assert (words.cells, words.widths, words.residuals) == (((64, 32),), (), (torch.float32,))


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kernel", ["cross_entropy", "gelu", "residual_norm", "lstm"])
def test_each_is_right_in_16_bits(device: torch.device, kernel: str, dtype: torch.dtype) -> None:
    module = importlib.import_module(f"ordsmed.nn.kernels.{kernel}")
    shapes = Shapes(dtype, (dtype, torch.float32), dtype, (24,), vocabulary=(300,), cells=((48, 8),))
    assert module.check(device, shapes) == ""
    assert switch._refused(kernel, device, shapes) == ""


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize(("kernel", "size"), [("cross_entropy", 300), ("gelu", 72), ("residual_norm", 80)])
def test_one_that_is_wrong_in_the_run_s_width_alone_is_refused(
    device: torch.device, kernel: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a few small numbers in fp32 do not show."""
    module = importlib.import_module(f"ordsmed.nn.kernels.{kernel}")
    right = module._op
    monkeypatch.setattr(module, "_op", lambda *given: spoilt(right, size, *given))
    assert switch._refused(kernel, device, Shapes(shifts=(True,))) == ""
    shapes = Shapes(torch.float16, (torch.float16,), torch.float16, (size,), inner=(size,), vocabulary=(size,))
    assert switch._refused(kernel, device, shapes).startswith("other ")


def spoilt(right: Any, size: int, *given: Any) -> Any:
    """A tenth more, where rows are so wide (a vocabulary is padded)."""
    wide = next(tensor.shape[-1] for tensor in given if isinstance(tensor, torch.Tensor))
    return [out * (1.1 if 0 <= wide - size < 128 else 1.0) if out.is_floating_point() else out for out in right(*given)]


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy
@pytest.mark.parametrize("kernel", switch.KERNELS)
def test_each_is_right_where_it_is_tried(device: torch.device, kernel: str) -> None:
    assert importlib.import_module(f"ordsmed.nn.kernels.{kernel}").check(device, Shapes()) == ""


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("kernel", switch.KERNELS)
def test_one_that_gives_no_numbers_is_refused(
    device: torch.device, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"ordsmed.nn.kernels.{kernel}")
    pairs = {"cross_entropy": "cross_entropy", "lstm": "side_by_side", "residual_norm": "add_norm"}
    inner = (pairs | {"adaptive_step": "step", "gelu": "_op"}).get(kernel)
    if inner is None:
        monkeypatch.setattr(module.Step, "apply_update", lambda self, rates: self.tensors[0].fill_(torch.nan))
    elif kernel == "adaptive_step":
        monkeypatch.setattr(module, inner, lambda weights, *given: weights.fill_(torch.nan))
    elif kernel == "gelu":
        right = module._op
        monkeypatch.setattr(module, "_op", lambda *given: [out * torch.nan for out in right(*given)])
    else:
        right = getattr(module, inner)
        monkeypatch.setattr(module, inner, lambda *given, **how: tuple(t * torch.nan for t in right(*given, **how)))
    assert switch._refused(kernel, device, Shapes()).startswith("other ")

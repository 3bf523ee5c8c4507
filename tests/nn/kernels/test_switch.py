"""Kernels are switched on where they can run and are right, and a line says so; what cannot leaves the plain form."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.nn import kernels
from ordsmed.nn.kernels import switch

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
        tries(monkeypatch, name, lambda device: "")
    yield
    switch._running.clear()


def tries(monkeypatch: pytest.MonkeyPatch, name: str, check: Any) -> None:
    monkeypatch.setitem(sys.modules, f"ordsmed.nn.kernels.{name}", SimpleNamespace(check=check))  # type: ignore[arg-type]


def test_no_operator_is_told_of_several_types_at_once() -> None:
    """torch 2.11 hands them over as numbers."""
    assert not [path for path in Path(kernels.__file__).parent.glob("*.py") if "ScalarType[]" in path.read_text()]


def test_both_run_and_are_said(a_gpu: None) -> None:
    assert switch.begin("auto", GPU) == "kernels: ours for some sum, other"
    assert switch.runs("some_sum", GPU)
    assert switch.runs("other", GPU)
    assert not switch.runs("other", CPU)


def test_the_recipe_turns_them_off_and_a_cpu_has_none(a_gpu: None) -> None:
    switch.begin("auto", GPU)
    assert switch.begin("plain", GPU) == "kernels: torch's (the recipe asks for it)"
    assert not switch.runs("other", GPU)
    switch.begin("auto", GPU)
    assert switch.begin("auto", CPU) == ""
    assert not switch.runs("other", GPU)


def test_without_triton_a_line_says_what_to_do(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = switch.begin("auto", GPU)
    assert said == "kernels: torch's (Triton is not installed; `pip install triton` makes ours possible)"
    assert not switch.runs("other", GPU)


def test_an_old_gpu_is_told_by_its_name(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert switch.begin("auto", GPU) == "kernels: torch's (Some GPU has architecture 7.0; ours need 8.0 or later)"
    assert not switch.runs("other", GPU)
    monkeypatch.setattr(torch.version, "hip", "6.4")  # whose architectures are counted otherwise
    assert switch.begin("auto", GPU).startswith("kernels: ours")


def test_a_compiler_that_lacks_is_one_line_and_the_plain_form(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(device: torch.device) -> str:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nmore\nlines")

    for name in switch.KERNELS:
        tries(monkeypatch, name, check)
    said = switch.begin("auto", GPU)
    assert said.startswith("kernels: torch's (not for some sum: RuntimeError: Failed to find C compiler.")
    assert "\n" not in said
    assert not switch.runs("other", GPU)


def test_one_that_is_wrong_leaves_the_others(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tries(monkeypatch, "other", lambda device: "another sum than torch's")
    assert switch.begin("auto", GPU) == "kernels: ours for some sum (not for other: another sum than torch's)"
    assert switch.runs("some_sum", GPU)
    assert not switch.runs("other", GPU)


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # the interpreter's numpy
@pytest.mark.parametrize("kernel", switch.KERNELS)
def test_each_is_right_where_it_is_tried(device: torch.device, kernel: str) -> None:
    assert importlib.import_module(f"ordsmed.nn.kernels.{kernel}").check(device) == ""
    assert switch._refused(kernel, device) == ""


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("kernel", switch.KERNELS)
def test_one_that_gives_no_numbers_is_refused(
    device: torch.device, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"ordsmed.nn.kernels.{kernel}")
    pairs = {"cross_entropy": "cross_entropy", "lstm": "side_by_side", "residual_norm": "add_norm"}
    inner = (pairs | {"adaptive_step": "step", "gelu": "linear_gelu"}).get(kernel)
    if inner is None:
        monkeypatch.setattr(module.Step, "walk", lambda self, rates: self.held[0].fill_(torch.nan))
    elif kernel == "adaptive_step":
        monkeypatch.setattr(module, inner, lambda weights, *given: weights.fill_(torch.nan))
    elif kernel == "gelu":
        right = module.linear_gelu
        monkeypatch.setattr(module, inner, lambda *given, **how: right(*given, **how) * torch.nan)
    else:
        right = getattr(module, inner)
        monkeypatch.setattr(module, inner, lambda *given, **how: tuple(t * torch.nan for t in right(*given, **how)))
    assert switch._refused(kernel, device).startswith("other ")

"""Networks without their numbers: their shapes, and nothing loaded for what they leave out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from kit.makers import make_store
from ordsmed.base import menu
from ordsmed.nn.model import own_tensors
from ordsmed.nn.weight_shapes import unfilled

RECIPE = """
data = "{here}/store"
layout = {{ device = "cpu", threads = 1, precision = "fp32" }}
model = {{ kind = "bert", width = 32, layers = 1, heads = 2, positions = 32 }}
objective = {{ kind = "mlm" }}
phase = [{{ steps = 2, length = 32, batch = 4, learning_rate = 1e-3 }}]
"""


@pytest.mark.parametrize("family", menu.entries("models"))
def test_shapes_are_those_of_the_network(family: str) -> None:
    small = {"elmo": {"cells": 16, "width": 8}}.get(family, {"width": 32, "layers": 2, "heads": 2})
    settings = menu.load("models", family)(**small)
    with unfilled():
        empty = own_tensors(settings.build(50))
    assert all(tensor.is_meta for tensor in empty.values())
    whole = own_tensors(settings.build(50))
    assert {name: tensor.shape for name, tensor in empty.items()} == {n: tensor.shape for n, tensor in whole.items()}


def test_draws_are_left_out_only_of_what_holds_nothing() -> None:
    """And only there."""
    generator = torch.random.get_rng_state()
    with unfilled():
        weight = torch.empty(2, 3)
        assert nn.init.normal_(weight, std=2.0) is weight
        assert weight.normal_() is weight
        full = nn.init.normal_(torch.zeros(4, device="cpu"))
    assert bool(full.any())
    torch.random.set_rng_state(generator)
    assert torch.equal(nn.init.normal_(torch.zeros(4)), full)


@pytest.mark.skipif(
    not hasattr(torch.optim.Optimizer.add_param_group, "__wrapped__"), reason="a torch that loads no compiler here"
)
def test_a_plan_does_not_load_torch_s_compiler(tmp_path: Path) -> None:
    """Which takes 1 to 2 seconds and 100 MB."""
    make_store(tmp_path / "store")
    (tmp_path / "recipe.toml").write_text(RECIPE.format(here=tmp_path))
    words = f"rehearse({str(tmp_path / 'recipe.toml')!r}, [], yes=True)"
    code = f"import sys; from ordsmed.train.pretrain.pretrain import rehearse; {words}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "ordsmed.learn.objectives.mlm" in loaded.stdout.split()
    assert "torch._dynamo" not in loaded.stdout.split()

"""What a training starts from: whether two networks are the same."""

from __future__ import annotations

import dataclasses

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.nn.models import bert, gpt2
from ordsmed.train.init_check import check_same


def test_what_makes_another_network() -> None:
    """Not its dropout nor how fresh weights are spread; a row of types or none is the same."""
    one = bert.Bert(width=16, layers=2, heads=2, positions=8)
    check_same(one, dataclasses.replace(one, dropout=0.5, initializer_std=0.5), "a run")
    check_same(None, one, "a run")
    for name, value in {"width": 32, "layers": 3, "heads": 4, "positions": 16, "inner": 99, "epsilon": 0.5}.items():
        with pytest.raises(RecipeError, match=f"model: found {name} .*; wanted {name} {value}, as a run has"):
            check_same(one, dataclasses.replace(one, **{name: value}), "a run")  # type: ignore[arg-type]
    check_same(dataclasses.replace(one, types=0), dataclasses.replace(one, types=1), "a run")
    with pytest.raises(RecipeError, match="types"):
        check_same(dataclasses.replace(one, types=2), dataclasses.replace(one, types=1), "a run")
    both = [gpt2.Gpt2(width=16, layers=2, heads=2, positions=8, causal=causal) for causal in (True, False)]
    check_same(*both, "a run")  # what a token sees may be another
    with pytest.raises(RecipeError, match="found kind bert; wanted kind gpt2"):
        check_same(one, gpt2.Gpt2(width=16, layers=2, heads=2, positions=8), "a run")

"""A masked model with a causal phase in the same run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import make_store
from ordsmed.base.errors import RecipeError
from ordsmed.data.encode import Encoded
from ordsmed.learn.objectives import clm, mlm
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.teacher import Teacher
from ordsmed.nn.models import bert, modern

SIZES: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "positions": 64, "window": 8, "every": 2}
BOTH_SIDES = modern.ModernBert(**SIZES)
PHASE = Phase(steps=100, length=32, batch=8, learning_rate=1e-3)
FIRST = Stretch(0.0, 0.5, 800)
CAUSAL = mlm.Mlm(causal=True)


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    return Encoded(make_store(tmp_path_factory.mktemp("causal") / "store", documents=300))


def rows_of(encoded: Encoded, how: Any, stretch: Stretch = FIRST) -> Any:
    return how.rows([encoded.train], [1.0], encoded.tokenizer, PHASE, 0, stretch=stretch)


def test_its_rows_and_its_loss_are_those_of_clm(encoded: Encoded) -> None:
    """On the weights of a network that reads from left to right only; documents end within rows."""
    numbers = np.arange(40)
    batch, plain = (rows_of(encoded, how).batch(numbers) for how in (CAUSAL, clm.Clm()))
    assert torch.equal(batch.tokens, plain.tokens)
    assert torch.equal(batch.targets, plain.targets)
    assert torch.equal(batch.weights, plain.weights)
    assert int(batch.documents.max()) > 1
    torch.manual_seed(0)
    reading = clm.Clm().build(modern.ModernBert(**SIZES, causal=True), encoded.tokenizer).eval()
    filling = CAUSAL.build(BOTH_SIDES, encoded.tokenizer).eval()
    filling.load_state_dict(reading.state_dict())
    torch.testing.assert_close(filling(batch)["mlm"], reading(plain)["clm"])
    assert filling.count(batch)["mlm"] == reading.count(plain)["clm"]


def test_a_row_of_one_text_sees_nothing_behind_a_token(encoded: Encoded) -> None:
    plain, rows = rows_of(encoded, clm.Clm()), rows_of(encoded, CAUSAL)
    number = next(number for number in range(800) if plain.batch(np.asarray([number])).documents is None)
    batch = rows.batch(np.asarray([number]))
    network = CAUSAL.build(BOTH_SIDES, encoded.tokenizer).eval().model
    changed = batch.tokens.clone()
    changed[:, -1] = changed[:, 0]
    seen = [
        network(tokens, batch.positions, batch.documents, causal=batch.causal) for tokens in (batch.tokens, changed)
    ]
    assert not torch.equal(seen[0][:, -1], seen[1][:, -1])
    assert torch.equal(seen[0][:, :-1], seen[1][:, :-1])


def test_operations_are_those_of_each_phase(encoded: Encoded) -> None:
    """Every token is guessed in a causal phase, a share of them otherwise."""
    first, then = CAUSAL.build(BOTH_SIDES, encoded.tokenizer), mlm.Mlm().build(BOTH_SIDES, encoded.tokenizer)
    head = 3.0 * BOTH_SIDES.head_flops(encoded.tokenizer.vocabulary)
    assert first.flops(8, 32) - then.flops(8, 32) == pytest.approx(8 * (32 - then.scored(32)) * head)


def test_a_validation_hides_tokens_in_such_a_phase(encoded: Encoded) -> None:
    """As in any other, so that all of a run's compare."""
    numbers = np.arange(8)
    batch, plain = (rows_of(encoded, how, OVER).batch(numbers) for how in (CAUSAL, mlm.Mlm()))
    assert torch.equal(batch.tokens, plain.tokens)
    assert batch.causal is None


def test_a_teacher_and_such_a_phase_are_refused_together() -> None:
    with pytest.raises(ValueError, match="causal: found true with a teacher"):
        mlm.Mlm(causal=True, teacher=Teacher("run"))


def test_a_family_that_sees_both_sides_alone_is_refused(encoded: Encoded) -> None:
    with pytest.raises(RecipeError, match=r"found true with bert, which reads in one direction only"):
        CAUSAL.build(bert.Bert(width=32, layers=1, heads=2, positions=64), encoded.tokenizer)

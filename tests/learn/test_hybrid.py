"""Hybrid: which rows are causal and which masked, their targets, and that no token sees its target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import make_store
from ordsmed.base.errors import RecipeError
from ordsmed.data.encode import Encoded
from ordsmed.learn.objectives import clm, hybrid
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.schedules import Ramp
from ordsmed.nn.models import bert, gpt2
from ordsmed.use.fill import fill
from ordsmed.use.generate import generate
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights.trained_model import Trained

MODEL = gpt2.Gpt2(width=32, layers=2, heads=2, positions=64)
PHASE = Phase(steps=100, length=32, batch=8, learning_rate=1e-3)


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    return Encoded(make_store(tmp_path_factory.mktemp("hybrid") / "store", documents=300))


def rows_of(encoded: Encoded, stretch: Stretch = OVER, **settings: Any) -> hybrid.HybridRows:
    how = hybrid.Hybrid(**settings)
    return how.rows([encoded.train], [1.0], encoded.tokenizer, PHASE, 0, stretch=stretch)


def test_rows_go_one_way_or_the_other(encoded: Encoded) -> None:
    """Causal rows are those of clm; masked rows hide a share, and are asked only there, from the place before."""
    rows = rows_of(encoded, Stretch(0, 1, 800), masked=0.25, mask_prob=0.2, keep=0.0, swap=0.0)
    plain = clm.Clm().rows([encoded.train], [1.0], encoded.tokenizer, PHASE, 0)
    numbers = np.arange(800)
    batch, whole = rows.batch(numbers), plain.batch(numbers)
    masked = ~batch.causal
    assert float(masked.float().mean()) == pytest.approx(0.25, abs=0.05)
    assert torch.equal(batch.targets, whole.targets)
    assert torch.equal(batch.tokens[batch.causal], whole.tokens[batch.causal])
    assert torch.equal((batch.weights > 0)[batch.causal], whole.weights[batch.causal] > 0)
    hidden = torch.zeros_like(batch.tokens, dtype=torch.bool)
    asked = batch.weights[masked] > 0
    hidden[masked] = torch.nn.functional.pad(asked, (1, 0))[:, :-1]
    changed = batch.tokens != whole.tokens
    assert torch.equal(changed[masked][:, 1:], hidden[masked][:, 1:])  # a place is asked of the one before it
    assert (batch.tokens[changed] == encoded.tokenizer.mask).all()
    assert not torch.isin(batch.targets[masked][asked], torch.tensor([encoded.tokenizer.end])).any()
    assert (batch.documents[masked][asked] > 0).all()
    filled = (batch.documents[masked] > 0).sum(1)
    share = asked.sum(1)[filled == 32].float() / 32
    assert float(share.mean()) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("mask_prob", [0.15, 0.01])
def test_every_row_weighs_the_same(encoded: Encoded, mask_prob: float) -> None:
    """Also one of which a single token is guessed."""
    batch = rows_of(encoded, Stretch(0, 1, 800), mask_prob=mask_prob, masked=0.9).batch(np.arange(200))
    sums = batch.weights.sum(1)
    assert torch.allclose(sums, torch.full_like(sums, 32.0))
    asked = (batch.weights > 0).sum(1)[~batch.causal]
    assert bool((asked == 1).all()) == (mask_prob < 0.1)


def test_an_end_sign_is_never_hidden(encoded: Encoded) -> None:
    rows = rows_of(encoded, Stretch(0, 1, 800), masked=1.0, mask_prob=0.9, keep=0.0, swap=0.0)
    batch = rows.batch(np.arange(300))
    asked = batch.targets[batch.weights > 0]
    assert not (asked == encoded.tokenizer.end).any()
    assert (batch.tokens == encoded.tokenizer.end).any()
    behind = batch.documents[:, 1:] != batch.documents[:, :-1]
    assert not (behind & (batch.weights[:, :-1] > 0)).any()


def test_ratio_and_mask_rate_follow_the_run(encoded: Encoded) -> None:
    rows = rows_of(encoded, Stretch(0.5, 1.0, 4_000), masked=Ramp(1.0, 0.0), mask_prob=Ramp(0.1, 0.5))
    early, late = rows.batch(np.arange(400)), rows.batch(np.arange(3_400, 3_800))
    assert float((~early.causal).float().mean()) == pytest.approx(0.475, abs=0.08)
    assert float((~late.causal).float().mean()) == pytest.approx(0.05, abs=0.04)
    hidden = [(b.weights[~b.causal] > 0).sum(1).float().mean() for b in (early, late)]
    assert hidden[1] / hidden[0] == pytest.approx((0.1 + 0.4 * 0.95) / (0.1 + 0.4 * 0.525), abs=0.2)
    held = rows_of(encoded, OVER, masked=Ramp(0.9, 0.1)).batch(np.arange(400))
    assert float(held.causal.float().mean()) == pytest.approx(0.5, abs=0.08)
    only = rows_of(encoded, OVER, masked=0.0).batch(np.arange(50))
    assert only.causal.all()


def test_what_is_to_be_guessed_is_not_seen(encoded: Encoded) -> None:
    """The right word behind a mask, and any word behind a causal place, may be another: the guess stays the same."""
    torch.manual_seed(0)
    objective = hybrid.Hybrid().build(MODEL, encoded.tokenizer).eval()
    batch = rows_of(encoded, keep=0.0, swap=0.0).batch(np.arange(16))
    with torch.no_grad():
        before = objective._hidden(batch)
        for row in (int((~batch.causal).nonzero()[0]), int(batch.causal.nonzero()[0])):
            place = int((batch.weights[row] > 0).nonzero()[3])
            tokens = batch.tokens.clone()
            if batch.causal[row]:
                tokens[row, place + 1 :] = 9
            else:
                assert tokens[row, place + 1] == encoded.tokenizer.mask
                continue
            after = objective.model(tokens, batch.positions, batch.documents, causal=batch.causal)
            assert torch.equal(before[row, : place + 1], after[row, : place + 1])


def test_what_a_validation_tells(encoded: Encoded) -> None:
    """Each way by itself, every place that counts once; both together as they were learned."""
    torch.manual_seed(0)
    objective = hybrid.Hybrid().build(MODEL, encoded.tokenizer).eval()
    batch = rows_of(encoded).batch(np.arange(24))
    assert batch.causal is not None
    with torch.no_grad():
        told = {name: float(value) for name, value in objective.validate(batch).items()}
        hidden = objective.model(batch.tokens, batch.positions, batch.documents, causal=batch.causal)
        scores = objective.head(hidden)
    lost = torch.nn.functional.cross_entropy(scores.transpose(1, 2), batch.targets, reduction="none")
    used, right = batch.weights > 0, scores.argmax(2) == batch.targets
    wanted = {"hybrid": float((lost * batch.weights).sum())}
    for name, rows in (("masked", ~batch.causal), ("causal", batch.causal)):
        asked = used & rows[:, None]
        assert asked.any()
        wanted |= {
            name: float(lost[asked].sum()),
            f"{name}_count": float(asked.sum()),
            f"{name}_right": float(right[asked].sum()),
        }
    assert told == pytest.approx(wanted, rel=1e-5)
    assert {name: float(value) for name, value in objective.count(batch).items()} == pytest.approx(
        {"hybrid": float(batch.weights.sum())}
    )
    assert objective.shifted
    assert objective.guessing({}, 4.0, 0.2) == {"validation": 4.0, "hybrid": 4.0, "hybrid_right": 0.2}


def test_flops_are_those_of_the_mean_row(encoded: Encoded) -> None:
    """Over the run a quarter of the rows is masked, and of these a fifth of the places is scored."""
    objective = hybrid.Hybrid(masked=Ramp(0.5, 0.0), mask_prob=Ramp(0.3, 0.1)).build(MODEL, encoded.tokenizer)
    scored = 20 * (0.75 + 0.25 * 0.2) * MODEL.head_flops(encoded.tokenizer.vocabulary)
    assert objective.flops(7, 20) == pytest.approx(3 * 7 * (20 * MODEL.flops(20) + scored))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mask_prob": 0.0},
        {"mask_prob": 1.0},
        {"mask_prob": Ramp(0.1, 1.0)},
        {"masked": -0.1},
        {"masked": 1.1},
        {"keep": -0.1},
        {"swap": -0.1},
        {"keep": 0.6, "swap": 0.6},
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    name = "keep" if "swap" in wrong else next(iter(wrong))
    with pytest.raises(ValueError, match=f"^{name}: found"):
        hybrid.Hybrid(**wrong)
    hybrid.Hybrid(masked=0.0, keep=0.5, swap=0.5, mask_prob=0.999)
    hybrid.Hybrid(masked=1.0, keep=0.0, swap=0.0, mask_prob=Ramp(0.001, 0.5))


def test_it_fills_gaps_and_goes_on_with_texts(encoded: Encoded) -> None:
    """Fills from both sides; and what comes after a text depends on nothing behind it."""
    torch.manual_seed(0)
    objective = hybrid.Hybrid().build(MODEL, encoded.tokenizer).eval()
    with torch.no_grad():
        for weight in objective.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    trained = Trained(objective, encoded.tokenizer, MODEL, encoded.folder)
    one, other = (fill(trained, f"w1 [MASK] {word} w8", 3).masks for word in ("w5", "w90"))
    assert len(one) == 1
    assert len(one[0]) == 3
    assert one != other, "what stands behind a gap is seen"
    way = SamplingOptions(tokens=12, temperature=0)
    made = generate(trained, "w1 w2", way).continuation
    assert made == generate(trained, "w1 w2", way).continuation
    ids = [encoded.tokenizer.end, *encoded.tokenizer.encode("w1 w2")]
    for _ in range(12):  # without keys and values kept
        tokens = torch.tensor([ids])
        with torch.no_grad():
            ids.append(int(objective.head(objective.model(tokens, torch.arange(len(ids))[None])[0, -1]).argmax()))
        if ids[-1] == encoded.tokenizer.end:
            ids.pop()
            break
    assert encoded.tokenizer.decode(ids[1:]) == "w1 w2" + made


def test_what_cannot_be_is_refused(encoded: Encoded) -> None:
    with pytest.raises(ValueError, match=r"mask_prob: found 1\.5; wanted shares above 0"):
        hybrid.Hybrid(mask_prob=1.5)
    with pytest.raises(ValueError, match=r"masked: found Ramp.*; wanted shares, 0 to 1"):
        hybrid.Hybrid(masked=Ramp(0.5, 1.5))
    with pytest.raises(RecipeError, match="hybrid with a model that reads in one direction only"):
        hybrid.Hybrid().build(bert.Bert(width=32, layers=1), encoded.tokenizer)

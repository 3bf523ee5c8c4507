"""Diffusion: all shares of masks occur, targets are the masked tokens, and the mean loss is the bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from kit.makers import make_store
from ordsmed.base.errors import RecipeError
from ordsmed.data.batch import Batch
from ordsmed.data.encode import Encoded
from ordsmed.learn.objectives import diffusion, mlm
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.nn.models import gpt2, modern

MODEL = modern.ModernBert(width=32, layers=2, heads=2, positions=64, window=16)


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    return Encoded(make_store(tmp_path_factory.mktemp("diffusion") / "store", documents=200))


def rows_of(encoded: Encoded, *key: object, length: int = 32, stretch: Stretch = OVER) -> diffusion.HiddenRows:
    phase = Phase(steps=100, length=length, batch=8, learning_rate=1e-3)
    return diffusion.Diffusion().rows([encoded.train], [1.0], encoded.tokenizer, phase, *(key or (0,)), stretch=stretch)


def hidden_of(batch: Batch) -> torch.Tensor:
    return batch.weights > 0


def test_what_is_hidden_is_what_is_asked(encoded: Encoded) -> None:
    """With the targets put back a row is the row before masking; a row's weights are equal and sum to its tokens."""
    rows, numbers = rows_of(encoded), np.arange(300)
    plain, batch = rows.plain.assembled(numbers), rows.batch(numbers)
    hidden = hidden_of(batch)
    assert torch.equal(torch.where(hidden, batch.targets, batch.tokens), torch.from_numpy(plain.tokens))
    assert (batch.tokens[hidden] == encoded.tokenizer.mask).all()
    assert not (hidden & ~torch.from_numpy(plain.inner)).any(), "signs and padding are never hidden"
    words = torch.from_numpy(plain.inner.sum(1)).float()
    assert torch.allclose(batch.weights.sum(1), words)
    wanted = (words / hidden.sum(1))[:, None].expand_as(batch.weights)
    assert torch.allclose(batch.weights[hidden], wanted[hidden])


def test_every_share_comes_as_often(encoded: Encoded) -> None:
    """From one token to all; and in every few rows that follow each other, small, middle and large ones."""
    batch = rows_of(encoded).batch(np.arange(2_000))
    hidden, words = hidden_of(batch).sum(1).numpy(), np.rint(batch.weights.sum(1).numpy())
    most = int(np.bincount(words.astype(int)).argmax())
    often = np.bincount(hidden[words == most], minlength=most + 1)
    assert often[0] == 0
    assert often[1:].min() > 0.3 * often[1:].mean() > 3
    assert (hidden / words).mean() == pytest.approx(0.5 + 0.5 / most, abs=0.01)
    for first in range(0, 600, 8):
        thirds = np.floor(3 * diffusion.shares(5, np.arange(first, first + 8))).astype(int)
        assert set(thirds) == {0, 1, 2}
    drawn = diffusion.shares(5, np.arange(10_000, 20_000))
    assert np.allclose(np.histogram(drawn, 20, (0, 1))[0] / 10_000, 0.05, atol=1e-3)


def test_rows_are_functions_of_their_number(encoded: Encoded) -> None:
    """Whatever else is in the batch; another key hides other tokens, and the next epoch other ones again."""
    rows = rows_of(encoded)
    whole, alone = rows.batch(np.arange(20)), rows.batch(np.asarray([13]))
    assert torch.equal(whole.tokens[13], alone.tokens[0])
    assert torch.equal(whole.weights[13], alone.weights[0])
    other = rows_of(encoded, 1).batch(np.arange(20))
    assert not torch.equal(hidden_of(other).sum(1), hidden_of(whole).sum(1))


def test_the_mean_over_masks_is_the_bound(encoded: Encoded) -> None:
    """Of a row of few tokens all orders of writing it can be gone through: the mean of their costs is the bound."""
    torch.manual_seed(0)
    objective = diffusion.Diffusion().build(MODEL, encoded.tokenizer).eval()
    with torch.no_grad():
        for weight in objective.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    text, tokenizer = [11, 40, 12], encoded.tokenizer
    frame = [tokenizer.start, *text, tokenizer.stop]

    def costs(shown: frozenset[int]) -> dict[int, float]:
        row = torch.tensor([[n if k in (0, 4) or k in shown else tokenizer.mask for k, n in enumerate(frame)]])
        with torch.no_grad():
            scores = objective.head(objective.model(row, torch.arange(5)[None]))[0].log_softmax(-1)
        return {k: -float(scores[k, frame[k]]) for k in (1, 2, 3) if k not in shown}

    by_order = [
        sum(costs(frozenset(order[:k]))[order[k]] for k in range(3)) for order in itertools.permutations((1, 2, 3))
    ]
    found = []
    for size in (1, 2, 3):  # as a row is made: the number of masks evenly, then which
        for masks in itertools.combinations((1, 2, 3), size):
            batch = Batch(
                numbers=torch.tensor([0]),
                positions=torch.arange(5)[None],
                targets=torch.tensor([frame]),
                tokens=torch.tensor([[tokenizer.mask if k in masks else n for k, n in enumerate(frame)]]),
                weights=torch.tensor([[3 / size if k in masks else 0.0 for k in range(5)]]),
            )
            with torch.no_grad():
                lost, count = float(objective(batch)["diffusion"]), float(objective.count(batch)["diffusion"])
            assert count == pytest.approx(3)
            found.append((lost, 1 / 3 / math.comb(3, size)))
    assert sum(lost * chance for lost, chance in found) == pytest.approx(np.mean(by_order), rel=1e-5)


def test_what_a_validation_tells(encoded: Encoded) -> None:
    torch.manual_seed(0)
    objective, batch = (
        diffusion.Diffusion().build(MODEL, encoded.tokenizer).eval(),
        rows_of(encoded).batch(np.arange(9)),
    )
    with torch.no_grad():
        told = {name: float(value) for name, value in objective.validate(batch).items()}
        scores = objective.head(objective.model(batch.tokens, batch.positions, batch.documents))
    lost = torch.nn.functional.cross_entropy(scores.transpose(1, 2), batch.targets, reduction="none")
    right = scores.argmax(2) == batch.targets
    wanted = {"diffusion": (lost * batch.weights).sum(), "diffusion_right": (right * batch.weights).sum()}
    assert told == pytest.approx({name: float(value) for name, value in wanted.items()}, rel=1e-5)
    assert objective.derived({"diffusion": 2.0}) == {"perplexity_bound": pytest.approx(math.e**2)}
    bounds = [objective.derived({"diffusion": loss})["perplexity_bound"] for loss in (30.0, 100.0, 1e6)]
    assert bounds == [pytest.approx(math.e**30), pytest.approx(math.e**100), pytest.approx(math.e**100)]
    assert objective.guessing({}, 4.0, 0.2) == {"validation": 4.0, "diffusion": 4.0, "diffusion_right": 0.2}
    half = objective.flops(7, 21)
    assert half == pytest.approx(3 * 7 * (21 * MODEL.flops(21) + 11 * MODEL.head_flops(encoded.tokenizer.vocabulary)))


def test_sentences_stay_whole(encoded: Encoded) -> None:
    phase = Phase(steps=1, length=20, batch=8, learning_rate=1e-3)
    cut = diffusion.Diffusion(cut="sentence").rows([encoded.train], [1.0], encoded.tokenizer, phase, 0)
    like = mlm.Mlm(cut="sentence").rows([encoded.train], [1.0], encoded.tokenizer, phase, 0)
    numbers = np.arange(40)
    assert np.array_equal(cut.plain.assembled(numbers).tokens, like.plain.assembled(numbers).tokens)
    assert cut.spans(numbers) == like.spans(numbers)
    assert len(cut) == len(like) != len(rows_of(encoded, length=20))


def test_what_cannot_be_is_refused(encoded: Encoded) -> None:
    with pytest.raises(RecipeError, match=r"diffusion with a causal model.*use clm"):
        diffusion.Diffusion().build(gpt2.Gpt2(width=32, layers=1), encoded.tokenizer)
    with pytest.raises(RecipeError, match=r"phase\.length: found 2, of which 2 are special tokens; wanted 3 or more"):
        rows_of(encoded, length=2)

"""Masked prediction over pairs: BERT's counts and shares to the digit, two terms that add up, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import SPECIAL, WORDS, job_of, learned
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import choice
from ordsmed.base.run import Run
from ordsmed.data.loader import Share, load
from ordsmed.data.store import Store, StoreWriter
from ordsmed.learn.objectives import mlm_nsp
from ordsmed.learn.phases import Phase
from ordsmed.nn.models import bert, gpt2, roberta
from ordsmed.text.tokenizer import Tokenizer

BERT = bert.Bert(width=32, layers=2, heads=2, positions=128, dropout=0.0, attention_dropout=0.0)


def make_store(folder: Path, documents: int = 200, topics: int = 6) -> Path:
    """Documents of several sentences, each about one topic: a range of words of its own, the first ones used most."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text(
        "\n".join([*SPECIAL, *(f"w{n}" for n in range(WORDS // 2)), *(f"##p{n}" for n in range(WORDS // 2))]) + "\n"
    )
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    tokenizer.save(folder / "tokenizer")
    generator = np.random.default_rng(0)
    for split, count in (("train", documents), ("validation", 12)):
        with StoreWriter(folder / split, tokenizer.vocabulary) as writer:
            for number in range(count):
                low, most = len(SPECIAL) + number % topics * (WORDS // topics), WORDS // topics
                sentences = generator.integers(2, 14, generator.integers(2, 20))
                writer.add([low + np.minimum(generator.geometric(0.3, n), most) - 1 for n in sentences])
    facts = {"vocabulary": tokenizer.vocabulary, "train": {"tokens": 1}, "validation": {"tokens": 1}}
    Run(folder).set(verb="encode", state="done", fingerprint="topics", tokenizer=tokenizer.fingerprint, **facts)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("pairs") / "store")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder / "tokenizer")


@pytest.fixture(scope="module")
def store(folder: Path, tokenizer: Tokenizer) -> Store:
    return Store.open(folder / "train", vocabulary=tokenizer.vocabulary)


def phase(length: int = 64, pack: bool = False) -> Phase:
    return Phase(steps=4, length=length, batch=8, learning_rate=1e-3, pack=pack)


def rows_of(store: Store, tokenizer: Tokenizer, length: int = 64, **settings: Any) -> mlm_nsp.MaskedPairRows:
    return mlm_nsp.MlmNsp(**settings).rows([store], [1.0], tokenizer, phase(length), 3, 0)


@pytest.mark.long
def test_masks_over_a_million_tokens(store: Store, tokenizer: Tokenizer) -> None:
    rows, real_tokens, asked, kept, masks = rows_of(store, tokenizer), 0, 0, 0, 0
    swaps = np.zeros(tokenizer.vocabulary, np.int64)
    for first in range(0, 24_000, 2000):
        numbers = np.arange(first, first + 2000)
        batch, plain = rows.batch(numbers), rows.plain.assembled(numbers)
        assert batch.predicted_positions is not None
        weights, places = batch.weights.numpy() > 0, batch.predicted_positions.numpy()
        real = (plain.documents > 0).sum(1)
        assert np.array_equal(weights.sum(1), np.minimum(10, np.maximum(1, np.rint(real * 0.15))))
        row, slot = np.nonzero(weights)
        place = places[row, slot]
        assert plain.inner[row, place].all(), "special tokens are never hidden"
        targets, shown = plain.tokens[row, place], batch.tokens.numpy()[row, place]
        assert np.array_equal(batch.targets.numpy()[row, slot], targets)
        changed = batch.tokens.numpy() != plain.tokens
        changed[row, place] = False
        assert not changed.any()
        other = (shown != targets) & (shown != tokenizer.mask)
        swaps += np.bincount(shown[other], minlength=tokenizer.vocabulary)
        real_tokens, asked = real_tokens + int(real.sum()), asked + len(row)
        kept, masks = kept + int((shown == targets).sum()), masks + int((shown == tokenizer.mask).sum())
    assert real_tokens > 1_000_000
    assert asked / real_tokens == pytest.approx(0.15, abs=0.005)  # a full row asks for 10, not 9.6
    size = tokenizer.vocabulary
    assert kept / asked == pytest.approx(0.1 + 0.1 / size, abs=0.003)
    assert masks / asked == pytest.approx(0.8 + 0.1 / size, abs=0.004)
    share = swaps / swaps.sum()
    assert np.delete(share, tokenizer.mask) * size == pytest.approx(1, abs=0.25), "any entry, special ones too"
    assert share[tokenizer.mask] == 0  # such a swap counts as a mask


def test_round_half_even(store: Store, tokenizer: Tokenizer) -> None:
    """Of 10 tokens 2.5 are 2, of 14 3.5 are 4; special tokens count."""
    rows = rows_of(store, tokenizer, 20, mask_prob=0.25, short=1.0)
    batch = rows.batch(np.arange(4000))
    assert batch.documents is not None
    real = (batch.documents > 0).sum(1)
    found = {int(n): {*batch.weights[real == n].sum(1).tolist()} for n in real.unique()}
    assert found[10] == {2.0}
    assert found[14] == {4.0}
    assert found[18] == {4.0}


@pytest.mark.parametrize(("unit", "most"), [("token", 3), ("word", 3), ("token", 30), ("word", 80)])
def test_a_row_has_places_for_so_many(store: Store, tokenizer: Tokenizer, unit: str, most: int) -> None:
    """As BERT's max_predictions_per_seq: so many columns, and no more hidden than the share."""
    rows = rows_of(store, tokenizer, mask_prob=0.25, most=most, unit=unit)
    written = rows.features(np.arange(200))
    assert {written[f"masked_lm_{name}"].shape for name in ("positions", "ids", "weights")} == {(200, most)}
    share = np.maximum(1, np.rint(written["input_mask"].sum(1) * 0.25))
    hidden = written["masked_lm_weights"].sum(1)
    assert (hidden <= np.minimum(share, most)).all()
    assert hidden.max() == min(most, share.max())


def test_words_are_hidden_whole(store: Store, tokenizer: Tokenizer) -> None:
    rows = rows_of(store, tokenizer, unit="word")
    batch, plain = rows.batch(np.arange(300)), rows.plain.assembled(np.arange(300))
    continues = tokenizer.continues(plain.tokens) & plain.inner & np.roll(plain.inner, 1, axis=1)
    hidden = np.zeros_like(plain.inner)
    assert batch.predicted_positions is not None
    row, slot = np.nonzero(batch.weights.numpy())
    hidden[row, batch.predicted_positions.numpy()[row, slot]] = True
    assert (hidden[continues] == np.roll(hidden, 1, axis=1)[continues]).all()
    assert 0.05 < hidden.sum() / (plain.documents > 0).sum() <= 0.16


def test_batches_hold_what_the_network_needs(store: Store, tokenizer: Tokenizer) -> None:
    rows = rows_of(store, tokenizer)
    batch, plain = rows.batch(np.arange(20, 60)), rows.plain.assembled(np.arange(20, 60))
    assert batch.types is not None
    assert batch.pairs is not None
    assert np.array_equal(batch.types.numpy(), plain.types)
    assert np.array_equal(batch.pairs.numpy(), plain.pairs)
    assert {*batch.pairs.tolist()} == {0, 1}
    for index in (0, 17, 39):
        alone = rows.batch(np.asarray([20 + index]))
        for name in ("tokens", "positions", "types", "pairs", "targets", "weights", "predicted_positions"):
            assert torch.equal(getattr(alone, name)[0], getattr(batch, name)[index]), name
    share, cpu = Share(8, 4), torch.device("cpu")
    here, helped = (list(load(rows, share, 0, 3, workers=workers, device=cpu)) for workers in (0, 1))
    for mine, theirs in zip(here, helped, strict=True):
        assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(mine, theirs, strict=True))


def test_sums_and_counts(store: Store, tokenizer: Tokenizer) -> None:
    rows = rows_of(store, tokenizer)
    torch.manual_seed(0)
    objective = mlm_nsp.MlmNsp().build(BERT, tokenizer).eval()
    with torch.no_grad():
        for p in objective.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    numbers = np.arange(6)
    batch = rows.batch(numbers)
    assert batch.pairs is not None
    with torch.no_grad():
        whole, judged = objective(batch), objective.validate(batch)
        cut = [objective(rows.batch(numbers[n : n + 1])) for n in range(6)]
        hidden = objective.model(batch.tokens, batch.positions, batch.documents, batch.types)
        scores = objective.pair(hidden)
    assert scores.shape == (6, 2)
    wanted = torch.nn.functional.cross_entropy(scores, batch.pairs, reduction="sum")
    assert float(whole["pair"]) == pytest.approx(float(wanted), rel=1e-5)
    for term in objective.weights:
        assert sum(float(part[term]) for part in cut) == pytest.approx(float(whole[term]), rel=1e-4)
        assert float(judged[term]) == pytest.approx(float(whole[term]), rel=1e-5)
        assert 0 <= float(judged[f"{term}_right"]) <= float(objective.count(batch)[term])
    assert (float(judged["apart"]), float(judged["apart_count"])) == (float(batch.pairs.sum()), 6)
    assert 0 < float(batch.pairs.sum()) != 3, "as many of both kinds would tell nothing"
    assert float(judged["pair_right"]) == float((scores.argmax(1) == batch.pairs).sum())
    assert float(objective.count(batch)["pair"]) == 6
    assert float(objective.count(batch)["mlm"]) == float(batch.weights.sum())
    assert set(objective.networks()[""].modules) == {"model", "head", "pair"}


def test_flops_are_counted(tokenizer: Tokenizer) -> None:
    width, length = 32, 64
    objective = mlm_nsp.MlmNsp().build(BERT, tokenizer)
    body, head = length * BERT.flops(length), 10 * BERT.head_flops(tokenizer.vocabulary)
    assert objective.flops(3, length) == 3 * 3 * (body + head + 2 * width * (width + 2))


@pytest.mark.parametrize("kind", ["next", "order"])
def test_it_learns(folder: Path, tmp_path: Path, kind: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"""
data = "{folder.as_posix()}"
layout = {{ device = "cpu" }}
[model]
kind = "bert"
width = 32
layers = 2
heads = 2
positions = 64
[objective]
kind = "mlm_nsp"
pairs = "{kind}"
[[phase]]
steps = 30
length = 48
batch = 16
learning_rate = 1e-2
pack = false
""")
    losses = [loss for loss, _ in learned(job_of(recipe), 30, rate=None)]
    assert np.isfinite(losses).all()
    assert losses[0] == pytest.approx(np.log(WORDS + len(SPECIAL)) + np.log(2), rel=0.1)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.2


def test_what_does_not_go_together(store: Store, tokenizer: Tokenizer) -> None:
    settings = mlm_nsp.MlmNsp()
    with pytest.raises(RecipeError, match=r"phase\.pack: found true; wanted false: a row has one pair"):
        settings.rows([store], [1.0], tokenizer, phase(pack=True), 0)
    with pytest.raises(RecipeError, match=r"phase\.length: found 4, of which 3 are special tokens; wanted 5 or more"):
        settings.rows([store], [1.0], tokenizer, phase(4), 0)
    for model in (gpt2, roberta):
        with pytest.raises(RecipeError, match=r"objective\.kind: mlm_nsp with a model without a head for pairs"):
            settings.build(choice(model)(width=32, layers=1, heads=2), tokenizer)  # type: ignore[attr-defined]
    for wrong in ({"mask_prob": 0.0}, {"keep": 0.6, "swap": 0.6}, {"short": 1.5}, {"most": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            mlm_nsp.MlmNsp(**wrong)

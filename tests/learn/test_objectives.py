"""Objectives: targets are the masked tokens at their positions, or the next tokens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import choice
from ordsmed.data.store import Store, StoreWriter
from ordsmed.learn.objectives import clm, diffusion, mlm
from ordsmed.learn.phases import Phase
from ordsmed.learn.schedules import Ramp
from ordsmed.nn.models import bert, gpt2
from ordsmed.text.tokenizer import Tokenizer

PIECES = 60  # whole words w0.. and as many ##p0..
BERT = bert.Bert(width=64, layers=2, heads=2, positions=64, dropout=0.0, attention_dropout=0.0)
GPT2 = gpt2.Gpt2(width=64, layers=2, heads=2, positions=64, dropout=0.0, attention_dropout=0.0)


def tokenizer_of(folder: Path, special: list[str]) -> Tokenizer:
    words = [f"w{n}" for n in range(PIECES)] + [f"##p{n}" for n in range(PIECES)]
    (folder / "vocab.txt").write_text("\n".join([*special, *words]) + "\n", encoding="utf-8")
    return Tokenizer.load(folder / "vocab.txt")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Five special tokens, sixty words, sixty pieces inside words."""
    return tokenizer_of(tmp_path_factory.mktemp("tokenizer"), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Store:
    """Documents of sentences of random ids; every sentence begins with a whole word."""
    generator = np.random.default_rng(0)
    prefix = tmp_path_factory.mktemp("store") / "train"
    with StoreWriter(prefix, tokenizer.vocabulary) as writer:
        for _ in range(120):
            sentences = [
                generator.integers(5, tokenizer.vocabulary, generator.integers(2, 25))
                for _ in range(generator.integers(1, 6))
            ]
            for ids in sentences:
                ids[0] = generator.integers(5, 5 + PIECES)
            writer.add(sentences)
    return Store.open(prefix, vocabulary=tokenizer.vocabulary)


def phase(length: int = 32, **more: Any) -> Phase:
    return Phase(steps=4, length=length, batch=8, learning_rate=1e-3, **more)


def text_of(rows: Any, store: Store, number: int) -> list[int]:
    """What a row holds, from the store itself."""
    return [t for s in rows.spans(np.asarray([number])) for t in store.tokens[s.start : s.stop].tolist()]


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("cut", ["anywhere", "sentence"])
@pytest.mark.parametrize("pack", [True, False])
def test_masked_rows_against_the_store(store: Store, tokenizer: Tokenizer, unit: Any, cut: Any, pack: bool) -> None:
    rows = mlm.Mlm(unit=unit, cut=cut).rows([store], [1.0], tokenizer, phase(pack=pack), 3, 0)
    batch = rows.batch(np.arange(len(rows)))
    assert batch.predicted_positions is not None
    special = set(tokenizer.special)
    seen, hidden, masks = 0, 0, 0
    for n in range(len(rows)):
        shown, places = batch.tokens[n].tolist(), batch.predicted_positions[n].tolist()
        asked = [
            (p, t) for p, t, w in zip(places, batch.targets[n].tolist(), batch.weights[n].tolist(), strict=True) if w
        ]
        original = list(shown)
        for place, target in asked:
            original[place] = target
        text = text_of(rows, store, n)
        assert [t for t in original if t not in special] == text, "with the targets put back a row is the store's text"
        assert original[0] == tokenizer.start
        assert all(t not in special for _, t in asked), "special tokens are never asked for"
        assert all(shown[p] == tokenizer.mask or shown[p] not in special for p, _ in asked), "nor swapped in"
        wanted = min(max(round(0.15 * len(text)), 1), len(text))
        assert len(asked) == wanted if unit == "token" else len(asked) <= wanted
        if unit == "word":
            chosen = {p for p, _ in asked}
            within = [p for p in range(len(original)) if original[p] >= 5 + PIECES and original[p - 1] not in special]
            assert all((p in chosen) == (p - 1 in chosen) for p in within), "words are hidden whole"
        seen, hidden = seen + len(text), hidden + len(asked)
        masks += sum(shown[p] == tokenizer.mask for p, _ in asked)
    assert seen == store.token_count
    assert 0.1 < hidden / seen < 0.18
    assert 0.7 < masks / hidden < 0.9


@pytest.mark.parametrize(
    ("cut", "several", "mixed"),
    [("full_sentences", True, True), ("doc_sentences", True, False), ("one_sentence", False, False)],
)
def test_rows_of_roberta_hold_whole_sentences(
    store: Store, tokenizer: Tokenizer, cut: Any, several: bool, mixed: bool
) -> None:
    """One, or as many as fit, each with a sign after it; of one document, or over its end."""
    rows = mlm.Mlm(cut=cut).rows([store], [1.0], tokenizer, phase(), 0).plain.assembled(np.arange(80))
    signs = (rows.tokens == tokenizer.stop).sum(1)
    assert signs.min() >= 1
    assert bool((signs > 1).any()) == several
    spans = mlm.Mlm(cut=cut).rows([store], [1.0], tokenizer, phase(), 0).spans(np.arange(80))
    per_row = [len({span.document for span in spans if span.number == number}) for number in range(80)]
    assert (max(per_row) > 1) == mixed


def test_masks_are_new_each_epoch(store: Store, tokenizer: Tokenizer) -> None:
    rows = mlm.Mlm().rows([store], [1.0], tokenizer, phase(), 3, 0)
    size = len(rows)
    once = {tuple(text_of(rows, store, n)): n for n in range(size)}
    same = 0
    for n in range(size, 2 * size):
        before, after = (rows.batch(np.asarray([k])) for k in (once[tuple(text_of(rows, store, n))], n))
        assert before.predicted_positions is not None
        assert after.predicted_positions is not None
        same += torch.equal(before.predicted_positions, after.predicted_positions)
    assert same < size / 20
    other = mlm.Mlm().rows([store], [1.0], tokenizer, phase(), 4, 0)
    assert not torch.equal(other.batch(np.arange(8)).tokens, rows.batch(np.arange(8)).tokens)


def test_a_masked_row_alone_is_the_row_in_a_batch(store: Store, tokenizer: Tokenizer) -> None:
    for unit in ("token", "word"):
        rows = mlm.Mlm(unit=unit).rows([store, store], [0.5, 0.5], tokenizer, phase(), 3, 0)  # type: ignore[arg-type]
        together = rows.batch(np.arange(40, 60))
        for index in (0, 7, 19):
            alone = rows.batch(np.asarray([40 + index]))
            for name in ("tokens", "positions", "targets", "weights", "predicted_positions"):
                assert torch.equal(getattr(alone, name)[0], getattr(together, name)[index]), name


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("separate", [True, False])
def test_causal_rows_against_the_store(store: Store, tokenizer: Tokenizer, pack: bool, separate: bool) -> None:
    rows = clm.Clm(separate=separate).rows([store], [1.0], tokenizer, phase(pack=pack), 3, 0)
    end, asked = tokenizer.stop, 0
    for n in range(len(rows)):
        batch = rows.batch(np.asarray([n]))
        weights = batch.weights[0] > 0
        shown, targets = batch.tokens[0].tolist(), batch.targets[0].tolist()
        assert batch.predicted_positions is None
        assert targets[:-1] == shown[1:], "the target is the next token"
        line = [*shown, targets[-1]][: int(weights.sum()) + 1]
        assert [t for t in line if t != end] == text_of(rows, store, n)
        assert (weights[:-1].int() >= weights[1:].int()).all()
        asked += int(weights.sum())
        if not separate:
            assert batch.positions[0].tolist() == list(range(32))
            assert batch.documents is None or set(batch.documents[0, weights].tolist()) == {1}
        elif batch.documents is not None:
            numbers = batch.documents[0]
            begins = torch.nonzero(numbers[1:] != numbers[:-1]).flatten() + 1
            assert all(shown[b] == end and batch.positions[0, b] == 0 for b in begins if numbers[b])
    assert asked == store.token_count + store.document_count


def test_counts_are_the_weights(store: Store, tokenizer: Tokenizer) -> None:
    for task, model in ((mlm, BERT), (clm, GPT2)):
        rows = choice(task)().rows([store], [1.0], tokenizer, phase(), 3, 0)  # type: ignore[attr-defined]
        objective = choice(task)().build(model, tokenizer).eval()  # type: ignore[attr-defined]
        numbers = np.asarray([0, 1, len(rows) - 1])
        batch = rows.batch(numbers)
        (term,) = objective.weights
        assert float(objective.count(batch)[term]) == float((batch.weights > 0).sum())
        assert objective.state == {}


@pytest.mark.parametrize(("task", "model"), [(mlm, BERT), (clm, GPT2)])
def test_sums_add_up_over_any_cut(store: Store, tokenizer: Tokenizer, task: Any, model: Any) -> None:
    rows = choice(task)().rows([store], [1.0], tokenizer, phase(), 3, 0)
    torch.manual_seed(0)
    objective = choice(task)().build(model, tokenizer).eval()
    (term,) = objective.weights
    numbers = np.arange(6)
    whole = rows.batch(numbers)
    with torch.no_grad():
        together = float(objective(whole)[term])
        cut = sum(float(objective(rows.batch(numbers[n : n + 1]))[term]) for n in range(6))
        judged = objective.validate(whole)
    assert cut == pytest.approx(together, rel=1e-5)
    assert float(judged[term]) == pytest.approx(together, rel=1e-6)
    assert 0 <= float(judged[f"{term}_right"]) <= float(objective.count(whole)[term])
    assert together / float(objective.count(whole)[term]) == pytest.approx(np.log(tokenizer.vocabulary), rel=0.1)


@pytest.mark.parametrize(("task", "model"), [(mlm, BERT), (clm, GPT2)])
def test_the_loss_is_the_cross_entropy_of_the_targets(
    store: Store, tokenizer: Tokenizer, task: Any, model: Any
) -> None:
    """Against torch's own, place by place: a shift of labels or places by one would show."""
    rows = choice(task)().rows([store], [1.0], tokenizer, phase(), 3, 0)
    torch.manual_seed(0)
    objective = choice(task)().build(model, tokenizer).eval()
    with torch.no_grad():
        for p in objective.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    batch, wanted, right = rows.batch(np.arange(5)), 0.0, 0.0
    with torch.no_grad():
        scores = objective.head(objective.model(batch.tokens, batch.positions, batch.documents))
        for row in range(5):
            for slot in torch.nonzero(batch.weights[row]).flatten().tolist():
                place = slot if batch.predicted_positions is None else int(batch.predicted_positions[row, slot])
                wanted += float(torch.nn.functional.cross_entropy(scores[row, place], batch.targets[row, slot]))
                right += float(scores[row, place].argmax() == batch.targets[row, slot])
        (term,) = objective.weights
        assert float(objective(batch)[term]) == pytest.approx(wanted, rel=1e-4)
        assert float(objective.validate(batch)[f"{term}_right"]) == right


def test_flops_are_counted(tokenizer: Tokenizer) -> None:
    """2 x multiply-adds of every product of a step: forward once, backward twice; the head where it is computed."""
    width, inner, length, vocabulary = 64, 256, 32, tokenizer.vocabulary
    linear = 4 * width**2 + 2 * width * inner
    block = 2 * (linear + 2 * length * width)
    half = 2 * (linear + (length + 1) * width)  # a causal token sees (length + 1) / 2 places on average
    head = 2 * width * vocabulary
    masked = mlm.Mlm().build(BERT, tokenizer)
    assert masked.flops(3, length) == 3 * 3 * (length * 2 * block + 5 * (head + 2 * width**2))
    for mask_prob in (Ramp(0.1, 0.3), Ramp(0.3, 0.1)):
        ramped = mlm.Mlm(mask_prob=mask_prob).build(BERT, tokenizer)
        assert ramped.flops(3, length) == 3 * 3 * (length * 2 * block + 10 * (head + 2 * width**2)), "its most slots"
    causal = clm.Clm().build(GPT2, tokenizer)
    assert causal.flops(3, length) == 3 * 3 * length * (2 * half + head)


def test_what_does_not_go_together(store: Store, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"objective\.kind: mlm with a causal model; use clm"):
        mlm.Mlm().build(GPT2, tokenizer)
    with pytest.raises(RecipeError, match=r"objective\.kind: clm with a bidirectional model; use mlm"):
        clm.Clm().build(BERT, tokenizer)
    bare = tokenizer_of(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    for masked in (mlm, diffusion):
        with pytest.raises(RecipeError, match=r"tokenizer: has no mask token; wanted \[CLS\] \[SEP\] \[MASK\]"):
            choice(masked)().rows([store], [1.0], bare, phase(), 0)
    none: Any = SimpleNamespace(end=None, stop=None)
    with pytest.raises(RecipeError, match="tokenizer: has no end token"):
        clm.Clm().rows([store], [1.0], none, phase(), 0)
    with pytest.raises(RecipeError, match=r"phase\.length: found 2, of which 2 are special tokens; wanted 3 or more"):
        mlm.Mlm().rows([store], [1.0], tokenizer, phase(2), 0)
    assert len(mlm.Mlm().rows([store], [1.0], tokenizer, phase(3), 0).batch(np.arange(50)).tokens) == 50

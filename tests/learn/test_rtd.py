"""Replaced-token detection: examples, fakes, both losses, what is shared, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import job_of, learned, make_store
from ordsmed.base import menu
from ordsmed.base.errors import RecipeError
from ordsmed.data.encode import Encoded
from ordsmed.learn.objectives import rtd
from ordsmed.learn.phases import Phase
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert, electra
from ordsmed.train.pretrain import texts
from ordsmed.weights import weights

MODEL = electra.Electra(width=32, layers=2, heads=2, inner=48, positions=64, embedding=24)
SMALL = rtd.Generator(width=16, layers=1)


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    return Encoded(make_store(tmp_path_factory.mktemp("rtd") / "store", documents=400))


def rows_of(encoded: Encoded, settings: rtd.Rtd, *, pack: bool, length: int = 32) -> rtd.ReplacedRows:
    phase = Phase(steps=10, length=length, batch=8, learning_rate=1e-3, pack=pack)
    return settings.rows([encoded.train], [1.0], encoded.tokenizer, phase, 0)


def built(encoded: Encoded, **changed: Any) -> rtd.Replaced:
    torch.manual_seed(0)
    return rtd.Rtd(**{"generator": SMALL, **changed}).build(MODEL, encoded.tokenizer)


def rebuilt(batch: Any) -> torch.Tensor:
    return rtd.put(batch.tokens, batch.predicted_positions, batch.weights, batch.targets)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("duplicates", [False, True])
def test_places_and_masks_are_as_electra_counts_them(encoded: Encoded, pack: bool, duplicates: bool) -> None:
    """Half to even of all real tokens, at most int((p + 0.005) * length); 85 % of them shown as [MASK]."""
    rows = rows_of(encoded, rtd.Rtd(reference_duplicates=duplicates), pack=pack)
    signs = encoded.tokenizer
    batch = rows.batch(np.arange(2_000))
    real = torch.ones_like(batch.tokens) if batch.documents is None else (batch.documents > 0).long()
    assert rows.slots == int((0.15 + 0.005) * 32) == 4
    wanted = np.clip(np.rint(real.sum(1).numpy() * 0.15), 1, 4)
    assert np.array_equal(batch.weights.sum(1).numpy(), wanted)
    whole = rebuilt(batch)
    assert not torch.isin(batch.targets[batch.weights > 0], torch.tensor([signs.start, signs.stop, signs.pad])).any()
    assert (batch.tokens[batch.tokens != whole] == signs.mask).all()
    row = torch.arange(len(whole))[:, None].expand_as(batch.predicted_positions)[batch.weights > 0]
    hidden = batch.tokens[row, batch.predicted_positions[batch.weights > 0]] == signs.mask
    assert float(hidden.float().mean()) == pytest.approx(0.85, abs=0.02 if not duplicates else 0.04)
    twice = [
        len(set(p[w > 0].tolist())) < int(w.sum())
        for p, w in zip(batch.predicted_positions, batch.weights, strict=True)
    ]
    assert any(twice) == duplicates


@pytest.mark.parametrize(
    ("mask_prob", "length", "slots"),
    [(0.15, 128, 19), (0.15, 256, 39), (0.15, 512, 79), (0.25, 512, 130), (0.01, 16, 1)],
)
def test_places_of_a_row_as_electra_writes_them(mask_prob: float, length: int, slots: int) -> None:
    assert rtd.Rtd(mask_prob=mask_prob).slots(length) == slots


def test_rows_are_drawn_anew_and_the_same_in_any_batch(encoded: Encoded) -> None:
    for pack in (True, False):
        rows = rows_of(encoded, rtd.Rtd(), pack=pack)
        one, other = rows.batch(np.arange(8)), rows.batch(np.arange(4, 8))
        assert torch.equal(one.tokens[4:], other.tokens)
        assert torch.equal(one.keys[4:], other.keys)
        epoch = len(rows)
        later = rows.batch(np.arange(8) + epoch)
        assert not torch.equal(one.tokens, later.tokens)


def test_a_fake_is_what_is_not_the_real_token(encoded: Encoded) -> None:
    objective = built(encoded)
    batch = rows_of(encoded, rtd.Rtd(), pack=False).batch(np.arange(64))
    with torch.no_grad():
        loss, drawn, _ = objective._guess(batch)
        scores, fake = objective._detect(batch, drawn)
        terms = objective(batch)
    whole = rebuilt(batch)
    shown = whole.clone()
    for r in range(64):
        for place, weight, word in zip(batch.predicted_positions[r], batch.weights[r], drawn[r], strict=True):
            if weight:
                shown[r, place] = word
    assert torch.equal(fake, shown != whole)
    assert int(fake.sum()) < int(batch.weights.sum()), "some guess is right by chance, or two places are one"
    real = batch.documents > 0 if batch.documents is not None else torch.ones_like(fake)
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, fake.float(), reduction="none")
    assert float(terms["detect"]) == pytest.approx(float(each[real].sum()), rel=1e-6)
    assert float(terms["guess"]) == pytest.approx(float(loss), rel=1e-6)
    counts = objective.count(batch)
    assert int(counts["detect"]) == int(real.sum())
    assert int(counts["guess"]) == int(batch.weights.sum())


@pytest.mark.parametrize("sign", [1, -1])
def test_what_a_validation_tells(encoded: Encoded, sign: int) -> None:
    """Of every token that is no padding: was it a fake, and was it called one; shares of shares that are there.

    `sign`: padding, which counts nowhere, is called fake by one of the two.
    """
    objective = built(encoded).eval()
    with torch.no_grad():
        for weight in objective.detect.parameters():
            weight.add_(torch.randn_like(weight))
        for weight in list(objective.detect.parameters())[-2:]:
            weight.mul_(sign)
    batch = rows_of(encoded, rtd.Rtd(), pack=False).batch(np.arange(64))
    with torch.no_grad():
        _, drawn, (states, words, bias, *_) = objective._guess(batch)
        scores, fake = objective._detect(batch, drawn)
        told = {name: float(value) for name, value in objective.validate(batch).items()}
        terms = objective(batch)
    real = (batch.documents > 0 if batch.documents is not None else torch.ones_like(fake)).tolist()
    tally = dict.fromkeys(("fake said fake", "fake said real", "real said fake", "real said real"), 0)
    for row in range(64):
        for place in range(32):
            if real[row][place]:
                was, said = (("real", "fake")[bool(x)] for x in (fake[row, place], scores[row, place] > 0))
                tally[f"{was} said {said}"] += 1
    assert all(tally.values())
    used = batch.weights > 0
    best = (states @ words.T + bias).argmax(1).view_as(batch.targets)
    right = tally["fake said fake"] + tally["real said real"]
    originals, fakes = (tally[f"{was} said fake"] + tally[f"{was} said real"] for was in ("real", "fake"))
    assert told == {
        "guess": pytest.approx(float(terms["guess"])),
        "detect": pytest.approx(float(terms["detect"])),
        "guess_right": int((best == batch.targets)[used].sum()),
        "drawn_right": int((drawn == batch.targets)[used].sum()),
        "drawn_count": int(used.sum()),
        "detect_right": right,
        "fake_right": tally["fake said fake"],
        "fake_count": fakes,
        "real_right": tally["real said real"],
        "real_count": originals,
        "called_right": tally["fake said fake"],
        "called_count": tally["fake said fake"] + tally["real said fake"],
        "original": originals,
        "original_count": originals + fakes,
    }
    assert objective.derived({"fake_right": 0.9, "real_right": 0.5}) == {"balanced": 0.7}
    assert objective.derived({"real_right": 0.5}) == {}
    guesses = objective.guessing({"original": 0.9}, 4.0, 0.2)
    assert guesses == {
        "guess": 4.0,
        "guess_right": 0.2,
        "balanced": 0.5,
        "detect_right": 0.9,
        "detect": pytest.approx(-0.9 * np.log(0.9) - 0.1 * np.log(0.1)),
    }
    assert objective.weights == {"guess": 1.0, "detect": 50.0}


def test_what_generators_are_left_to_the_model() -> None:
    for how, wanted in (({}, (8, 2, 1, 32)), ({"width": 16, "layers": 3, "heads": 4, "inner": 5}, (16, 3, 4, 5))):
        made = rtd.Rtd(generator=rtd.Generator(**how)).others(MODEL)["generator"]
        assert (made.width, made.layers, made.heads, made.inner) == wanted
        assert made.embedding == MODEL.embedding
    assert rtd.Rtd(share="none").others(MODEL)["generator"].embedding == 8
    assert rtd.Rtd(share="all").others(MODEL) == {}
    assert rtd.Rtd(generator=rtd.Generator(width=32)).others(MODEL)["generator"].width == 32
    with pytest.raises(RecipeError, match=r"generator\.width: found 33, more than the model's width of 32"):
        rtd.Rtd(generator=rtd.Generator(width=33)).others(MODEL)
    with pytest.raises(RecipeError, match=r"objective\.generator\.heads: found 3; wanted a divisor"):
        rtd.Rtd(generator=rtd.Generator(width=16, heads=3)).others(MODEL)
    with pytest.raises(RecipeError, match=r'objective\.generator: found a size with share = "all"'):
        rtd.Rtd(share="all", generator=SMALL).others(MODEL)


def test_duplicates_are_mixed_as_the_reference_does() -> None:
    tokens = torch.arange(10, 18)[None].clone()
    places, counted = torch.tensor([[3, 3, 5, 0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    words = torch.tensor([[40, 45, 60, 99]])
    found = rtd.put_mixed(tokens, places, counted, words)
    assert found.tolist() == [[10, 11, 12, 42, 14, 60, 16, 17]]
    plain = rtd.put(tokens, torch.tensor([[3, 5, 0, 0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]]), words)
    assert plain.tolist() == [[10, 11, 12, 40, 14, 45, 16, 17]]


def test_nothing_is_learned_through_the_draws(encoded: Encoded) -> None:
    """The detection loss moves the generator only by what both share."""
    objective = built(encoded, share="none")
    batch = rows_of(encoded, rtd.Rtd(), pack=True).batch(np.arange(8))
    objective(batch)["detect"].backward()
    assert all(p.grad is None or not p.grad.any() for p in objective.generator.parameters())
    assert all(p.grad is not None and p.grad.any() for p in objective.detect.parameters())
    shared = built(encoded)
    shared(batch)["detect"].backward()
    assert shared.generator.words.weight.grad.any()


SHARED = {
    "embeddings": {"words", "places", "types", "norm"},
    "words": {"words"},
    "none": set(),
    "all": {"words", "places", "types", "norm", "blocks", "project"},
}


@pytest.mark.parametrize("share", SHARED)
def test_what_the_networks_share(encoded: Encoded, share: str) -> None:
    alone = {"generator": rtd.Generator()} if share == "all" else {}
    objective = built(encoded, share=share, **alone)
    both = dict(objective.generator.named_children()).items() & dict(objective.model.named_children()).items()
    same = {name for name, module in both if next(module.parameters(), None) is not None}
    assert same == SHARED[share]
    assert objective.generator.words.embedding_dim == (16 if share == "none" else 24)
    held = [id(p) for p in objective.parameters()]
    assert len(held) == len(set(held))
    stored = own_tensors(objective)
    again = built(encoded, share=share, **alone)
    with torch.no_grad():
        for tensor in again.parameters():
            tensor.zero_()
    weights.load_into(again, stored, "test")
    assert all(torch.equal(v, own_tensors(again)[k]) for k, v in stored.items())


def test_a_wilder_generator_is_right_more_rarely(encoded: Encoded) -> None:
    """At a temperature near 0 the likeliest word is drawn always, at a high one any word."""
    batch = rows_of(encoded, rtd.Rtd(), pack=True).batch(np.arange(64))
    drawn = {}
    for temperature in (1e-3, 1.0, 1e3):
        objective = built(encoded, temperature=temperature)
        with torch.no_grad():
            objective.head.words.weight.mul_(40)
            _, words, (states, table, bias, *_) = objective._guess(batch)
        likeliest = (states @ table.T + bias).argmax(1).view_as(words)
        drawn[temperature] = float((words == likeliest)[batch.weights > 0].float().mean())
    assert drawn[1e-3] == 1.0
    assert 0.05 < drawn[1.0] < 0.95
    assert drawn[1e3] < 0.05


def test_a_generator_never_right_makes_fakes_alone(encoded: Encoded) -> None:
    objective = built(encoded, never_right=True)
    batch = rows_of(encoded, rtd.Rtd(), pack=True).batch(np.arange(64))
    with torch.no_grad():
        _, drawn, _ = objective._guess(batch)
    assert (drawn != batch.targets)[batch.weights > 0].all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mask_prob": 1.5}, "mask_prob: found 1.5; wanted a share above 0 and below 1"),
        ({"temperature": 0.0}, "temperature: found 0.0; wanted a finite number above 0"),
        ({"detect_weight": -1.0}, "detect_weight: found -1.0; wanted 0 or more"),
        ({"single": 1.2}, "single: found 1.2; wanted a share"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rtd.Rtd(**change)


def test_networks_that_cannot_be_are_refused(encoded: Encoded) -> None:
    wide = rtd.Rtd(generator=rtd.Generator(width=64))
    with pytest.raises(RecipeError, match=r"generator\.width: found 64, more than the model's width of 32"):
        wide.build(MODEL, encoded.tokenizer)
    both = rtd.Rtd(generator=SMALL, share="all")
    with pytest.raises(RecipeError, match=r"generator: found a size with share"):
        both.build(MODEL, encoded.tokenizer)
    with pytest.raises(RecipeError, match=r"phase.length: found 4; wanted 5 or more"):
        rows_of(encoded, rtd.Rtd(), pack=True, length=4)
    assert len(rows_of(encoded, rtd.Rtd(), pack=True, length=5))
    plain = electra.Electra(width=32, layers=1, types=1)
    with pytest.raises(RecipeError, match=r"model.types: found 1; wanted 2 or more"):
        rtd.Rtd(generator=SMALL).build(plain, encoded.tokenizer)
    odd = rtd.Rtd(generator=rtd.Generator(width=16, heads=3))
    with pytest.raises(RecipeError, match=r"generator\.heads: found 3; wanted a divisor of the width 16"):
        odd.build(MODEL, encoded.tokenizer)
    with pytest.raises(RecipeError, match="rtd with a model without a detection head"):
        rtd.Rtd().build(bert.Bert(width=32, layers=1), encoded.tokenizer)


def test_flops_count_both_networks(encoded: Encoded) -> None:
    objective = built(encoded)
    small = objective.generator_settings
    slots = objective.settings.slots(32)
    linear = {
        m.weight
        for net in (objective.model, objective.generator)
        for m in net.modules()
        if isinstance(m, torch.nn.Linear)
    }
    seen = 32 * sum(w.numel() for w in linear) + 2 * 32 * 32 * (2 * MODEL.width + small.layers * small.width)
    seen += 32 * (MODEL.width**2 + MODEL.width) + slots * 24 * (small.width + encoded.tokenizer.vocabulary)
    assert objective.flops(2, 32) == 3 * 2 * 2 * seen


def test_a_run_tells_of_both_networks(encoded: Encoded, tmp_path: Path) -> None:
    path = tmp_path / "rtd.toml"
    kind = menu.kind_of(MODEL)
    path.write_text(
        f'data = "{encoded.folder}"\n[layout]\ndevice = "cpu"\n[model]\nkind = "{kind}"\nwidth = 32\nembedding = 16\n'
        'layers = 2\nheads = 2\npositions = 64\n[objective]\nkind = "rtd"\ngenerator = { width = 16 }\n'
        "[[phase]]\nsteps = 20\nlength = 32\nbatch = 8\nrate = 2e-3\n"
    )
    job = job_of(path)
    lines = learned(job, 12, rate=None)
    assert np.isfinite(lines).all()
    assert lines[-1][0] < lines[0][0]
    found = texts.validate(job, job.data.validation(0), 32)
    assert {"guess", "guess_right", "drawn_right", "detect", "detect_right", "real_right", "balanced"} <= set(found)
    assert found["balanced"] == pytest.approx((found["real_right"] + found["fake_right"]) / 2)
    assert found["validation"] == pytest.approx(found["guess"] + 50 * found["detect"])
    assert dataclasses.asdict(job.recipe.objective)["generator"]["width"] == 16

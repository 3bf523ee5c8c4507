"""The biLM: sums and counts, carried states, both softmaxes, and perplexities as in the reference implementation."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import job_of, learned, make_store, make_words
from ordsmed.base.errors import RecipeError
from ordsmed.base.settings import decode
from ordsmed.data.encode import Encoded
from ordsmed.learn.objectives import bilm
from ordsmed.learn.phases import Phase, Stretch
from ordsmed.nn.models import bert, elmo
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.pretrain import texts

MODEL = elmo.Elmo(width=16, cells=24, highways=1, filters=((1, 8), (3, 8)), dropout=0.0)
BATCH, LENGTH = 4, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_words(tmp_path_factory.mktemp("words") / "store")


def made(folder: Path, model: elmo.Elmo = MODEL, **how: Any) -> tuple[bilm.BiRows, bilm.BothDirections]:
    encoded, settings = Encoded(folder), bilm.BiLm(**{"samples": 0, **how})
    phase = Phase(steps=1, length=LENGTH, batch=BATCH, learning_rate=1.0)
    rows = settings.rows([encoded.train], [1.0], encoded.tokenizer, phase, 0, stretch=Stretch(0.0, 1.0, 1))
    torch.manual_seed(0)
    objective = settings.build(model, encoded.tokenizer)
    objective.begin(0, BATCH)
    return rows, objective


def step(number: int) -> np.ndarray:
    return np.arange(number * BATCH, (number + 1) * BATCH)


@torch.no_grad()
def losses(rows: Any, objective: Any, steps: int) -> np.ndarray:
    return np.asarray([[float(x) for x in objective(rows.batch(step(n))).values()] for n in range(steps)])


def test_sums_and_counts(folder: Path) -> None:
    rows, objective = made(folder)
    batch = rows.batch(step(0))
    count, loss = objective.count(batch), objective(batch)
    assert set(count) == set(loss) == set(objective.weights) == {"forward", "backward"}
    assert {k: float(v) for k, v in count.items()} == {"forward": 24.0, "backward": 24.0}
    for way in loss:
        assert float(loss[way].detach()) / 24 == pytest.approx(math.log(objective.vocabulary), rel=0.1)


def test_a_step_has_its_words_however_it_is_cut(folder: Path) -> None:
    rows, _ = made(folder, samples=10)
    parts = [rows.batch(step(number)[half : half + 2]) for number in (3, 4) for half in (0, 2)]
    drawn = [part.candidates for part in parts]
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[2], drawn[3])
    assert not torch.equal(drawn[1], drawn[2])
    assert [int(part.tries) for part in parts[:2]] == [int(parts[0].tries)] * 2
    encoded, how = Encoded(folder), bilm.BiLm(samples=10)
    phase = Phase(steps=1, length=LENGTH, batch=BATCH, learning_rate=1.0)
    judged = how.rows([encoded.train], [1.0], encoded.tokenizer, phase, 0)
    assert judged.batch(step(0)).candidates is None


def test_windows_go_on_where_the_last_stopped(folder: Path) -> None:
    """Three windows of six words are one of eighteen; without the state they are not; a cut batch changes nothing."""
    rows, objective = made(folder)
    apart = losses(rows, objective, 3)
    long = bilm.BiLm(samples=0).rows(
        [Encoded(folder).train],
        [1.0],
        Encoded(folder).tokenizer,
        Phase(steps=1, length=18, batch=BATCH, learning_rate=1.0),
        0,
        stretch=Stretch(0.0, 1.0, 1),
    )
    assert int(long.windows[0]) * 3 <= int(rows.windows[0])
    objective.begin(0, BATCH)
    if int(long.windows[0]) * 3 == int(rows.windows[0]):  # then streams begin at the same places
        assert np.allclose(losses(long, objective, 1), apart.sum(0), rtol=1e-5)
    objective.begin(0, BATCH)
    again = losses(rows, objective, 2)
    assert np.allclose(again, apart[:2], rtol=1e-6)
    for state in objective.state.values():
        state.zero_()
    with torch.no_grad():
        cold = [float(x) for x in objective(rows.batch(step(2))).values()]
    assert not np.allclose(cold, apart[2], rtol=1e-5)
    objective.begin(0, BATCH)
    with torch.no_grad():
        for n in range(3):
            halves = [objective(rows.batch(half)) for half in np.array_split(step(n), 2)]
            assert [float(sum(h[w] for h in halves)) for w in halves[0]] == pytest.approx(apart[n], rel=1e-5)


def test_a_stream_that_begins_has_heard_nothing(folder: Path) -> None:
    rows, objective = made(folder)
    wanted = losses(rows, objective, 1)
    for state in objective.state.values():
        state.fill_(1.0)
    assert np.allclose(losses(rows, objective, 1), wanted, rtol=1e-6)


def test_a_process_keeps_its_own_streams(folder: Path) -> None:
    rows, objective = made(folder)
    losses(rows, objective, 2)
    whole = {name: state.clone() for name, state in objective.state.items()}
    objective.begin(2, 2)
    with torch.no_grad():
        for n in range(2):
            objective(rows.batch(step(n)[2:]))
    for name, state in objective.state.items():
        assert torch.allclose(state, whole[name][2:], atol=1e-6)


def test_judging_leaves_the_state_of_learning_alone(folder: Path) -> None:
    rows, objective = made(folder, samples=40)
    losses(rows, objective, 2)
    before = {name: state.clone() for name, state in objective.state.items()}
    with torch.no_grad():
        first = [objective.validate(rows.batch(step(n))) for n in range(2)]
        again = [objective.validate(rows.batch(step(n))) for n in range(2)]
    assert all(torch.equal(objective.state[name], before[name]) for name in before)
    for one, other in zip(first, again, strict=True):
        assert {k: float(v) for k, v in one.items()} == pytest.approx({k: float(v) for k, v in other.items()})
    assert set(first[0]) == {"forward", "backward", "forward_right", "backward_right"}


@pytest.mark.long
def test_sampled_words_stand_for_all(folder: Path) -> None:
    """The same words for all rows of a step, others in the next; over many draws the gradients point the same way."""
    rows, objective = made(folder, samples=40)
    one, other, next_one = (rows.batch(numbers) for numbers in (step(0)[:2], step(0)[2:], step(1)))
    assert one.candidates is not None
    assert torch.equal(one.candidates, other.candidates)
    assert not torch.equal(one.candidates, next_one.candidates)
    batch = dataclasses.replace(rows.batch(step(0)), candidates=None, tries=None)
    sum(objective(batch).values()).backward()
    whole = objective.head.table.weight.grad.clone()
    objective.zero_grad()
    for window in range(300):
        candidates, tries = rows.drawn(window)
        sum(objective(dataclasses.replace(batch, candidates=candidates, tries=tries)).values()).backward()
    mean = objective.head.table.weight.grad / 300
    assert torch.nn.functional.cosine_similarity(mean.flatten(), whole.flatten(), 0) > 0.98


def test_gradients_are_scaled_and_the_loss_is_not(folder: Path) -> None:
    found = []
    for scale in (1.0, 20.0):
        rows, objective = made(folder, scale=scale)
        loss = sum(objective(rows.batch(step(0))).values())
        loss.backward()
        found.append((float(loss.detach()), objective.head.bias.grad.clone()))
    assert found[0][0] == found[1][0]
    assert torch.allclose(found[0][1] * 20, found[1][1], rtol=1e-5)


def test_nothing_leaks_from_the_words_to_come(folder: Path) -> None:
    """Letters of the last word read change what it predicts and nothing before."""
    rows, objective = made(folder)
    batch = rows.batch(step(0))
    other = batch.tokens.clone()
    other[:, LENGTH - 1] = other[:, 0]
    seen = []
    for tokens in (batch.tokens, other):
        objective.begin(0, BATCH)
        h, c = objective.state["h"], objective.state["c"]
        with torch.no_grad():
            seen.append(objective._read(dataclasses.replace(batch, tokens=tokens), h, c)[0])
    assert torch.equal(seen[0][0][:, :-1], seen[1][0][:, :-1])
    assert torch.equal(seen[0][1], seen[1][1])
    assert not torch.equal(seen[0][0][:, -1], seen[1][0][:, -1])


def test_perplexities_are_told(folder: Path) -> None:
    _, objective = made(folder)
    found = objective.derived({"forward": 4.0, "backward": 5.0})
    assert found == pytest.approx(
        {"perplexity": math.exp(4.5), "perplexity_forward": math.exp(4), "perplexity_backward": math.exp(5)}
    )
    assert objective.derived({"forward": 1e6, "backward": 1e6})["perplexity"] > 1e30
    assert "exact cell, clipped at every step" in objective.describe("cpu", "fp32")[0]
    assert "all words" in objective.describe("cpu", "fp32")[0]


def test_what_is_told_of_it(folder: Path) -> None:
    """Costs of both directions over as many words as are scored; who knows frequencies is as good either way."""
    rows, objective = made(folder)
    batch = rows.batch(step(0))
    words = objective.vocabulary
    assert objective.flops(7, 5) == 3 * 7 * 5 * (MODEL.flops(5) + MODEL.head_flops(words))
    sampled = made(folder, samples=10)[1]
    assert sampled.flops(7, 5) == 3 * 7 * 5 * (MODEL.flops(5) + MODEL.head_flops(10))
    assert "softmax over 10 sampled words" in sampled.describe("cpu", "fp32")[0]
    guesses = objective.guessing({}, 2.0, 0.3)
    assert guesses == {
        "validation": 2.0,
        "forward": 2.0,
        "backward": 2.0,
        "forward_right": 0.3,
        "backward_right": 0.3,
        "perplexity": math.exp(2),
        "perplexity_forward": math.exp(2),
        "perplexity_backward": math.exp(2),
    }
    with torch.no_grad():
        hidden, _, _ = objective._read(batch, *objective.model.silence(BATCH))
        told = objective.validate(batch)
    for way, states, targets, weights in zip(
        bilm.WAYS, hidden, batch.targets.chunk(2, 1), batch.weights.chunk(2, 1), strict=True
    ):
        scores = states @ objective.head.table.weight.T + objective.head.bias
        lost = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
        assert float(told[way]) == pytest.approx(float((lost * weights.flatten()).sum().detach()), rel=1e-5)
        assert float(told[f"{way}_right"]) == float(((scores.argmax(2) == targets) * weights).sum())
    assert objective.weights == {"forward": 0.5, "backward": 0.5}
    assert list(objective.networks()[""].modules) == ["model", "head"]


@pytest.fixture
def recipe(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(
        f'data = "{folder}"\nclip = 10.0\n[layout]\ndevice = "cpu"\n[model]\nkind = "elmo"\nwidth = 32\ncells = 48\n'
        'filters = [[1, 8], [3, 8]]\ndropout = 0.0\n[objective]\nkind = "bilm"\nsamples = 0\n'
        "[[phase]]\nsteps = 150\nlength = 6\nbatch = 16\nrate = 1e-2\n"
    )
    return path


@pytest.mark.long
def test_it_learns_and_is_judged_on_every_held_out_word(recipe: Path) -> None:
    job = job_of(recipe)
    learned(job, 150, rate=None)
    rows = job.data.validation(0)
    assert rows is not None
    found = texts.validate(job, rows, len(rows))
    batches = [rows.batch(np.arange(n, n + 32)) for n in range(0, len(rows), 32)]
    held = Encoded(Path(job.recipe.data)).validation  # type: ignore[arg-type]
    assert held is not None
    asked = sum(int(batch.weights.sum()) for batch in batches)
    assert asked == 2 * (held.token_count + held.sequence_count)
    assert found["perplexity"] < 0.8 * math.exp(job.data.unigram(0)[0])
    assert found["perplexity"] == pytest.approx(math.exp(found["validation"]))


def test_guessing_by_frequency_knows_where_sentences_end(recipe: Path) -> None:
    job = job_of(recipe, "validation_rows=100000")
    train = Encoded(Path(job.recipe.data)).train  # type: ignore[arg-type]
    counts = train.counts.astype(float)
    counts[job.tokenizer.stop] += train.sequence_count
    held = Encoded(Path(job.recipe.data)).validation  # type: ignore[arg-type]
    assert held is not None
    share = (counts + 1) / (counts.sum() + len(counts))
    seen = held.counts.astype(float)
    seen[job.tokenizer.stop] += held.sequence_count
    loss, right = job.data.unigram(0)
    assert loss == pytest.approx(float(-(seen * np.log(share)).sum() / seen.sum()), rel=1e-6)
    assert right == pytest.approx(seen[counts.argmax()] / seen.sum())


def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path, recipe: Path) -> None:
    tokenizer = Encoded(folder).tokenizer
    with pytest.raises(RecipeError, match="a model without a carried state"):
        bilm.BiLm(samples=0).build(bert.Bert(width=32, heads=2), tokenizer)
    assert bilm.BiLm(samples=61).build(MODEL, tokenizer).settings.samples == 61
    with pytest.raises(RecipeError, match="found 62, more than half of the 123 words"):
        bilm.BiLm(samples=62).build(MODEL, tokenizer)
    with pytest.raises(RecipeError, match="found 8192, more than half of the 123 words"):
        bilm.BiLm().build(MODEL, tokenizer)
    pieces = make_store(tmp_path / "pieces")
    with pytest.raises(RecipeError, match="splits words into pieces"):
        job_of(recipe, f'data="{pieces}"')
    text = recipe.read_text().replace('"bilm"\nsamples = 0', '"mlm"').replace('"elmo"', '"bert"')
    lines = [line for line in text.splitlines() if not line.startswith(("cells", "filters"))]
    (tmp_path / "other.toml").write_text("\n".join(lines))
    with pytest.raises(RecipeError, match="has whole words"):
        job_of(tmp_path / "other.toml")
    with pytest.raises(RecipeError, match="elmo cannot be split"):
        Layout(tensor=2).check(MODEL, [6], 2)
    with pytest.raises(RecipeError, match="written by hand"):
        Layout(compile=True).check(MODEL, [6], 1)
    rows = ([Encoded(folder).train], [1.0], tokenizer)
    with pytest.raises(RecipeError, match="without scores there is no loss"):
        bilm.BiLm(head=False).rows(*rows, Phase(steps=1, length=6, batch=4, learning_rate=1.0), 0)
    with pytest.raises(RecipeError, match="which have no padding"):
        bilm.BiLm().rows(*rows, Phase(steps=1, length=6, batch=4, learning_rate=1.0, pack=False), 0)
    with pytest.raises(RecipeError, match="an objective over tokens with an ELMo"):
        job_of(recipe, 'objective={kind="mlm"}')
    for wrong, said in (({"samples": -1}, "samples: found -1"), ({"scale": 0.0}, "scale: found 0.0")):
        with pytest.raises(ValueError, match=said):
            bilm.BiLm(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": -1}, "width: found -1; wanted 1 or more"),
        ({"highways": -1}, "highways: found -1; wanted 0 or more"),
        ({"filters": ()}, "filters: found "),
        ({"filters": ((0, 3),)}, "filters: found "),
        ({"longest_word": 6}, "longest_word: found 6"),
        ({"cell_clip": -1.0}, "cell_clip: found -1.0; wanted 0 or more"),
        ({"dropout": 1.0}, "dropout: found 1.0; wanted 0 to below 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        elmo.Elmo(**change)


@pytest.mark.parametrize(
    ("size", "millions"), [("original", 93.60), ("5.5B", 93.60), ("survey", 55.8), ("medium", 28.03), ("small", 13.59)]
)
def test_published_sizes(size: str, millions: float) -> None:
    """As many numbers to learn as the published networks have."""
    with torch.device("meta"):
        model = decode(elmo.Elmo, {"size": size}, "test").build(0)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.long
def test_slopes_come_again_on_several_threads(folder: Path) -> None:
    """To the bit: torch adds up looked-up rows in whatever order threads come, unless they are an embedding's."""
    encoded, settings = Encoded(folder), bilm.BiLm(samples=40)
    phase = Phase(steps=1, length=20, batch=64, learning_rate=1.0)
    rows = settings.rows([encoded.train], [1.0], encoded.tokenizer, phase, 0, stretch=Stretch(0.0, 1.0, 1))
    batch, threads = rows.batch(np.arange(64)), torch.get_num_threads()
    objective = settings.build(elmo.Elmo(width=64, cells=64, filters=((1, 8), (3, 8)), dropout=0.0), encoded.tokenizer)
    found = []
    torch.set_num_threads(2)
    try:
        for _ in range(6):
            objective.begin(0, 64)
            objective.zero_grad()
            sum(objective(batch).values()).backward()
            found.append([p.grad.clone() for p in objective.parameters() if p.grad is not None])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for again in found[1:] for a, b in zip(found[0], again, strict=True))


@pytest.mark.parametrize("lstm", ["exact", "fast"])
def test_sixteen_bits_learn(recipe: Path, lstm: str) -> None:
    """Either cell; the state stays in 32."""
    exact = learned(job_of(recipe, f'model.lstm="{lstm}"'), 4, rate=None)
    job = job_of(recipe, f'model.lstm="{lstm}"', 'layout.precision="bf16"')
    assert np.allclose(learned(job, 4, rate=None), exact, rtol=0.03)
    assert {state.dtype for state in job.objective.state.values()} == {torch.float32}


def test_a_state_that_is_no_number_does_not_outlive_a_beginning(folder: Path) -> None:
    rows, objective = made(folder)
    for state in objective.state.values():
        state.fill_(float("nan"))
    assert np.isfinite(losses(rows, objective, 1)).all()

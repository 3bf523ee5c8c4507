"""Writing by filling masks: the most certain first, the others scored again; masked models and hybrids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.families import shaken
from kit.makers import SPECIAL
from ordsmed.base.errors import RecipeError
from ordsmed.learn.objectives import clm, diffusion, hybrid, mlm
from ordsmed.nn.models import bert, gpt2, modern
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.generate import generate, generate_all, steps, stream
from ordsmed.use.generation.network import writing
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.use.generation.unmasking import behind, fill_all, filled, put_in, unmasked
from ordsmed.weights.trained_model import Trained

WORDS = 40
MODELS = {
    "mlm": (mlm.Mlm(), bert.Bert(width=32, layers=2, heads=2, positions=24)),
    "diffusion": (
        diffusion.Diffusion(),
        modern.ModernBert(width=32, layers=2, heads=2, positions=24, initializer_std=0.2),
    ),
    "hybrid": (hybrid.Hybrid(), gpt2.Gpt2(width=32, layers=2, heads=2, positions=24)),
}
GREEDY = SamplingOptions(temperature=0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("unmasking") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(WORDS)), "##ing"]) + "\n")
    return Tokenizer.load(path)


def model_of(name: str, tokenizer: Tokenizer) -> Trained:
    learned, settings = MODELS[name]
    torch.manual_seed(6)
    return Trained(shaken(learned.build(settings, tokenizer)).eval(), tokenizer, settings, Path("model"))


@pytest.fixture(params=MODELS)
def trained(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Trained:
    return model_of(request.param, tokenizer)


def shares(trained: Trained, ids: list[int]) -> torch.Tensor:
    row, more = torch.tensor([ids]), {}
    if trained.objective.shifted:
        more = {"documents": torch.ones_like(row), "causal": torch.zeros(1, dtype=torch.bool)}
    with torch.no_grad():
        scores = trained.objective.head(trained.objective.model(row, torch.arange(len(ids))[None], **more))[0]
    scores[:, sorted(trained.tokenizer.special)] = -torch.inf
    return (scores.roll(1, 0) if trained.objective.shifted else scores).softmax(1)


def by_hand(trained: Trained, ids: list[int], together: int = 1) -> tuple[list[int], list[int]]:
    """A row filled step by step, and the order of its gaps."""
    row, order, mask = list(ids), list[int](), trained.tokenizer.mask
    while gaps := [place for place, number in enumerate(row) if number == mask]:
        best = shares(trained, row).max(1)
        first = sorted(gaps, key=lambda place: -float(best.values[place]))[:together]
        for place in first:
            row[place] = int(best.indices[place])
        order += first
    return row, order


def framed(trained: Trained, words: list[int]) -> list[int]:
    own = trained.tokenizer
    before, after = (own.end, own.end) if trained.objective.shifted else (own.start, own.stop)
    return [before, *words, after]


@pytest.mark.parametrize("together", [1, 2, 9])
def test_the_surest_comes_first(trained: Trained, together: int) -> None:
    own = trained.tokenizer
    text = "w1 [MASK] w3 [MASK] [MASK] w6 [MASK] w8"
    ids = framed(trained, own.encode(text))
    wanted, order = by_hand(trained, ids, together)
    assert order != sorted(order) or together > 1
    found = fill_all(trained, text, SamplingOptions(temperature=0, together=together))
    words = [own.piece(number) for number in wanted[1:-1]]
    assert found.replace("ing", " ##ing").split() == words
    assert sorted(order) == [place for place, number in enumerate(ids) if number == own.mask]


def test_a_text_is_written_behind_its_prompt(trained: Trained) -> None:
    made = generate(trained, "w1 w2", SamplingOptions(tokens=7, temperature=0))
    own = trained.tokenizer
    ids = own.encode(made.text)
    assert made.prompt == "w1 w2"
    if trained.continues:
        return
    assert (made.tokens, made.ended, len(ids)) == (7, "tokens", 9)
    wanted, _ = by_hand(trained, framed(trained, [*own.encode("w1 w2"), *[own.mask] * 7]))
    assert made.text == own.decode(wanted[1:-1])
    assert "".join(stream(writing(trained), "w1 w2", SamplingOptions(tokens=7, temperature=0))) == made.continuation


@pytest.mark.parametrize("stop", [(), ("w1",), ("w2 w", "w3 w")])
def test_a_stream_holds_what_stands_before_the_first_gap(tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
    network, how = writing(model_of("diffusion", tokenizer)), SamplingOptions(tokens=12, seed=5, stop=stop)
    whole = next(generate_all(network, ["w1"], how))
    pieces = list(steps(network, "w1", how))
    assert "".join(pieces) == whole.continuation
    if not stop:
        assert len(pieces) == 13, "one token a pass"
        grown, text = [len(ids) for ids in filled(network, "w1", how, 0)], ""
        assert grown == sorted(grown)
        assert grown[-1] == 13
        for ids, piece in zip(filled(network, "w1", how, 0), pieces, strict=False):
            text += piece
            assert behind(network, "w1", ids).startswith(text)
        assert len(list(filter(None, pieces))) > 1


@pytest.mark.parametrize("order", ["certain", "chance"])
def test_a_text_is_that_of_its_seed(tokenizer: Tokenizer, order: Any) -> None:
    network = writing(model_of("diffusion", tokenizer))
    how = SamplingOptions(tokens=9, seed=3, order=order, samples=2)
    found = list(generate_all(network, ["w1", "", "w5 w6"], how))
    assert [text.sample for text in found] == [0, 1] * 3
    assert found[4:] == list(generate_all(network, ["w5 w6"], how))
    assert len({text.continuation for text in found}) == 6
    other = list(generate_all(network, ["w1"], SamplingOptions(tokens=9, seed=4, order=order)))
    assert other[0].continuation != found[0].continuation


def test_an_order_by_chance_is_one(tokenizer: Tokenizer) -> None:
    """Every gap comes first about as often."""
    network, own = writing(model_of("mlm", tokenizer)), tokenizer
    ids, firsts = [own.start or 0, *[own.mask or 0] * 4, own.stop or 0], []
    inner = network.model.forward
    for key in range(60):
        asked: list[list[int]] = []
        network.model.forward = lambda row, *how, **more: asked.append(row[0].tolist()) or inner(row, *how, **more)  # noqa: B023
        unmasked(network, ids, range(1, 5), SamplingOptions(order="chance"), key)
        firsts.append(next(place for place in range(1, 5) if asked[1][place] != own.mask))
    network.model.forward = inner
    assert np.bincount(firsts, minlength=5)[1:].min() >= 6


def test_long_texts_slide(tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    trained = model_of("mlm", tokenizer)
    network = writing(trained)
    for _ in range(2):
        [made] = generate_all(network, ["w1 " * 40], SamplingOptions(tokens=50, temperature=0))
        assert made.tokens == 50
        assert len(tokenizer.encode(made.text)) >= 85
    line = "a text is longer than the model's window of 24 tokens: the window slides along\n"
    assert capsys.readouterr().err == line
    inner, rows = network.model.forward, list[list[int]]()
    network.model.forward = lambda row, *how, **more: rows.append(row[0].tolist()) or inner(row, *how, **more)
    list(generate_all(network, ["w1 " * 40], SamplingOptions(tokens=50, temperature=0)))
    assert {len(row) for row in rows} == {24}
    assert max(row.count(tokenizer.mask) for row in rows) == 11, "half a window of what stands before is seen"


def test_stop_strings_and_penalties(tokenizer: Tokenizer) -> None:
    trained = model_of("mlm", tokenizer)
    plain = generate(trained, "w1", SamplingOptions(tokens=12, temperature=0))
    words = plain.continuation.split()
    ended = generate(trained, "w1", SamplingOptions(tokens=12, temperature=0, stop=(words[2],)))
    assert ended.ended == "stop"
    assert plain.continuation.startswith(ended.continuation)
    assert words[2] not in ended.continuation
    varied = generate(trained, "w1", SamplingOptions(tokens=12, temperature=0, penalty=30.0)).continuation.split()
    assert len(set(varied)) > len(set(words))


def test_pieces_stand_where_masks_stood(tokenizer: Tokenizer) -> None:
    ing, w7 = (tokenizer.encode(text)[-1] for text in ("w1ing", "w7"))
    assert put_in(tokenizer, "A  b [MASK], C [MASK]!", [ing, w7]) == "A  bing, C w7!"
    names = [*vocabulary.ROBERTA, *"abĠ", "Ġa", "<mask>"]
    bytes_ = Tokenizer(vocabulary.roberta({name: number for number, name in enumerate(names)}, []))
    a, spaced = names.index("a"), names.index("Ġa")
    assert put_in(bytes_, "b [MASK] b <mask>.", [spaced, a]) == "b a ba."


def test_what_cannot_be_filled_is_refused(tokenizer: Tokenizer) -> None:
    trained = model_of("mlm", tokenizer)
    with pytest.raises(RecipeError, match=r"^'w1 w2': has no mask; wanted one or more \[MASK\]$"):
        fill_all(trained, "w1 w2")
    with pytest.raises(RecipeError, match="found 42 tokens; wanted at most 24; shorten it"):
        fill_all(trained, "[MASK] " * 40)
    settings = MODELS["hybrid"][1]
    causal = Trained(clm.Clm().build(settings, tokenizer), tokenizer, settings, Path("model"))
    with pytest.raises(RecipeError, match="does not see the text after a mask"):
        fill_all(causal, "a [MASK]")

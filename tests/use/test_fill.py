"""Guesses for masks: right places, right probabilities, readable pieces, clear refusals."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kit.families import shaken
from ordsmed import cli
from ordsmed.api.model import open
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.learn.objectives import clm, hybrid, mlm
from ordsmed.nn.models import bert, gpt2
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.fill import fill, lines
from ordsmed.use.generate import generate
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights.trained_model import Trained, open_model


@pytest.fixture(scope="module")
def trained(tiny_run):
    return open_model(tiny_run.bert)


def untrained(tokenizer, folder="model"):
    settings = bert.Bert(width=32, layers=1, heads=2, positions=16)
    torch.manual_seed(3)
    return Trained(mlm.Mlm().build(settings, tokenizer).eval(), tokenizer, settings, folder)


def roberta():
    """A byte-level tokenizer that spells its mask <mask>."""
    letters = sorted({*"abcdefghijklmnopqrstuvwxyz", "Ġ"})
    names = [*vocabulary.ROBERTA, *letters, "th", "the", "Ġthe", "<mask>"]
    pieces = {name: number for number, name in enumerate(names)}
    return Tokenizer(vocabulary.roberta(pieces, [("t", "h"), ("th", "e"), ("Ġ", "the")]))


def test_guesses_are_the_heads_own_probabilities(trained):
    text, tokenizer = "the [MASK] smith mends the [MASK] gate.", trained.tokenizer
    ids = tokenizer.encode(text, special=True)
    with torch.no_grad():
        hidden = trained.objective.model(torch.tensor([ids]), torch.arange(len(ids))[None])
        shares = trained.objective.head(hidden)[0].softmax(-1)
    places = [i for i, n in enumerate(ids) if n == tokenizer.mask]
    found = fill(trained, text, best=tokenizer.vocabulary).masks
    assert len(found) == len(places) == 2
    for guesses, place in zip(found, places, strict=True):
        assert [guess.probability for guess in guesses] == pytest.approx(
            shares[place].sort(descending=True).values.tolist(), rel=1e-4
        )
        assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-4)
        assert guesses[0].text == tokenizer.piece(int(shares[place].argmax())).removeprefix("##")


def test_best_says_how_many(trained):
    assert [len(guesses) for guesses in fill(trained, "a [MASK]", best=3).masks] == [3]
    assert len(fill(trained, "a [MASK]", best=10**6).masks[0]) == trained.tokenizer.vocabulary
    with pytest.raises(RecipeError, match="--best: found 0; wanted 1 or more"):
        fill(trained, "a [MASK]", best=0)


def test_pieces_inside_words_are_written_without_their_mark(trained):
    written = [guess.text for guess in fill(trained, "[MASK]", best=10**6).masks[0]]
    inside = [p for p in trained.tokenizer.pipeline.get_vocab() if p.startswith("##")]
    assert inside
    assert all(p.removeprefix("##") in written for p in inside)
    assert not any(w.startswith("##") and len(w) > 2 for w in written)


def test_lines_for_people(trained):
    [first, guesses] = fill(trained, "a [MASK] fox", 2).lines
    assert first == "a [MASK] fox"
    assert guesses.startswith("  [MASK]: ")
    assert guesses.count("%") == 2
    assert [row.partition(":")[0] for row in fill(trained, "[MASK] [MASK]").lines[1:]] == ["  [MASK] 1", "  [MASK] 2"]


def test_mask_is_understood_whatever_the_tokenizers_spelling():
    model = untrained(roberta())
    assert model.tokenizer.piece(model.tokenizer.mask) == "<mask>"
    assert fill(model, "the [MASK] the").masks == fill(model, "the <mask> the").masks
    assert "the" in {guess.text for guess in fill(model, "the [MASK]", best=100).masks[0]}  # not Ġthe


def test_a_text_without_a_mask_is_refused_with_its_spelling(trained):
    with pytest.raises(RecipeError, match=r"'no mask': has no mask; wanted one or more \[MASK\]"):
        fill(trained, "no mask")


def test_a_text_that_is_no_utf_8_is_refused(trained):
    with pytest.raises(RecipeError, match="invalid UTF-8 at character 3; wanted UTF-8 text"):
        fill(trained, "a \udcff [MASK]")


def test_a_text_longer_than_the_longest_row_is_refused(trained):
    assert fill(trained, "[MASK]" + " a" * 61).masks
    with pytest.raises(RecipeError, match="found 65 tokens; wanted at most 64"):
        fill(trained, "[MASK]" + " a" * 62)


def test_a_causal_model_is_refused_with_the_remedy(tiny_run):
    with pytest.raises(RecipeError, match=r"is a causal model \(gpt2\).*trained with mlm or hybrid.*ordsmed generate"):
        open(tiny_run.gpt2, device="cpu").fill("a [MASK]")


def test_a_tokenizer_without_a_mask_is_refused(tiny_run):
    model = open_model(tiny_run.gpt2).tokenizer
    with pytest.raises(RecipeError, match="its tokenizer has no mask"):
        fill(untrained(model), "a [MASK]")


def test_lines_of_a_stream_are_answered_one_by_one(tiny_run, monkeypatch):

    class Stream(io.BytesIO):
        read = readlines = None  # only readline may be used

    stream, seen = Stream(b"a [MASK]\r\n\n  \nthe [MASK] fox\n"), []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
    monkeypatch.setattr("builtins.print", lambda text, **how: seen.append((text, stream.tell())))
    cli.main(["fill", str(tiny_run.bert), "--best", "1"])
    model = open(tiny_run.bert, device="cpu")
    wanted = ["\n".join(model.fill(text, best=1).lines) for text in ("a [MASK]", "the [MASK] fox")]
    assert seen == [(wanted[0], len(b"a [MASK]\r\n")), (wanted[1], len(stream.getvalue()))]


def test_invalid_utf_8_is_refused_by_line_and_byte():
    found = lines(io.BytesIO("først\n".encode() + b"ab\xff\n"))
    assert next(found) == "først"
    with pytest.raises(DataError, match=r"standard input:2: invalid UTF-8 at byte 3 of the line \(0xff\)"):
        next(found)


def test_texts_given_as_words_need_no_stream(tiny_run):
    early, late = open(tiny_run.bert, step=8, device="cpu"), open(tiny_run.bert, device="cpu")
    assert [len(filled.lines) for filled in late.fill(["a [MASK]", "the [MASK]"], best=1)] == [2, 2]
    assert early.fill("a [MASK]") != late.fill("a [MASK]")


def test_a_hybrid_guesses_from_the_place_before_a_mask():
    """Seeing both sides, between end signs."""
    tokenizer, settings = roberta(), gpt2.Gpt2(width=32, layers=2, heads=2, positions=24)
    torch.manual_seed(4)
    objective = shaken(hybrid.Hybrid().build(settings, tokenizer))
    trained = Trained(objective, tokenizer, settings, "model")
    ids = [tokenizer.stop, *tokenizer.encode("the <mask> is <mask>"), tokenizer.stop]
    masks = [place for place, number in enumerate(ids) if number == tokenizer.mask]
    with torch.no_grad():
        tokens = torch.tensor([ids])
        seen = objective.model(
            tokens, torch.arange(len(ids))[None], torch.ones_like(tokens), causal=torch.tensor([False])
        )
        shares = objective.head(seen)[0].softmax(-1)
    found = fill(trained, "the [MASK] is [MASK]", best=3).masks
    for guesses, place in zip(found, masks, strict=True):
        before, own = (shares[at].topk(3).values.tolist() for at in (place - 1, place))
        assert [guess.probability for guess in guesses] == pytest.approx(before, rel=1e-4)
        assert [guess.probability for guess in guesses] != pytest.approx(own, rel=1e-2)


def test_what_is_generated_is_its_seeds():
    """The same seed says the same again, another one another thing; the likeliest is said whatever the seed."""
    tokenizer, settings = roberta(), gpt2.Gpt2(width=32, layers=2, heads=2, positions=48)
    torch.manual_seed(4)
    trained = Trained(shaken(clm.Clm().build(settings, tokenizer)), tokenizer, settings, Path("model"))

    def said(seed, temperature=3.0):
        return generate(trained, "the", SamplingOptions(tokens=12, temperature=temperature, seed=seed))

    assert [said(seed) for seed in range(4)] == [said(seed) for seed in range(4)]
    assert len({said(seed) for seed in range(4)}) == 4
    assert len({said(seed, 0.0) for seed in range(4)}) == 1

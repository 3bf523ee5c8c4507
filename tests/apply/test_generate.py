"""How a causal model goes on with a text: which tokens may come, how often each does, and where it ends."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.families import shaken
from kit.makers import SPECIAL
from ordsmed import cli
from ordsmed.apply import generate as generates
from ordsmed.apply.generate import Generated, SamplingOptions, choose, generate
from ordsmed.apply.trained import Trained
from ordsmed.base.errors import RecipeError
from ordsmed.models import bert, elmo, gpt2
from ordsmed.objectives import clm, mlm
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer

SCORES = torch.tensor([0.15, 0.5, 0.05, 0.3]).log()


def drawn(count: int = 4000, scores: torch.Tensor = SCORES, **how: Any) -> dict[int, float]:
    """How often each token comes."""
    chance = torch.Generator().manual_seed(5)
    found = Counter(choose(scores, SamplingOptions(**how), chance) for _ in range(count))
    return {token: number / count for token, number in sorted(found.items())}


def test_tokens_come_as_often_as_they_are_likely() -> None:
    assert drawn() == pytest.approx({0: 0.15, 1: 0.5, 2: 0.05, 3: 0.3}, abs=0.03)
    squares = {0: 0.15**2, 1: 0.25, 2: 0.05**2, 3: 0.09}
    whole = sum(squares.values())
    assert drawn(temperature=0.5) == pytest.approx({n: square / whole for n, square in squares.items()}, abs=0.03)
    assert drawn(20, temperature=0.0) == {1: 1.0}


def test_only_the_best_come() -> None:
    """In the shares that they have among themselves; as many as there are change nothing."""
    assert drawn(best=2) == pytest.approx({1: 5 / 8, 3: 3 / 8}, abs=0.03)
    assert drawn(50, best=1) == {1: 1.0}
    assert drawn(best=3).keys() == {0, 1, 3}
    assert drawn(best=4) == drawn(best=9) == drawn()


@pytest.mark.parametrize(
    ("share", "tokens"),
    [(0.3, {1}), (0.49, {1}), (0.51, {1, 3}), (0.79, {1, 3}), (0.81, {0, 1, 3}), (0.96, {0, 1, 2, 3})],
)
def test_the_likeliest_that_make_a_share_come(share: float, tokens: set[int]) -> None:
    """With the one that reaches it."""
    assert drawn(share=share).keys() == tokens


def test_first_the_temperature_then_the_best_then_the_share() -> None:
    """At 0.5 the first has 0.25 / 0.365 = 0.68 of all; of the best two 0.25 / 0.34 = 0.735."""
    assert drawn(temperature=0.5, share=0.66).keys() == {1}
    assert drawn(temperature=0.5, share=0.7).keys() == {1, 3}
    assert drawn(temperature=0.5, best=2, share=0.72).keys() == {1}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"tokens": 0}, "--tokens: found 0; wanted 1 or more"),
        ({"temperature": -0.1}, "--temperature: found -0.1; wanted 0 or more"),
        ({"best": -1}, "--best: found -1; wanted 0 or more"),
        ({"share": 0.0}, "--share: found 0.0; wanted above 0, to 1"),
        ({"share": 1.1}, "--share: found 1.1; wanted above 0, to 1"),
        ({"share": float("nan")}, "--share: found nan; wanted above 0, to 1"),
    ],
)  # fmt: skip
def test_ways_that_cannot_be(how: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        SamplingOptions(**how)
    assert str(error.value) == said


@pytest.fixture(scope="module")
def trained() -> Trained:
    letters = sorted({*"abcdefghijklmnopqrstuvwxyz", "Ġ"})
    names = [*vocabulary.ROBERTA, *letters, "<mask>"]
    tokenizer = Tokenizer(vocabulary.roberta({name: number for number, name in enumerate(names)}, []))
    settings = gpt2.Settings(width=32, layers=2, heads=2, positions=24)
    torch.manual_seed(4)
    return Trained(shaken(clm.Settings().build(settings, tokenizer)).eval(), tokenizer, settings, "model")


def slowly(trained: Trained, ids: list[int], count: int) -> list[int]:
    """The likeliest tokens behind others, each from the whole row anew."""
    made: list[int] = []
    with torch.no_grad():
        for _ in range(count):
            row = torch.tensor([[*ids, *made]])
            hidden = trained.objective.model(row, torch.arange(row.shape[1])[None])
            word = int(trained.objective.head(hidden)[0, -1].argmax())
            if word == trained.tokenizer.stop:
                break
            made.append(word)
    return made


def test_what_was_read_is_kept(trained: Trained) -> None:
    """Token by token with its keys and values it says what it says of whole rows."""
    tokenizer = trained.tokenizer
    for text in ("the cat", "a", ""):
        ids = [tokenizer.stop, *tokenizer.encode(text)]
        wanted = tokenizer.decode([*ids, *slowly(trained, ids, 9)]).removeprefix(tokenizer.decode(ids))
        assert generate(trained, text, SamplingOptions(tokens=9, temperature=0)).continuation == wanted


def test_it_writes_as_many_as_asked_or_fit(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the longest row; the end sign ends it, and is not written."""
    letter = trained.tokenizer.encode("x")[0]
    monkeypatch.setattr(generates, "choose", lambda *_: letter)
    assert generate(trained, "ab", SamplingOptions(tokens=5)).continuation == "xxxxx"
    assert generate(trained, "ab", SamplingOptions(tokens=99)).continuation == "x" * (24 - 3)
    assert generate(trained, "a" * 22, SamplingOptions(tokens=99)).continuation == "x"
    said = iter([letter, letter, trained.tokenizer.stop, letter])
    monkeypatch.setattr(generates, "choose", lambda *_: next(said))
    assert generate(trained, "ab", SamplingOptions(tokens=9)).continuation == "xx"
    monkeypatch.setattr(generates, "choose", lambda *_: trained.tokenizer.stop)
    assert generate(trained, "ab", SamplingOptions(tokens=9)).continuation == ""
    with pytest.raises(
        RecipeError, match=r"^'aaaaaaaaaaaaaaaaaaaaaaa': found 24 tokens; wanted 1 to 23, so that one can"
    ):
        generate(trained, "a" * 23, SamplingOptions())


def test_each_line_goes_on(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts that are given, or lines of a stream as they come; empty ones are begun by the model."""
    asked: list[Any] = []
    monkeypatch.setattr("ordsmed.apply.model.opened", lambda *given, **how: asked.append((given, how)) or trained)
    monkeypatch.setattr(generates, "generate", lambda model, text, way: Generated(text, f"|{way.tokens}"))
    cli.main(["generate", "run", "a", "", "b", "--tokens", "3", "--step", "7", "--threads", "2"])
    assert capsys.readouterr().out == "a|3\n|3\nb|3\n"
    assert asked == [(("run",), {"step": 7, "device": "cpu", "precision": "fp32", "threads": 2})]
    stream, seen = io.BytesIO(b"one\r\ntwo\n"), list[Any]()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
    monkeypatch.setattr("builtins.print", lambda text, **how: seen.append((text, stream.tell())))
    cli.main(["generate", "run", "--tokens", "3"])
    assert seen == [("one|3", 5), ("two|3", 9)]


def test_what_cannot_go_on_is_refused(trained: Trained) -> None:
    masked = bert.Settings(width=32, layers=1, heads=2, positions=16)
    objective = mlm.Settings().build(masked, trained.tokenizer)
    with pytest.raises(RecipeError, match=r"is no causal model \(bert\); wanted one trained with clm .*`ordsmed fill`"):
        generate(Trained(objective, trained.tokenizer, masked, "model"), "a", SamplingOptions())
    with pytest.raises(RecipeError, match="`ordsmed embed` takes it"):
        generate(Trained(objective, trained.tokenizer, elmo.Settings(), "model"), "a", SamplingOptions())


def untrained(tmp_path: Path, pieces: list[str]) -> Trained:
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    tokenizer, settings = (
        Tokenizer.load(tmp_path / "vocab.txt"),
        gpt2.Settings(width=32, layers=1, heads=2, positions=9),
    )
    return Trained(clm.Settings().build(settings, tokenizer).eval(), tokenizer, settings, tmp_path)


def test_the_sign_behind_texts_ends_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tokenizer has that of documents as well as that of BERT's rows it is the former; it comes first too."""
    made = untrained(tmp_path, [*SPECIAL, "a", "b"])
    end, stop, letter = made.tokenizer.end, made.tokenizer.stop, made.tokenizer.encode("b")[0]
    assert None not in (end, stop)
    assert end != stop
    said, given = iter([letter, stop, letter, end]), list[Any]()
    inner = made.objective.model.forward
    monkeypatch.setattr(
        made.objective.model, "forward", lambda *how, **more: given.append(how[0]) or inner(*how, **more)
    )
    monkeypatch.setattr(generates, "choose", lambda *_: next(said))
    written = generate(made, "a", SamplingOptions(tokens=6)).continuation
    assert written.split() == ["b", "b"], "it goes on behind the other one"
    assert given[0].tolist() == [[end, made.tokenizer.encode("a")[0]]]


def test_without_a_sign_a_text_is_needed(trained: Trained) -> None:
    bare: Any = SimpleNamespace(
        end=None, stop=None, encode=lambda text: [9] * len(text), decode=lambda ids: "x" * len(ids)
    )
    made = replace(trained, tokenizer=bare)
    with pytest.raises(RecipeError, match="found 0 tokens; wanted 1 to 23, so that one can follow; shorten it"):
        generate(made, "", SamplingOptions())
    assert generate(made, "ab", SamplingOptions(tokens=2)).continuation == "xx"


def test_who_cannot_go_on_says_so_before_a_line_is_read(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    masked = bert.Settings(width=32, layers=1, heads=2, positions=16)
    other = Trained(mlm.Settings().build(masked, trained.tokenizer), trained.tokenizer, masked, "model")
    monkeypatch.setattr("ordsmed.apply.model.opened", lambda *_, **__: other)
    stream = io.BytesIO(b"one\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
    with pytest.raises(SystemExit):
        cli.main(["generate", "run"])
    assert "is no causal model" in capsys.readouterr().err
    assert stream.tell() == 0

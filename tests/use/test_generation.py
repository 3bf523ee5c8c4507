"""How a model writes: which tokens may come, how often; windows, batches, endings; the same text for a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kit.families import shaken
from kit.makers import SPECIAL
from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.learn.objectives import clm, hybrid, mlm
from ordsmed.nn.models import bert, elmo, gpt2, modern
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use.generate import generate, generate_all, stream
from ordsmed.use.generation import continuing
from ordsmed.use.generation.choosing import choose, penalized
from ordsmed.use.generation.continuing import stable_length
from ordsmed.use.generation.network import WritingNetwork, together, writing
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights.trained_model import Trained

SCORES = torch.tensor([0.15, 0.5, 0.05, 0.3]).log()


def drawn(count: int = 4000, scores: torch.Tensor = SCORES, **how: Any) -> dict[int, float]:
    """How often each token comes."""
    keys = np.full(count, chance.key("a text"), np.uint64)
    words = choose(scores.expand(count, -1), SamplingOptions(**how), keys, np.arange(count))
    return {int(word): int((words == word).sum()) / count for word in words.unique()}


# choosing


def test_tokens_come_as_often_as_they_are_likely() -> None:
    assert drawn() == pytest.approx({0: 0.15, 1: 0.5, 2: 0.05, 3: 0.3}, abs=0.03)
    squares = {0: 0.15**2, 1: 0.25, 2: 0.05**2, 3: 0.09}
    whole = sum(squares.values())
    assert drawn(temperature=0.5) == pytest.approx({n: square / whole for n, square in squares.items()}, abs=0.03)
    assert drawn(20, temperature=0.0) == {1: 1.0}


def test_only_the_best_come() -> None:
    assert drawn(best=2) == pytest.approx({1: 5 / 8, 3: 3 / 8}, abs=0.03)
    assert drawn(50, best=1) == {1: 1.0}
    assert drawn(best=3).keys() == {0, 1, 3}
    assert drawn(best=4) == drawn(best=9) == drawn()


@pytest.mark.parametrize(
    ("share", "tokens"),
    [(0.3, {1}), (0.49, {1}), (0.51, {1, 3}), (0.79, {1, 3}), (0.81, {0, 1, 3}), (0.96, {0, 1, 2, 3})],
)
def test_the_likeliest_that_make_a_share_come(share: float, tokens: set[int]) -> None:
    assert drawn(share=share).keys() == tokens


def test_first_the_temperature_then_the_best_then_the_share() -> None:
    assert drawn(temperature=0.5, share=0.66).keys() == {1}
    assert drawn(temperature=0.5, share=0.7).keys() == {1, 3}
    assert drawn(temperature=0.5, best=2, share=0.72).keys() == {1}


@pytest.mark.parametrize("typical", [1.0, 0.4, 0.75])
def test_what_is_filtered_is_what_transformers_filters(typical: float) -> None:
    """Temperature, top-k, top-p and typical-p leave the same tokens, with the same shares."""
    import transformers as t

    scores = torch.randn(6, 300, generator=torch.Generator().manual_seed(3)) * 3
    how = SamplingOptions(temperature=0.7, best=60, share=0.8, typical=typical)
    kept = t.TopPLogitsWarper(0.8)(None, t.TopKLogitsWarper(60)(None, scores / 0.7))
    if typical < 1:
        kept = t.TypicalLogitsWarper(typical)(None, kept)
    keys, left = np.full(6, 5, np.uint64), kept.isfinite()
    seen = torch.zeros_like(left)
    for step in range(600):
        seen[range(6), choose(scores, how, keys, np.full(6, step))] = True
    assert not (seen & ~left).any()
    likely = kept.softmax(1) > 0.02
    assert seen[likely].all()


def test_what_was_there_is_less_likely() -> None:
    import transformers as t

    scores = torch.randn(2, 9, generator=torch.Generator().manual_seed(1))
    ids = torch.tensor([[1, 4], [0, 0]])
    seen = torch.zeros(2, 9, dtype=torch.bool).scatter_(1, ids, True)
    wanted = t.RepetitionPenaltyLogitsProcessor(1.7)(ids, scores.clone())
    assert torch.equal(penalized(scores, seen, 1.7), wanted)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"tokens": 0}, "--tokens: found 0; wanted 1 or more"),
        ({"temperature": -0.1}, "--temperature: found -0.1; wanted 0 or more"),
        ({"temperature": float("nan")}, "--temperature: found nan; wanted 0 or more"),
        ({"best": -1}, "--best (--top-k): found -1; wanted 0 or more"),
        ({"share": 0.0}, "--share (--top-p): found 0.0; wanted above 0, to 1"),
        ({"share": 1.1}, "--share (--top-p): found 1.1; wanted above 0, to 1"),
        ({"share": float("nan")}, "--share (--top-p): found nan; wanted above 0, to 1"),
        ({"penalty": 0.0}, "--penalty: found 0.0; wanted above 0; 1 changes nothing"),
        ({"stop": ("a", "")}, "--stop: found an empty string; wanted a string that is not empty"),
        ({"samples": 0}, "--samples: found 0; wanted 1 or more"),
        ({"together": 0}, "--together: found 0; wanted 1 or more"),
        ({"order": "left"}, "--order: found left; wanted certain or chance"),
    ],
)
def test_ways_that_cannot_be(how: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        SamplingOptions(**how)
    assert str(error.value) == said


# going on

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FAMILIES = {
    "gpt2": (clm.Clm(), gpt2.Gpt2(width=32, layers=2, heads=2, positions=24)),
    "modern": (
        hybrid.Hybrid(),
        modern.ModernBert(width=32, layers=4, heads=2, positions=24, window=6, initializer_std=0.2),
    ),
}


def tokenizer() -> Tokenizer:
    names = [*vocabulary.ROBERTA, *sorted({*LETTERS, "Ġ"}), "<mask>"]
    return Tokenizer(vocabulary.roberta({name: number for number, name in enumerate(names)}, []))


def model_of(family: str) -> Trained:
    learned, settings = FAMILIES[family]
    own = tokenizer()
    torch.manual_seed(4)
    return Trained(shaken(learned.build(settings, own)).eval(), own, settings, Path("model"), learned=learned)


@pytest.fixture(scope="module", params=FAMILIES)
def trained(request: pytest.FixtureRequest) -> Trained:
    return model_of(request.param)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let every model say these letters, or `.` for the end sign, one a step."""

    def set_to(text: str) -> None:
        own, letters = tokenizer(), iter(text)

        def next_word(scores: torch.Tensor, *_: Any) -> torch.Tensor:
            letter = next(letters)
            return torch.full((len(scores),), own.stop if letter == "." else own.encode(letter)[0])

        monkeypatch.setattr(continuing, "choose", next_word)

    return set_to


def slowly(trained: Trained, ids: list[int], count: int, window: int = 24) -> list[int]:
    made: list[int] = []
    begin, objective = 0, trained.objective
    with torch.no_grad():
        for _ in range(count):
            row = [*ids, *made]
            if len(row) - begin > window:
                begin = len(row) - max(1, window - min(count - len(made) - 1, window // 2))
            seen = torch.tensor([row[begin:]])
            more = {"documents": torch.ones_like(seen), "causal": torch.ones(1, dtype=torch.bool)}
            more = more if objective.shifted else {}
            scores = objective.head(objective.model(seen, torch.arange(seen.shape[1])[None], **more))[0, -1]
            if (word := int(scores.argmax())) == trained.tokenizer.stop:
                break
            made.append(word)
    return made


@pytest.mark.parametrize("count", [9, 60])
def test_what_was_read_is_kept(trained: Trained, count: int) -> None:
    """Token by token with its keys and values it says what it says of whole rows, beyond its window too."""
    own = trained.tokenizer
    for text in ("the cat", "a", "", "the cat sat on the very long mat"):
        ids = [own.stop, *own.encode(text)]
        wanted = own.decode([*ids, *slowly(trained, ids, count)]).removeprefix(own.decode(ids))
        assert generate(trained, text, SamplingOptions(tokens=count, temperature=0)).continuation == wanted


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"share": 0.9}, {"best": 9, "penalty": 1.3, "samples": 2}])
def test_a_text_is_that_of_its_seed_whatever_else_is_written(trained: Trained, how: dict[str, Any]) -> None:
    options, network = SamplingOptions(tokens=40, seed=7, **how), writing(trained)
    prompts = ["the cat", "", "a long prompt that does not fit into any window", "b", "the cat"]
    together_ = list(generate_all(network, prompts, options))
    assert together_ == list(generate_all(network, prompts, options, batch=3))
    alone = [text for prompt in prompts for text in generate_all(network, [prompt], options)]
    assert together_ == alone
    assert [text.sample for text in together_] == list(range(options.samples)) * 5
    if options.temperature:
        other = list(generate_all(network, prompts, replace(options, seed=8)))
        assert [text.continuation for text in other] != [text.continuation for text in alone]
        assert alone[0].continuation != alone[1].continuation


def test_another_prompt_and_sample_draw_otherwise() -> None:
    how = SamplingOptions(seed=3)
    assert len({how.key("a", 0), how.key("a", 1), how.key("b", 0), replace(how, seed=4).key("a", 0)}) == 4


def test_it_writes_as_many_as_asked(trained: Trained, says: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The end sign ends a text, and is not written; beyond the window it slides, which is said once."""
    says("xxxxx")
    five = generate(trained, "ab", SamplingOptions(tokens=5))
    assert (five.continuation, five.text, five.tokens, five.ended) == ("xxxxx", "abxxxxx", 5, "tokens")
    assert capsys.readouterr().err == ""
    says("x" * 99)
    assert generate(trained, "ab", SamplingOptions(tokens=99)).continuation == "x" * 99
    line = "a text is longer than the model's window of 24 tokens: the window slides along\n"
    assert capsys.readouterr().err == line
    says("xx.x")
    ended = generate(trained, "ab", SamplingOptions(tokens=9))
    assert (ended.continuation, ended.tokens, ended.ended) == ("xx", 2, "end")
    says(".")
    assert generate(trained, "ab", SamplingOptions(tokens=9)).continuation == ""


def test_a_text_ends_before_a_stop_string(trained: Trained, says: Any) -> None:
    """The first of several; not where the prompt has it."""
    says("abcdefg")
    found = generate(trained, "cd", SamplingOptions(tokens=7, stop=("fg", "cd")))
    assert (found.continuation, found.ended, found.tokens) == ("ab", "stop", 4)
    says("abcdefg")
    assert generate(trained, "x", SamplingOptions(tokens=7, stop=("zz",))).ended == "tokens"


def test_pieces_of_a_stream_make_the_text(trained: Trained, says: Any) -> None:
    says("abxcd.")
    network = writing(trained)
    assert list(stream(network, "p", SamplingOptions(tokens=9))) == ["a", "b", "x", "c", "d"]
    says("abxcd.")
    assert list(stream(network, "p", SamplingOptions(tokens=9, stop=("xy",)))) == ["a", "b", "xc", "d"]
    says("abxyd.")
    assert list(stream(network, "p", SamplingOptions(tokens=9, stop=("xy",)))) == ["a", "b"]


def test_a_stream_is_the_text(trained: Trained) -> None:
    network, how = writing(trained), SamplingOptions(tokens=30, seed=2, samples=2)
    both = list(generate_all(network, ["the cat"], how))
    assert ["".join(stream(network, "the cat", how, sample)) for sample in (0, 1)] == [t.continuation for t in both]
    assert stable_length(network, how, "ab\N{REPLACEMENT CHARACTER}") == 2


def test_pieces_of_words_wait_for_their_ends(tmp_path: Path) -> None:
    network: Any = SimpleNamespace(trained=SimpleNamespace(tokenizer=SimpleNamespace(rewrites=True)))
    assert stable_length(network, SamplingOptions(), " the do") == len(" the")
    assert (
        stable_length(network, SamplingOptions(), " the averyveryverylongword")
        == len(" the averyveryverylongword") - 12
    )


def test_rows_that_have_ended_leave(trained: Trained) -> None:
    network, how = writing(trained), SamplingOptions(tokens=14, temperature=0)
    rows = continuing.text_rows(network, how, ["the cat", "a"])
    rows[0].given, early = rows[0].given - 7, rows[0]  # as if seven had been written
    sizes = [len(step) for step in continuing.Continuation(network, list(reversed(rows)))]
    assert sizes == sorted(sizes, reverse=True)
    assert {1, 2} == set(sizes)
    assert early.made <= 14
    assert rows[1].text == generate(trained, "a", how).continuation


# who writes


def masked(own: Tokenizer, **more: Any) -> Trained:
    settings = bert.Bert(width=32, layers=1, heads=2, positions=16)
    torch.manual_seed(2)
    return Trained(shaken(mlm.Mlm().build(settings, own)).eval(), own, settings, Path("model"), **more)


def test_who_writes_nothing_is_refused(tmp_path: Path) -> None:
    own = tokenizer()
    objective = masked(own).objective
    with pytest.raises(RecipeError, match=r"is an ELMo, which cannot generate; .*`ordsmed embed` makes vectors"):
        generate(Trained(objective, own, elmo.Elmo(), Path("model")), "a", SamplingOptions())
    del objective.head
    with pytest.raises(RecipeError, match="has no head that predicts tokens; wanted a model trained with clm, hybrid"):
        generate(Trained(objective, own, masked(own).settings, Path("model")), "a", SamplingOptions())
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL[:4], "a"]) + "\n")
    with pytest.raises(RecipeError, match="its tokenizer has no mask token"):
        generate(masked(Tokenizer.load(tmp_path / "vocab.txt")), "a", SamplingOptions())


def test_the_sign_behind_texts_ends_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "b"]) + "\n")
    own, settings = Tokenizer.load(tmp_path / "vocab.txt"), gpt2.Gpt2(width=32, layers=1, heads=2, positions=9)
    made = Trained(clm.Clm().build(settings, own).eval(), own, settings, tmp_path)
    letter = own.encode("b")[0]
    assert len({own.end, own.stop, None}) == 3
    words: Iterator[Any] = iter([letter, own.stop, letter, own.end])
    given, inner = list[Any](), made.objective.model.forward
    monkeypatch.setattr(
        made.objective.model, "forward", lambda *how, **more: given.append(how[0]) or inner(*how, **more)
    )
    monkeypatch.setattr(continuing, "choose", lambda scores, *_: torch.tensor([next(words)]))
    made_text = generate(made, "a", SamplingOptions(tokens=6)).continuation
    assert made_text.split() == ["b", "b"], "it goes on behind the other one"
    assert given[0].tolist() == [[own.end, own.encode("a")[0]]]


def test_without_a_sign_a_text_is_needed() -> None:
    bare: Any = SimpleNamespace(
        separator=None,
        mask=None,
        vocabulary=33,
        rewrites=False,
        special=(),
        encode=lambda text: [9] * len(text),
        decode=lambda ids: "x" * len(ids),
    )
    made = replace(model_of("gpt2"), tokenizer=bare)
    with pytest.raises(RecipeError, match="'': has no token to continue from; wanted a text"):
        generate(made, "", SamplingOptions())
    assert generate(made, "ab", SamplingOptions(tokens=2)).continuation == "xx"


def test_of_several_stop_strings_the_first_in_the_text_ends_it() -> None:
    for stop in (("b", "a"), ("a", "b")):
        assert SamplingOptions(stop=stop).stopped("xaxb") == "x"
    assert SamplingOptions(stop=("c",)).stopped("xaxb") is None


def test_a_prompt_stands_behind_the_sign_or_not() -> None:
    """Never behind two; not where its folder says so; and an empty one needs it."""
    made, how = model_of("gpt2"), SamplingOptions(temperature=0)
    sign, ids = made.tokenizer.stop or 0, made.tokenizer.encode("abc")
    said = replace(made, tokenizer=Tokenizer(made.tokenizer.pipeline, {"add_bos_token": False}))

    def read(prompt: str, of: Trained = made, *, start: bool = True) -> list[int]:
        return continuing.text_rows(writing(of), replace(how, start=start), [prompt])[0].ids

    assert read("abc") == read("</s>abc") == [sign, *ids]
    assert read("abc", start=False) == read("abc", said) == ids
    assert read("") == read("", said) == [sign]
    with pytest.raises(RecipeError, match="has no token to continue from; wanted a text, because --no-start omits"):
        generate(made, "", replace(how, start=False))
    masked = bert.Bert(width=16, layers=1, heads=1, positions=24)
    fills = replace(made, objective=mlm.Mlm().build(masked, made.tokenizer), settings=masked)
    with pytest.raises(RecipeError, match=r"--no-start: found with model, which fills masks; wanted a causal model"):
        generate(fills, "abc", replace(how, start=False))


@pytest.mark.parametrize("said", [{}, {"add_bos_token": True}])
def test_a_sign_that_a_folder_of_others_does_not_ask_for_is_told(
    said: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model_of("gpt2")
    (tmp_path / "config.json").write_text("{}")
    network = writing(replace(made, folder=tmp_path, tokenizer=Tokenizer(made.tokenizer.pipeline, said)))
    for prompt in ("", "abc", "abc"):
        list(generate_all(network, [prompt], SamplingOptions(tokens=2)))
        told = capsys.readouterr().err
        assert ("</s> is put before each prompt" in told) == (prompt == "abc" and not said)
        said = said if prompt == "" else {"told": True}


def test_one_process_alone_needs_no_others() -> None:
    with together(model_of("gpt2")) as network:
        assert isinstance(network, WritingNetwork)
        assert network.ranks.world == 1
        assert len(list(generate_all(network, ["a"], SamplingOptions(tokens=3)))) == 1

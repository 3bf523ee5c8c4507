"""A terminal with a prompt after the other: texts as they come, settings between them, Ctrl-C ends the text alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ordsmed.base.ending import Ended
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.use.generation.session import Session

SEEN: list[tuple[str, SamplingOptions, int]] = []


def write(prompt: str, how: SamplingOptions, sample: int) -> Iterator[str]:
    """It writes ` ok`; `stop` is ended in the middle, `end` by a signal."""
    SEEN.append((prompt, how, sample))
    yield " ok"
    if prompt == "stop":
        raise KeyboardInterrupt
    if prompt == "end":
        raise Ended(15)


@pytest.fixture
def asked() -> list[tuple[str, SamplingOptions, int]]:
    """What was to be written."""
    SEEN.clear()
    return SEEN


def run(lines: Iterable[Any], **how: Any) -> Session:
    given = iter(lines)

    def ask(sign: str) -> str:
        line = next(given, EOFError())
        if isinstance(line, BaseException):
            raise line
        print(f"{sign}{line}")
        return str(line)

    made = Session(write, SamplingOptions(**how), ask, after=lambda: print("(note)"))
    made.run()
    return made


def test_texts_follow_prompts(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one too; each has a seed of its own."""
    run(["once", "", "//set"], seed=3)
    assert [(prompt, how.seed) for prompt, how, _ in asked] == [("once", 3), ("", 4), ("/set", 5)]
    assert capsys.readouterr().out.splitlines()[1:] == [
        "> once",
        "once ok",
        "(note)",
        "> ",
        " ok",
        "(note)",
        "> //set",
        "/set ok",
        "(note)",
        "",
    ]


def test_a_word_of_the_callers_ends_the_session(asked: list[Any]) -> None:
    lines = iter(["once", "please stop now", "on"])
    Session(write, SamplingOptions(), lambda sign: next(lines), lambda line: None, until="stop").run()
    assert ([prompt for prompt, _, _ in asked], list(lines)) == (["once"], ["on"])


def test_ctrl_c_ends_the_text_and_not_the_session(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    run(["stop", KeyboardInterrupt(), "on"], samples=2)
    told = capsys.readouterr().out
    assert "stop ok (ended)\n" in told
    assert "\n/quit or Ctrl-D ends\n" in told
    assert [(prompt, how.seed, sample) for prompt, how, sample in asked] == [("stop", 0, 0), ("on", 0, 0), ("on", 0, 1)]
    with pytest.raises(Ended):
        run(["end"])
    with pytest.raises(Ended):
        run([Ended(15)])


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("/temperature 0.5", {"temperature": 0.5}),
        ("/greedy", {"temperature": 0.0}),
        ("/tokens 7", {"tokens": 7}),
        ("/best 4", {"best": 4}),
        ("/top-k 5", {"best": 5}),
        ("/share 0.4", {"share": 0.4}),
        ("/top-p 0.3", {"share": 0.3}),
        ("/typical-p 0.2", {"typical": 0.2}),
        ("/repetition-penalty 1.2", {"penalty": 1.2}),
        ("/seed 9", {"seed": 9}),
        ("/samples 2", {"samples": 2}),
        ("/stop æ ", {"stop": ("æ",)}),
        ("/stop \\n", {"stop": ("\n",)}),
        ("/together 3", {"together": 3}),
        ("/order chance", {"order": "chance"}),
    ],
)
def test_settings_change_between_prompts(
    asked: list[Any], capsys: pytest.CaptureFixture[str], line: str, changed: dict[str, Any]
) -> None:
    run([line, "a"])
    [name] = changed
    assert asked[0][1] == SamplingOptions(**changed)
    assert f"{name} {changed[name]}" in capsys.readouterr().out


def test_stop_strings_add_up_and_go(asked: list[Any]) -> None:
    run(["/stop a", "/stop b", "x", "/stop", "y"])
    assert [how.stop for _, how, _ in asked] == [("a", "b"), ()]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/temperature -1", "/temperature: found -1.0; wanted 0 or more"),
        ("/top-p 2", "/share (--top-p): found 2.0; wanted above 0, to 1"),
        ("/tokens", "/tokens: wanted a whole number, such as /tokens 40"),
        ("/tokens 1.5", "/tokens: wanted a whole number, such as /tokens 40"),
        ("/share much", "/share: wanted a number, such as /share 1.0"),
        ("/order left", "/order: found left; wanted certain or chance"),
        ("/temprature 1", "/temprature: no such command; did you mean /temperature?"),
        ("/xyz", "/xyz: no such command; /help lists them"),
        ("/", "/temperature X    0: always the likeliest"),
        ("/help", "/quit             or Ctrl-D: end the session"),
        ("/settings", "tokens 40, temperature 1.0, best 0, share 1.0, typical 1.0, seed 0, penalty 1.0, stop ()"),
        ("a\udcff", "invalid UTF-8 at character 2; wanted UTF-8 text"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "invalid UTF-8 at byte 1 of the line; wanted UTF-8 text"),
    ],
)
def test_what_is_told_and_refused(asked: list[Any], line: Any, said: str) -> None:
    told: list[str] = []
    given = iter([line, "a"])

    def ask(sign: str) -> str:
        word = next(given, EOFError())
        if isinstance(word, BaseException):
            raise word
        return str(word)

    Session(write, SamplingOptions(), ask, told.append).run()
    assert any(said in line for line in told)
    assert [(prompt, how) for prompt, how, _ in asked] == [("a", SamplingOptions())]


@pytest.mark.parametrize("word", ["/quit", "/exit", "/q"])
def test_quit_ends(asked: list[Any], word: str) -> None:
    run([word, "a"])
    assert asked == []

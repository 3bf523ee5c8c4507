"""The words of a command by themselves: where flags stand, what `--` hides, bounds of numbers, and complaints."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from ordsmed.base import arguments
from ordsmed.base.arguments import Parser, UsageError, number, whole


def parser(**how: Any) -> Parser:
    """Of a verb with a word, more words, a switch, and flags with values."""
    made = Parser("act", owners=lambda flag: "elsewhere" if flag == "--other" else "", settings=("rate", "a_b"), **how)
    made.add_argument("name", metavar="NAME")
    made.add_argument("more", nargs="*", metavar="key=value")
    made.add_argument("--switch", "-s", action="store_true")
    made.add_argument("--count", type=whole(1), metavar="N", default=3)
    made.add_argument("--way", choices=("up", "down"))
    return made


def complaint(*words: str, of: Parser | None = None) -> str:
    with pytest.raises(UsageError) as error:
        (of or parser()).read(words)
    return str(error.value)


FORM = "`ordsmed act NAME [key=value ...]`"
MORE = "see `ordsmed help act`"


def test_flags_stand_anywhere() -> None:
    for words in (
        ["a", "x=1", "y=2", "--count", "5", "-s"],
        ["--count=5", "a", "-s", "x=1", "y=2"],
        ["a", "-s", "x=1", "--count", "5", "y=2"],
    ):
        asked = parser().read(words)
        assert vars(asked) == {
            "name": "a",
            "more": ["x=1", "y=2"],
            "switch": True,
            "count": 5,
            "way": None,
            "verb": "act",
        }
    asked = parser().read(["a"])
    assert (asked.more, asked.switch, asked.count) == ([], False, 3)


def test_a_former_name_of_a_flag_works_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    made = parser()
    made.add_argument("--max-pairs", former="--most", type=whole(1))
    assert [made.read(words).max_pairs for words in (["a", "--most", "3"], ["a", "--most=4"])] == [3, 4]
    advice = "act: `--most` is called `--max-pairs` now; the former name works until version 1.0"
    assert capsys.readouterr().err.count(advice) == 2
    assert made.read(["a", "--", "--most"]).more == ["--most"]


def test_behind_two_dashes_everything_is_a_word() -> None:
    """Only the first two are a sign."""
    asked = parser().read(["--count", "2", "a", "--", "--switch", "-x", "--", "b"])
    assert (asked.name, asked.more, asked.switch, asked.count) == ("a", ["--switch", "-x", "--", "b"], False, 2)
    assert parser().read(["--", "-a"]).name == "-a"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], f"act: no NAME; wanted {FORM}; {MORE}"),
        (["a", ""], f"act: an empty word; wanted {FORM}; is a shell variable not set?"),
        (["a", "--swich"], "act: --swich: no such flag; did you mean `--switch`?"),
        (["a", "--sw"], f"act: --sw: no such flag; {MORE}"),  # never guessed from two letters
        (["a", "--swit"], "act: --swit: no such flag; did you mean `--switch`?"),
        (["a", "--rate=3"], "act: --rate=3: no such flag; a setting is written `rate=...`"),
        (["a", "--a-b", "3"], "act: --a-b: no such flag; a setting is written `a_b=...`"),
        (["a", "--other"], "act: --other: no such flag; elsewhere"),
        (["a", "--cont", "3"], "act: --cont: no such flag; did you mean `--count`?"),
        (["a", "--zzzz"], f"act: --zzzz: no such flag; {MORE}"),
        (["a", "--" + "z" * 57], f"act: --{'z' * 57}: no such flag; {MORE}"),
        (["a", "--" + "z" * 58], f"act: --{'z' * 55}...: no such flag; {MORE}"),
        (["a", "--count"], f"act: --count has no value; wanted `--count N`; {MORE}"),
        (["a", "--way"], f"act: --way has no value; wanted `--way N`; {MORE}"),
        (["a", "--count", "0"], "--count: found 0; wanted a whole number, 1 or more"),
        (["a", "--count="], "--count: found nothing; wanted a whole number, 1 or more"),
        (["a", "--count=--"], f"--count: found --; wanted a value; {MORE}"),
        (["a", "--way", "left"], "--way: found 'left'; wanted one of 'up', 'down'"),
        (["a", "--switch=yes"], "--switch/-s: found yes; wanted no value, because it is a switch"),
    ],
)
def test_complaints(words: list[str], said: str) -> None:
    assert complaint(*words) == said


def test_a_word_too_many() -> None:
    bare = Parser("act", owners=lambda _: "")
    bare.add_argument("name", metavar="NAME")
    assert complaint("a", "b", "c", of=bare) == "act: `b` is one argument too many; wanted `ordsmed act NAME`"
    bare = Parser("act", owners=lambda _: "")
    bare.add_argument("name", metavar="NAME")
    assert complaint("--", "a", "--b", of=bare) == "act: `--b` is one argument too many; wanted `ordsmed act NAME`"
    two = Parser("act", owners=lambda _: "")
    for name in ("ONE", "TWO"):
        two.add_argument(name.lower(), metavar=name)
    assert complaint(of=two).startswith("act: no ONE and no TWO; ")


def test_an_empty_text_is_one() -> None:
    made = Parser("act", owners=lambda _: "")
    made.add_argument("text", nargs="*")
    assert made.read(["", "b"]).text == ["", "b"]


def test_flags_are_named_in_their_long_form() -> None:
    assert parser().flags() == ["--help", "--switch", "--count", "--way"]
    assert parser(add_help=False).flags() == ["--switch", "--count", "--way"]


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("12", 12), ("1_0", 10), ("007", 7)])
def test_whole_numbers(text: str, value: int) -> None:
    assert whole(3, 12)(text) == value


@pytest.mark.parametrize("text", ["2", "13", "-4", "3.0", "", "x", "٣", "1e1", "+5", " 5"])
def test_what_is_no_whole_number_within(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"wanted a whole number, 3 to 12$"):
        whole(3, 12)(text)


def test_bounds_of_whole_numbers() -> None:
    assert whole(0)("0") == 0
    assert whole(0)("9" * 15) == 10**15 - 1
    assert whole(0, 5000)("5000") == 5000
    for text in ("9" * 16, "1" + "0" * 15, "0" * 16):
        with pytest.raises(argparse.ArgumentTypeError, match=r"wanted a whole number, 0 or more$"):
            whole(0)(text)
    with pytest.raises(argparse.ArgumentTypeError, match=r"0 to 5,000$"):
        whole(0, 5000)("5001")


def test_numbers() -> None:
    assert [number(text) for text in ("1", "-2.5", "1e-3")] == [1.0, -2.5, 1e-3]
    for text in ("nan", "inf", "-inf", "much", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^found {text or 'nothing'}; wanted a number$"):
            number(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1..5", (1, 2, 3, 4, 5)),
        ("1,2,7", (1, 2, 7)),
        ("7, 1..3", (7, 1, 2, 3)),
        ("0", (0,)),
        ("3..3", (3,)),
        ("1..1000", tuple(range(1, 1001))),
    ],
)
def test_seeds_are_written_in_two_ways(text: str, wanted: tuple[int, ...]) -> None:
    assert arguments.seeds(text) == wanted


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "found nothing; wanted seeds such as 1..5 or 1,2,7"),
        ("5..1", "seeds such as"),
        ("1,,2", "seeds such as"),
        ("-1", "seeds such as"),
        ("1.5", "seeds such as"),
        ("a..b", "seeds such as"),
        ("1..", "seeds such as"),
        ("1...3", "seeds such as"),
        ("٣", "seeds such as"),
        ("1,1", "wanted different seeds"),
        ("1..3,2", "wanted different seeds"),
        ("1..100000", "wanted at most 1,000 seeds"),
        ("1..1001", "wanted at most 1,000 seeds"),
    ],
)
def test_seeds_that_are_none(text: str, complaint: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=complaint):
        arguments.seeds(text)

"""Texts that are typed, come from files of lines or from standard input, each with its place; bad ones are refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.use import typed_texts
from ordsmed.use.typed_texts import TypedText


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("One.\n\nThree.\n")
    Path("pairs.txt").write_text("a\tb\n")
    Path("empty.txt").write_text(" \n")


def asked(*words: str, file: str = "", typed: bytes = b"", pairs: bool = False) -> list[tuple[str, ...]]:
    found = typed_texts.typed_texts("tag", words, file, io.BytesIO(typed), pairs=pairs)
    return [(text.place, text.text, *[text.second] * pairs) for text in found]


@pytest.mark.parametrize(
    ("words", "how", "wanted"),
    [
        (["a b", "c"], {}, [("tag", "a b"), ("tag", "c")]),
        (["lines.txt", "c"], {}, [("lines.txt:1", "One."), ("lines.txt:3", "Three."), ("tag", "c")]),
        ([], {"file": "lines.txt"}, [("lines.txt:1", "One."), ("lines.txt:3", "Three.")]),
        (["-"], {"typed": b"\xef\xbb\xbfa\n\nb\n"}, [("standard input:1", "a"), ("standard input:3", "b")]),
        ([], {"typed": b"a"}, [("standard input:1", "a")]),
        ([], {"file": "-", "typed": b"a"}, [("standard input:1", "a")]),
        (["a", "b"], {"pairs": True}, [("tag", "a", "b")]),
        (["a\tb", "c\td"], {"pairs": True}, None),
        (["pairs.txt"], {"pairs": True}, [("pairs.txt:1", "a", "b")]),
        (["pairs.txt", "c\td"], {"pairs": True}, [("pairs.txt:1", "a", "b"), ("tag", "c", "d")]),
        ([], {"typed": b"a\tb\n", "pairs": True}, [("standard input:1", "a", "b")]),
    ],
)
def test_where_texts_come_from(words: list[str], how: dict[str, Any], wanted: list[tuple[str, ...]] | None) -> None:
    """Two words are one pair, unless one of them is a file."""
    assert asked(*words, **how) == (wanted or [("tag", *words)])


@pytest.mark.parametrize(
    ("words", "how", "wrong"),
    [
        (["a"], {"file": "lines.txt"}, "tag: found --file next to a text; wanted TEXT..., or --file FILE"),
        ([""], {}, "tag: found an empty text; wanted a text"),
        (["\udc80"], {}, r"tag: invalid UTF-8 \(surrogates not allowed\)"),
        (["a\tb"], {}, r"tag: found a TAB in 'a\\tb'; wanted a text a line; `ordsmed predict` reads tables"),
        (["lines.txt"], {"pairs": True}, r"lines.txt:1: found 'One.'; wanted text<TAB>second text"),
        ([], {"typed": b"a\t \n", "pairs": True}, r"standard input:1: found 'a\\t '; wanted text<TAB>second text"),
        ([], {"typed": b"a\tb\tc\n", "pairs": True}, "standard input:1: found .*; wanted text<TAB>second text"),
        ([], {"typed": b"\n"}, "standard input: is empty; wanted a text a line"),
        (["empty.txt"], {}, "empty.txt: is empty; wanted a text a line"),
    ],
)
def test_what_is_no_text_is_refused(words: list[str], how: dict[str, Any], wrong: str) -> None:
    with pytest.raises((DataError, RecipeError), match=f"^{wrong}"):
        asked(*words, **how)


@pytest.mark.parametrize(("word", "named"), [("story.txt", 1), ("It rains.", 0), ("lines.txt", 0), ("a.b", 0)])
def test_a_mistyped_file_is_named(word: str, named: int, capsys: pytest.CaptureFixture[str]) -> None:
    asked(word)
    assert capsys.readouterr().err.count(f"{word}: no such file, so it is read as a text") == named


def test_lists_are_read_in_blocks_and_streams_line_by_line() -> None:
    many = [TypedText("tag", str(n)) for n in range(typed_texts.AT_ONCE + 1)]
    assert [len(block) for block in typed_texts.blocks(many)] == [typed_texts.AT_ONCE, 1]
    assert [len(block) for block in typed_texts.blocks(iter(many[:3]))] == [1, 1, 1]
    assert typed_texts.one_line(" a \n\tb ") == " a b "

"""Prompts in and texts out: files of lines and JSON lines, what is refused, files that are whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.use.generation import prompts as way
from ordsmed.use.generation.options import Generated
from ordsmed.use.generation.prompts import (
    Prompt,
    as_json,
    as_line,
    given,
    line_writer,
    of_file,
    print_pieces,
    same_on_all_ranks,
)


def test_prompts_of_lines(tmp_path: Path) -> None:
    """An empty line is a prompt as well."""
    (tmp_path / "p.txt").write_bytes("one\r\n\nto æ".encode())
    assert of_file(tmp_path / "p.txt") == [Prompt("one"), Prompt(""), Prompt("to æ")]


def test_prompts_of_json_lines(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "one", "id": 7}\n\n{"text": "", "prompt": "a"}\n{"text": "b"}\n')
    assert of_file(str(tmp_path / "p.jsonl")) == [Prompt("one", {"id": 7}), Prompt("a", {"text": ""}), Prompt("b")]


@pytest.mark.parametrize(
    ("name", "held", "said"),
    [
        ("p.txt", b"", "p.txt: is empty; wanted one prompt per line"),
        ("p.jsonl", b"\n", "p.jsonl: is empty; wanted one prompt per line"),
        ("p.txt", b"ok\nno\xff\n", r"p.txt:2: invalid UTF-8 at byte 3 of the line \(0xff\)"),
        ("p.jsonl", b'{"prompt": "a"}\n{', "p.jsonl:2: not JSON: .*wanted {"),
        ("p.jsonl", b'{"id": 1, "prompt": 3}', r"p.jsonl:1: has no prompt \(id, prompt\)"),
        ("p.jsonl", b"[]", r"p.jsonl:1: has no prompt \(list\)"),
        ("p.jsonl", b'{"prompt": "a\\ud800"}', "p.jsonl:1: invalid UTF-8 at character 2; wanted UTF-8 text"),
    ],
)
def test_files_that_hold_no_prompts(tmp_path: Path, name: str, held: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(held)
    with pytest.raises(OrdsmedError, match=said):
        of_file(tmp_path / name)
    with pytest.raises(RecipeError, match="is not a regular file"):
        of_file(tmp_path)
    with pytest.raises(RecipeError, match="nowhere: no such file"):
        of_file(tmp_path / "nowhere")


def test_words_that_are_no_text() -> None:
    assert list(given(["a", ""])) == [Prompt("a"), Prompt("")]
    with pytest.raises(RecipeError, match="invalid UTF-8 at character 2"):
        list(given(["a\udcff"]))


def test_texts_as_lines_and_as_json() -> None:
    text = Generated("one", " two\n three", 1, 3, "stop")
    assert as_line(text, Prompt("one")) == "one two  three"
    assert json.loads(as_json(text, Prompt("one", {"id": 7, "tokens": "x"}))) == {
        "id": 7,
        "prompt": "one",
        "continuation": " two\n three",
        "sample": 1,
        "tokens": 3,
        "ended": "stop",
    }


def test_a_file_of_texts_is_whole_or_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.txt"
    stopped = line_writer(str(out))
    stopped.__enter__()("half")
    assert not stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert list(tmp_path.iterdir()) == []
    with line_writer(str(out)) as take:
        take("æ")
        take("b")
    assert out.read_text(encoding="utf-8") == "æ\nb\n"
    with (
        pytest.raises(RecipeError, match=r"out\.txt: already exists; wanted a new file; name another, or add --anew"),
        line_writer(str(out)),
    ):
        pass
    with line_writer(str(out), anew=True) as take:
        take("c")
    assert out.read_text() == "c\n"
    for wrong, said in (("no/out.txt", "there is no folder"), ("", "is a folder")):
        with pytest.raises(RecipeError, match=said), line_writer(str(tmp_path / wrong), anew=True):
            pass
    with line_writer(None) as take:
        take("seen")
    print_pieces(["a", "b"])
    assert capsys.readouterr().out == "seen\nab"


def test_ranks_read_what_the_first_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def first_alone(ranks: Any, act: Any) -> Any:
        if ranks.first:
            told.append(act())
            return told[-1]
        return told.pop(0)

    monkeypatch.setattr(way, "on_rank0", first_alone)
    first, other = (SimpleNamespace(world=2, first=first) for first in (True, False))
    prompts = [Prompt("a", {"id": 1}), Prompt("")]
    assert list(same_on_all_ranks(first, prompts)) == prompts  # type: ignore[arg-type]
    unread = iter([Prompt("never")])
    assert list(same_on_all_ranks(other, unread)) == prompts  # type: ignore[arg-type]
    assert next(unread) == Prompt("never")
    alone: Any = SimpleNamespace(world=1)
    with pytest.raises(DataError):
        list(same_on_all_ranks(alone, (1 / 0 if False else (_ for _ in ()).throw(DataError("a", "b")) for _ in "x")))

"""Lines on narrow screens: broken between words, what is copied stays whole; commands as a shell takes them."""

from __future__ import annotations

import io
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ordsmed.base.screen import columns, command, command_lines, fitted, fitted_lines, markdown, shell_command, table


@pytest.mark.parametrize("wide", [40, 60])
def test_no_line_is_wider_and_no_word_is_broken(wide: int) -> None:
    line = "work/pretrain/tiny-bert: no such folder; wanted a run's folder, an import's, or a Hugging Face folder"
    found = fitted(line, wide)
    assert max(map(len, found)) <= wide
    assert len(found) > 1
    assert " ".join(part.strip() for part in found) == line


def test_what_is_copied_stays_whole() -> None:
    lines = command_lines("next", command("show", "a folder with a name/that is long/and has spaces"))
    assert lines == ["next:", "    ordsmed show 'a folder with a name/that is long/and has spaces'"]
    assert fitted(lines[1], 30) == lines[1:]
    python = command_lines("next", shell_command("python3", "-c", "print('a long line that is one word of a command')"))
    assert fitted(python[1], 30) == python[1:]
    again = "`ordsmed corpus wikipedia source.path=x --anew`"
    found = fitted(f"work/corpus/x: was made from another recipe; make it again with {again}, or do not", 40)
    assert sum(again in part for part in found) == 1
    path = "/a/very/long/path/of-many-parts/that-fits-no-line/of-forty"
    assert any(path in part for part in fitted(f"where it stands: {path}: no such file", 40))


def test_a_table_goes_on_under_its_last_column() -> None:
    rows = table([("fill", "a model's best guesses"), ("corpus stats", "documents, sentences and words of a corpus")])
    assert rows[0] == "  fill          a model's best guesses"
    assert fitted(rows[1], 40) == ["  corpus stats  documents, sentences and", "                words of a corpus"]
    assert fitted("  a name that is longer than half of it  text and more text", 40) == [
        "  a name that is longer than half of it",
        "      text and more text",
    ]


def test_numbers_end_below_each_other() -> None:
    rows = [("label", "F1", "examples"), ("ORG", "9.50", "3"), ("PERSON", "100.00", "12")]
    assert table(rows, numbers=True) == [
        "  label       F1  examples",
        "  ORG       9.50         3",
        "  PERSON  100.00        12",
    ]
    assert table([]) == []


def test_a_table_in_markdown() -> None:
    rows = [("a|b", 1), ("c", None)]
    assert markdown(["name", "n"], rows) == ["| name | n |", "| --- | --- |", "| a\\|b | 1 |", "| c | None |"]
    assert markdown(["name", "n"], rows, padded=True) == [
        "| name | n    |",
        "| ---- | ---- |",
        "| a\\|b | 1    |",
        "| c    | None |",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever COLUMNS says, which a shell may export; of a terminal it says how wide it is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert columns(io.StringIO()) == 0
    assert fitted("word " * 100, 0) == ["word " * 100]
    monkeypatch.setenv("COLUMNS", "60")
    assert columns(io.StringIO()) == 0
    assert columns(Terminal()) == 60


def test_rows_of_a_markdown_table_are_whole_on_a_narrow_screen() -> None:
    lines = ["see below", *markdown(["name", "why", ""], [("a|b", "much too long for it", 1)], padded=True), "end"]
    assert list(fitted_lines(lines, 0)) == list(fitted_lines(lines, 39)) == lines
    assert list(fitted_lines(lines, 28)) == [
        "see below",
        "| name | why           |   |",
        "| ---- | ------------- | - |",
        "| a\\|b | much too long | 1 |",
        "|      | for it        |   |",
        "end",
    ]
    assert list(fitted_lines(lines, 16)) == [
        "see below",
        "name: a\\|b",
        "    why: much",
        "    too long for",
        "    it",
        "    : 1",
        "end",
    ]


def test_what_only_begins_like_a_table_stays_as_it_is() -> None:
    for lines in (["| no table but long enough"], ["| a | b |", "| --- |", "| c | d | e |"], ["| "]):
        assert list(fitted_lines(lines, 4)) == lines


@given(some.lists(some.text(some.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), min_size=1))
def test_a_shell_reads_the_command_back(words: list[str]) -> None:
    assert shlex.split(command(*words)) == ["ordsmed", *words]


def test_a_command_has_no_quotes_without_need() -> None:
    assert command("pretrain", "work/a b", "seed=3") == "ordsmed pretrain 'work/a b' seed=3"


def test_below_a_name_that_takes_more_than_half_stands_what_it_is() -> None:
    assert fitted("  averylongname  text that goes on", 24) == ["  averylongname", "      text that goes on"]
    assert fitted("  longname  text that goes on", 24) == ["  longname  text that", "            goes on"]

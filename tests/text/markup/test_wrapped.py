"""Joining wrapped lines: the characters between two lines, and how the end of a paragraph is found."""

from __future__ import annotations

import textwrap

import pytest

from kit.makers import digest_of
from ordsmed.text.markup import line_wrapping
from ordsmed.text.markup.line_wrapping import joined

WORDS = "the keeper of the small lighthouse had counted every single ship that went by in the long and bright summer "
HAN = "".join(chr(0x4E00 + 7 * n % 900) for n in range(280))


def cut(text: str, size: int) -> list[str]:
    return [text[n : n + size] for n in range(0, len(text), size)]


@pytest.mark.parametrize("size", [25, 35, 50])
def test_chinese_is_joined_without_blanks(size: int) -> None:
    paragraph = f"他说：“{HAN[:90]}……”，{HAN[90:]}。"
    assert joined([*cut(paragraph, size), "", *cut(paragraph, size)]) == [paragraph, "", paragraph]
    assert joined(["漢", "字、", "“かな”", "𠀀", "New", "York", "だ"], always=True) == ["漢字、“かな”𠀀 New York だ"]


def test_chinese_verse_stays() -> None:
    verse = [line + "，" for line in cut(HAN[:140], 7)]
    assert joined(verse) == verse
    assert joined([*cut(HAN * 4, 35), "", *verse]) == [HAN * 4, "", *verse]


def test_korean_keeps_its_blanks() -> None:
    paragraph = "등대지기는 긴 여름 동안 지나간 모든 배를 하나하나 세었고 아무도 그에게 이유를 묻지 않았다 " * 5
    assert joined(textwrap.wrap(paragraph, 35)) == [paragraph.strip()]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["one light-", "house, a lighthouse"], "one lighthouse, a lighthouse"),
        (["one light-", "hearted lighthouse"], "one light-hearted lighthouse"),
        (["one light\xad", "house"], "one lighthouse"),
        (["word--", "  word", "10 -", "20", "1914-", "18 so—", "it"], "word--word 10 - 20 1914-18 so—it"),
    ],
)
def test_what_stands_between_two_lines(lines: list[str], wanted: str) -> None:
    assert joined(lines, always=True) == [wanted]


def test_blank_lines_tell_paragraphs_and_stay() -> None:
    assert joined(["a", "b", " ", "", "c", "  d"], always=True) == ["a b", "", "", "c d"]
    assert joined([]) == joined([], always=True) == []


def test_paragraphs_told_by_indents_alone() -> None:
    paragraphs = [(WORDS * n).strip().capitalize() + "." for n in (1, 3, 2)] + ["Yes.", "No."]
    text = [line for p in paragraphs * 3 for line in textwrap.wrap(p, 60, initial_indent="  ")]
    assert joined(text) == [f"  {p}" for p in paragraphs * 3]


def test_items_of_a_list_stay_apart_and_a_date_is_none() -> None:
    prose = textwrap.wrap((WORDS * 5).strip() + ".", 72)
    items = [f"- {(WORDS * n).strip()}" for n in (1, 2, 1, 3)]
    listed = [line for item in items for line in textwrap.wrap(item, 72, subsequent_indent="  ")]
    assert joined([*prose, *listed]) == [" ".join(prose), *items]
    dated = [*prose[:2], prose[2][:60], "17. mai went by and nobody had seen it who was not at the lighthouse"]
    assert joined([*dated, *prose]) == [" ".join([*dated, *prose])]


def test_tables_and_records_of_one_width_stay() -> None:
    for line in ("{} a record of the same width as its neighbours{}", "so many ships {} went by the lighthouse{}."):
        records = [line.format(n, " x" * (n % 3)) for n in range(10, 40)]
        assert joined(records) == records


def test_no_sign_of_the_tables_is_lost_unseen() -> None:
    """What is joined hangs on each: who changes one says so in the change log, and the digest here."""
    signs, patterns = "STOPS _TIGHT _BESIDE_TIGHT _HYPHENS _DASHES", "_NO_BLANK _WIDE _FIRST ITEM _PARTED _DASH _WORD"
    assert digest_of(line_wrapping, f"{signs} {patterns}") == "74d086fa"

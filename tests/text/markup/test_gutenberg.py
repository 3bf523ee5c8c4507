"""The frame of Project Gutenberg: its marks of all years are found, and what only looks like them is not."""

from __future__ import annotations

import pytest

from ordsmed.text.markup.gutenberg import frame

BOOK = "EMMA\n\nBY J. A.\n\n  The first line *** of the book.\nThe last."
STARTS = [
    "*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***\n\n",
    "***START OF THIS PROJECT GUTENBERG EBOOK A VERY\nLONG TITLE***\n\n\nProduced by A and\nB\n\n",
    "*** START OF THE PROJECT GUTENBERG EBOOK WITHOUT AN END\n\n",
    "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n[Transcribed from the 1890 edition]\n\n",
    "*** START OF THE PROJECT GUTENBERG EBOOK 1 ***\n*** START OF THE PROJECT GUTENBERG EBOOK 2 ***\n",
]
ENDS = [
    "*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***\nlicence",
    "End of the Project Gutenberg EBook of Emma\n\n*** END OF THIS PROJECT GUTENBERG EBOOK EMMA ***\nlicence",
    "  End of Project Gutenberg's Emma\n",
    "",
]


def book(text: str) -> str:
    lines = text.split("\n")
    start, stop = frame(lines)
    return "\n".join(lines[start:stop])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
def test_what_stands_around_a_book_is_found(start: str, end: str) -> None:
    text = f"The Project Gutenberg eBook of Emma\n\n{start}{BOOK}\n\n{end}"
    assert book(text).rstrip() == BOOK
    assert book(text.replace("\n", "\r\n")).rstrip() == BOOK.replace("\n", "\r\n")


def test_a_line_may_be_a_paragraph() -> None:
    paragraphs = ["Emma was"] * 12
    start = "*** START OF THE PROJECT GUTENBERG EBOOK EMMA"
    assert book("\n".join(["x", start, "Produced by A", *paragraphs])) == "\n".join(paragraphs)
    assert book(f"{start}\nOne.\n* * *\nTwo.") == "One.\n* * *\nTwo."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Produced by a poet.\n\nGutenberg printed.\n*** a row of stars ***\nThe end of Project Gutenberg is to give.",
        "End of Project Gutenberg, said the paper.",
        "x\n" * 1000 + STARTS[0] + "quoted",
    ],
)
def test_a_book_without_marks_stays(text: str) -> None:
    assert book(text) == text


def test_marks_around_nothing() -> None:
    assert book(f"x\n{STARTS[0]}{ENDS[0]}") == ""
    assert book(STARTS[0]) == ""

"""Books: wrapped lines become paragraphs, verse stays verse, a frame is cut off, and broken books are named."""

from __future__ import annotations

import bz2
import gzip
import textwrap
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.corpus.corpora import books
from ordsmed.text import read
from ordsmed.text.document import Document

PROSE = [
    "The heron stood by the mill until the last of the boats had gone home, and nobody asked it why; for my uncle, "
    "who knew the river better than most, had said long ago that a heron gives no answers before the rain.",
    '"Then we shall wait," said Ida. She had brought bread, a lamp and the copper kettle, and she put them down one '
    "after another on the wall as if each of them had been asked to sit in its own well-known place for the night.",
    "It rained.",
]
VERSE = [
    "The kettle sings, the lamp burns low,",
    "The river turns its stones;",
    "What herons know I do not know,",
    "Nor what the miller owns.",
] * 3
FRAME = """The Project Gutenberg eBook of Herons

*** START OF THE PROJECT GUTENBERG EBOOK HERONS, AND OTHER BIRDS
OF THE RIVER ***

Produced by volunteers
of some kind

%s
End of Project Gutenberg's Herons

*** END OF THE PROJECT GUTENBERG EBOOK HERONS ***
Licence.
"""


def wrapped(paragraphs: list[str], width: int = 70, **how: Any) -> str:
    return "\n\n".join(textwrap.fill(p, width, break_on_hyphens=True, **how) for p in paragraphs) + "\n"


def documents(path: Path, text: str | bytes | None = None, **settings: Any) -> list[Document]:
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(books.Books(str(path), **settings).documents())


def lines(path: Path, text: str | bytes, **settings: Any) -> list[str]:
    (found,) = documents(path, text, **settings)
    return found.text.split("\n")


def epub(path: Path, *chapters: str) -> Path:
    numbers = range(len(chapters))
    items = "".join(f'<item id="c{n}" href="{n}.xhtml"/>' for n in numbers)
    spine = "".join(f'<itemref idref="c{n}"/>' for n in numbers)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/container.xml", '<c><rootfile full-path="b.opf"/></c>')
        archive.writestr("b.opf", f"<p><m><title>Herons</title><creator>I. Dale</creator></m>{items}{spine}</p>")
        for n, chapter in enumerate(chapters):
            archive.writestr(f"{n}.xhtml", f"<html><body>{chapter}</body></html>")
    return path


@pytest.mark.parametrize("width", [55, 70, 78])
@pytest.mark.parametrize("how", [{}, {"initial_indent": "    "}, {"initial_indent": "  ", "subsequent_indent": "  "}])
def test_wrapped_lines_become_paragraphs(tmp_path: Path, width: int, how: dict[str, str]) -> None:
    assert lines(tmp_path / "a.txt", wrapped(PROSE * 3, width, **how)) == PROSE * 3


def test_paragraphs_told_by_indents_or_short_lines_alone(tmp_path: Path) -> None:
    indented = wrapped(PROSE * 3, initial_indent="   ").replace("\n\n", "\n")
    assert lines(tmp_path / "a.txt", indented) == PROSE * 3
    closed = [PROSE[0], PROSE[1] + " And so on.", "It rained."]
    assert lines(tmp_path / "a.txt", wrapped(closed * 3, 66).replace("\n\n", "\n")) == closed * 3


def test_verse_and_lists_stay(tmp_path: Path) -> None:
    for kept in (
        VERSE,
        [line.lower() for line in VERSE],
        [f"{n}. a thing of no great length" + " or" * (n % 5) for n in range(20)],
    ):
        assert lines(tmp_path / "a.txt", "\n".join(kept)) == kept
    blank_verse = [
        "The heron stands where yesterday it stood,",
        "And yesterday is gone along the stream;",
        "My uncle would have told us, if he could,",
        "Of what the waters under winter dream,",
        "But he is old, and winters are but few,",
        "The mill is quiet, and the boats are dry,",
        "And what he knew of herons no one knew,",
        "Nor will there be another by and by.",
    ]
    assert lines(tmp_path / "a.txt", "\n".join(blank_verse * 4)) == blank_verse * 4
    novel = wrapped(PROSE * 3) + "\n" + "\n".join(VERSE) + "\n\nCHAPTER TWO\nIn which it rains\n\n" + wrapped(PROSE)
    assert lines(tmp_path / "a.txt", novel) == [*PROSE * 3, *VERSE, "CHAPTER TWO", "In which it rains", *PROSE]


def test_a_paragraph_a_line_stays(tmp_path: Path) -> None:
    assert lines(tmp_path / "a.txt", "\n".join(PROSE * 3)) == PROSE * 3


def test_unwrapping_can_be_ordered(tmp_path: Path) -> None:
    assert lines(tmp_path / "a.txt", "a\nb-\nc\nword--\nword\n\nd", unwrap="always") == ["a b-c word--word", "d"]
    text = wrapped(PROSE)
    assert lines(tmp_path / "a.txt", text, unwrap="never") == [line for line in text.split("\n") if line]


def test_what_project_gutenberg_put_around_is_cut_off(tmp_path: Path) -> None:
    text = FRAME % wrapped(PROSE * 3)
    assert lines(tmp_path / "a.txt", text) == PROSE * 3
    assert lines(tmp_path / "a.txt", text.replace("\n", "\r\n")) == PROSE * 3
    old = "Welcome\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n" + wrapped(PROSE * 3)
    assert lines(tmp_path / "a.txt", old + "\nEnd of the Project Gutenberg Etext of Herons\n") == PROSE * 3
    html = "".join(f"<p>{p}</p>" for p in ("About", "*** START OF THE PROJECT GUTENBERG EBOOK HERONS ***", "Text."))
    path = epub(
        tmp_path / "a.epub",
        "<p>Before</p>",
        html,
        "<p>More.</p><p>*** END OF THE PROJECT GUTENBERG EBOOK</p><p>Licence</p>",
    )
    assert [d.text for d in documents(path, cut="chapter")] == ["Text.", "More."]


def test_epubs_tell_chapters_and_names(tmp_path: Path) -> None:
    path = epub(tmp_path / "a.epub", "<h1>I</h1><p>One.</p>", "<h1>II</h1><p>Two.</p><p>Three.</p>")
    meta = {"title": "Herons", "author": "I. Dale"}
    with read.tallied() as tally:
        assert documents(path) == [Document("I\nOne.\nII\nTwo.\nThree.", id=str(path), meta=meta)]
    assert tally.bytes == path.stat().st_size
    one, two = documents(path, cut="chapter", headings=False)
    assert (one, two.text, two.id) == (Document("One.", id=f"{path}:1", meta=meta), "Two.\nThree.", f"{path}:2")


def test_a_folder_holds_more_than_books(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "b.TXT").write_text("plain")
    (tmp_path / "c.txt").write_text(" \n\n")
    (tmp_path / "cover.jpg").write_bytes(b"\xff\xd8")
    epub(tmp_path / "d.epub", "<p>epub</p>")
    with read.tallied() as tally:
        assert [d.text for d in documents(tmp_path)] == ["packed", "plain", "epub"]
    assert tally.left_out == {"files that are no books": 1, "empty books": 1}
    assert tally.bytes == books.Books(str(tmp_path)).size()


def test_long_books_are_cut_at_paragraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    assert lines(path, "word " * 800_000) == [("word " * 800_000).strip()]
    monkeypatch.setattr(books, "LONGEST", 100)
    with read.tallied() as tally:
        found = documents(path, "a line of words\n\n" * 20 + "word " * 30)
    assert all(len(d.text) <= 100 for d in found)
    assert " ".join(" ".join(d.text for d in found).split()) == ("a line of words " * 20 + "word " * 30).strip()
    assert tally.cut == len(found) - 1
    assert [d.id for d in found][:2] == [f"{path}:1", f"{path}:2"]
    monkeypatch.setattr(books, "LARGEST", 100)
    with pytest.raises(DataError, match=r'a.txt: more than 100 bytes of text; wanted a book; read it as kind = "text"'):
        documents(path)


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    old = "“Blå”".encode("windows-1252")
    with pytest.raises(
        DataError, match=r"a.txt: byte 0: invalid UTF-8 \(0x93: invalid start byte\); wanted text in utf-8"
    ):
        documents(path, old)
    (found,) = documents(path, fallback="windows-1252")
    assert (found.text, found.meta) == ("“Blå”", {"encoding": "windows-1252"})
    (found,) = documents(path, b"\xef\xbb\xbf\xc3\xb8\x00", fallback="windows-1252")
    assert (found.text, found.meta) == ("ø\x00", {})
    assert lines(path, "ø\r\n".encode("utf-16")) == ["ø"]
    with read.tallied() as tally:
        assert lines(path, b"a\xffb\x81", errors="replace", fallback="windows-1252") == ["a\ufffdb\ufffd"]
    assert tally.replaced == 2
    with pytest.raises(ValueError, match="fallback: found 'klingon'; wanted an encoding"):
        books.Books("x", fallback="klingon")


def test_broken_books_stop_or_are_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    (tmp_path / "b.epub").write_bytes(b"no zip")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"words " * 99)[:-9])
    (tmp_path / "d.txt").write_text("whole")
    for path in sorted(tmp_path.iterdir())[:3]:
        with pytest.raises(DataError) as caught:
            documents(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    with read.tallied() as tally:
        assert [d.text for d in documents(tmp_path, broken="skip")] == ["whole"]
    assert tally.left_out == {"broken books": 3}
    named = [line.removeprefix("left out: ").split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert named == [str(tmp_path / name) for name in ("a.txt", "b.epub", "c.txt.gz")]
    assert tally.bytes <= books.Books(str(tmp_path)).size()


def test_encrypted_books_are_left_out_and_counted(tmp_path: Path) -> None:
    locked = '<e><CipherReference URI="0.xhtml"/></e>'
    with zipfile.ZipFile(epub(tmp_path / "a.epub", "<p>x</p>"), "a") as archive:
        archive.writestr("META-INF/encryption.xml", locked)
    with read.tallied() as tally:
        assert documents(tmp_path / "a.epub") == []
    assert tally.left_out == {"encrypted books": 1}


@pytest.mark.parametrize("width", [60, 72])
def test_real_novels_come_back_from_wrapping(shared_data: Path, tmp_path: Path, width: int) -> None:
    path = shared_data / "corpus/english-novels-100.txt.xz"
    chapters = [text.split("\n") for text in "".join(islice(read.texts(path), 8)).split("\n\n")[:-1:12]]
    right = total = 0
    for number, chapter in enumerate(chapters):
        chapter = [" ".join(p.split()) for p in chapter if p.strip()]
        text = "\n\n".join(textwrap.fill(p, width, break_on_hyphens=False, break_long_words=False) for p in chapter)
        found = lines(tmp_path / f"{number}.txt", text)
        right += len(set(chapter) & set(found))
        total += len(set(chapter))
    assert total > 500
    assert right > 0.99 * total


def test_a_book_in_utf16_without_a_mark(tmp_path: Path) -> None:
    text = "Ærlig talt, sa Åse, dette er en bok på øya.\n\nHun lo."
    for encoding in ("utf-16-le", "utf-16-be"):
        path = tmp_path / f"{encoding}.txt"
        path.write_bytes(text.encode(encoding))
        (document,) = books.Books(path=str(path)).documents()
        assert (document.text, document.meta) == (text.replace("\n\n", "\n"), {"encoding": encoding})


@pytest.mark.parametrize("over", [0, 1])
def test_a_book_of_eight_million_characters_is_one_document(over: int) -> None:
    """With its line ends; what is longer is cut between paragraphs, and a paragraph at a blank or anywhere."""
    paragraphs = ["x" * ((1 << 20) - 1)] * 7 + ["y" * ((1 << 20) + over)]
    with read.tallied() as tally:
        found = list(books._bounded(paragraphs))
    assert [len(text) for text in found] == ([8 << 20] if not over else [(7 << 20) - 1, (1 << 20) + 1])
    assert tally.cut == over


def test_a_long_paragraph_is_cut_at_the_last_blank_of_its_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "LONGEST", 10)
    assert list(books._bounded(["ab cd efg hijklm"])) == ["ab cd efg ", "hijklm"]
    assert list(books._bounded(["abcd efghijklmno"])) == ["abcd efghi", "jklmno"]
    assert list(books._bounded(["abcde fghijklmno"])) == ["abcde ", "fghijklmno"]
    assert list(books._bounded(["abcdefghij", "k", "lm"])) == ["abcdefghij", "k\nlm"]
    assert list(books._bounded([])) == []


def test_a_book_as_large_as_may_be_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "LARGEST", 10)
    assert lines(tmp_path / "a.txt", "abcdefghij") == ["abcdefghij"]
    with pytest.raises(DataError, match="more than 10 bytes of text"):
        lines(tmp_path / "a.txt", "abcdefghijk")


@pytest.mark.parametrize(
    "name", ["a.text", "a.TXT.utf-8", "a.txt.utf8", "a.txt.bz2", "a.txt.html", "a.txt.zip", "atxt", "a.epub.txt"]
)
def test_which_names_are_books(tmp_path: Path, name: str) -> None:
    data = bz2.compress(b"words") if name.endswith("bz2") else b"words"
    found = [d.text for d in documents(tmp_path / name, data)]
    assert found == ([] if name in ("a.txt.html", "a.txt.zip", "atxt") else ["words"])


def test_every_chapter_of_a_book_has_its_number_and_what_is_known_of_the_book(tmp_path: Path) -> None:
    path = epub(tmp_path / "a.EPUB", "<p>One.</p>", "<p> </p>", "<p>Two.</p>")
    one, two = documents(path, cut="chapter")
    assert (one.id, two.id) == (f"{path}:1", f"{path}:2")
    assert one.meta == two.meta == {"title": "Herons", "author": "I. Dale"}
    one.meta["title"] = "Another"
    assert two.meta["title"] == "Herons"
    (whole,) = documents(path)
    assert (whole.text, whole.id) == ("One.\nTwo.", str(path))

"""PDF files: lines become paragraphs, heads and page numbers go, and a file that would never end is left out."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ordsmed.base.errors import DataError, RunError
from ordsmed.text import read
from ordsmed.text.markup import page_lines, pdf, zip_archive
from ordsmed.text.markup.page_lines import PageLine, paragraphs

pytest.importorskip("pypdf")
BODY = ["The mill stood where the river turns, and", "nobody in the village had seen such water", "before the winter."]
OTHER = ["When it came, the ice was so high that the", "wheel broke in the first night, and all of", "them went home."]


def page(*lines: str, top: float = 700, size: float = 10, x: float = 50) -> list[PageLine]:
    return [PageLine(line, x, top - 12 * number, size) for number, line in enumerate(lines)]


def test_lines_become_paragraphs() -> None:
    again = page(*BODY, top=650)
    assert paragraphs([page(*BODY), []]) == [" ".join(BODY)]
    assert paragraphs([page(*BODY) + again]) == [" ".join(BODY)] * 2
    assert paragraphs([page(*BODY, *OTHER)]) == [" ".join(BODY), " ".join(OTHER)]  # by the short line
    assert paragraphs([page(*BODY[:2], "before the winter of that year.", *OTHER)])[1] == " ".join(OTHER)
    assert paragraphs([page("The mill", *BODY)]) == ["The mill", " ".join(BODY)]  # a heading
    large = page("A heading that is nearly as long as a line", size=12, top=712)
    assert paragraphs([large + page(*BODY)]) == [large[0].text, " ".join(BODY)]  # by its size
    assert paragraphs([page(*BODY[:2]) + page(*BODY[:2], top=668)]) == [" ".join(BODY[:2])] * 2  # by the gap
    heading = page("The mill", size=14, top=730)
    assert paragraphs([heading + page(*BODY)]) == ["The mill", " ".join(BODY)]
    indented = [*page(*BODY[:2], "before the winter came to the old valley."), *page(BODY[0], top=664, x=60)]
    assert paragraphs([[*indented, *page(*BODY[1:], top=652)]])[1] == " ".join(BODY)
    assert paragraphs([page("- one of the things that were in the house", "- two")]) == [
        "- one of the things that were in the house",
        "- two",
    ]


@pytest.mark.parametrize(
    ("line", "after", "gap", "ends"),
    [
        ("x" * 99 + ".", "Next", 1.0, False),
        ("x" * 74 + ".", "Next", 1.0, False),
        ("x" * 73 + ".", "Next", 1.0, True),  # short, and a sentence ends
        ("x" * 60, "Next", 1.0, False),
        ("x" * 59, "Next", 1.0, True),  # very short
        ("x" * 59, "next", 1.0, False),
        ("x" * 59, "\u201cnext", 1.0, False),
        ("x" * 100, "Next", page_lines.GAP, False),
        ("x" * 100, "next", page_lines.GAP + 0.01, True),
        ("x" * 99 + ".", "Next", 0.0, True),  # on top of a page
        ("x" * 99 + ".", "next", 0.0, False),
        ("x" * 20, "Next", -0.1, False),
        ("x" * 20 + "-", "Next", 1.0, False),
        ("x" * 20 + "-", "Next", 1.5, True),
        ("x" * 99 + ".", "- next", 1.0, True),
        ("x" * 74, "- next", 1.0, True),
        ("x" * 75, "- next", 1.0, False),
        ("- " + "x" * 90, "- next", 1.0, True),
    ],
)
def test_where_a_paragraph_ends(line: str, after: str, gap: float, ends: bool) -> None:
    """At the limits of each rule; a full line has 100 characters."""
    assert page_lines._ends(PageLine(line, 50, 700, 10), PageLine(after, 50, 688, 10), gap, 100) == ends


@pytest.mark.parametrize(
    ("stop", "x", "size", "ends"),
    [
        (".", 57, 10, False),
        (".", 57.1, 10, True),
        ("x", 57.1, 10, False),
        ("x", 50, 10.8, False),
        ("x", 50, 10.9, True),
    ],
)
def test_an_indent_and_another_size_end_a_paragraph(stop: str, x: float, size: float, ends: bool) -> None:
    first, after = PageLine("x" * 99 + stop, 50, 700, 10), PageLine("Next", x, 688, size)
    assert page_lines._ends(first, after, 1.0, 100) == ends
    assert page_lines._ends(after, first, 1.0, 4) == (size == 10.9)


@pytest.mark.parametrize(("count", "pages", "left"), [(1, 3, 1), (2, 3, 2), (3, 3, 0), (3, 9, 0), (2, 2, 0), (1, 1, 1)])
def test_lines_at_the_edge_of_three_pages_are_running_heads(count: int, pages: int, left: int) -> None:
    """Of all pages where there are two; the third line of a page is none."""
    inner = [[f"a{n}", f"b{n}", "THE MILL", *(f"{letter}{n}" for letter in "cde")] for n in range(20, 20 + pages)]
    made = [page("TOP 3" if n < count else f"{'xyzuvwabc'[n]} top", *lines) for n, lines in enumerate(inner)]
    found = [[line.text for line in lines] for lines in page_lines.without_heads(made)]
    assert sum("TOP 3" in lines for lines in found) == left
    assert sum("THE MILL" in lines for lines in found) == pages


def test_a_paragraph_goes_on_over_pages_and_columns() -> None:
    assert paragraphs([page(*BODY[:2]), page(BODY[2])]) == [" ".join(BODY)]
    assert paragraphs([page(*BODY[:2]) + page(BODY[2], x=300)]) == [" ".join(BODY)]
    assert paragraphs([page(*BODY), page(*OTHER)]) == [" ".join(BODY), " ".join(OTHER)]


def test_heads_and_page_numbers_are_dropped() -> None:
    texts = [BODY, OTHER, [f"{line} too." for line in BODY], [f"{line} so." for line in OTHER], ["Without a head."]]
    pages = [page(f"THE MILL {n}", top=780) * (n < 13) + page(*text, top=740) for n, text in enumerate(texts, 9)]
    pages = [lines + page(f"- {n} -", top=60) for n, lines in enumerate(pages, 9)]
    assert paragraphs(pages) == [" ".join(text) for text in texts]
    assert paragraphs([page("1984", *BODY, "xiv")]) == [" ".join(BODY)]
    assert paragraphs([page(*BODY, "1984", *BODY)])[1].startswith("1984")  # inside a page a number is text


def test_tables_of_contents_are_dropped() -> None:
    contents = page("1 The mill . . . . . . . . 3", "2 The winter......... xiv", "Wait . . . he said", top=500)
    assert paragraphs([page(*BODY), contents]) == [" ".join(BODY), "Wait . . . he said"]


@pytest.mark.parametrize(
    ("before", "after", "text", "wanted"),
    [
        ("a parted li-", "brary stood", "", "a parted library stood"),
        ("it is well-", "known here", "well-known", "it is well-known here"),
        ("a gun-", "smoke cloud", "the smoke of a gun", "a gun-smoke cloud"),
        ("the year-", "Book", "", "the year-Book"),
        ("soft\u00ad", "ened", "", "softened"),
        ("two", "words", "", "two words"),
    ],
)
def test_parted_words(before: str, after: str, text: str, wanted: str) -> None:
    assert paragraphs([page(f"{text} and that is all that there is to say of", before, after)])[0].endswith(wanted)


def written(path: Path, pages: list[str], more: dict[int, str] | None = None) -> Path:
    """A PDF of pages with these drawing operations; `more`: objects to add or replace."""
    kids = " ".join(f"{10 + 2 * n} 0 R" for n in range(len(pages)))
    objects = {
        1: "<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        4: "<< /Title (The \\(old\\) mill) >>",
    }
    for n, operations in enumerate(pages):
        resources = "/Resources << /Font << /F 3 0 R >> /XObject << /X 90 0 R >> >>"
        objects[10 + 2 * n] = f"<< /Type /Page /Parent 2 0 R {resources} /Contents {11 + 2 * n} 0 R >>"
        objects[11 + 2 * n] = f"<< /Length {len(operations)} >>\nstream\n{operations}\nendstream"
    text, places = "%PDF-1.4\n", {0: 0}
    for n, body in (objects | (more or {})).items():
        places[n] = len(text)
        text += f"{n} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{n} 1\n{at:010} {'00000 n' if n else '65535 f'} \n" for n, at in places.items())
    end = f"xref\n{table}trailer << /Size 99 /Root 1 0 R /Info 4 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"
    path.write_bytes((text + end).encode("latin-1"))
    return path


def drawn(*lines: str, top: int = 700) -> str:
    shown = "".join(f"1 0 0 1 50 {top - 12 * n} Tm ({line}) Tj\n" for n, line in enumerate(lines))
    return f"BT /F 10 Tf\n{shown}ET"


def test_a_pdf_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pdf", [drawn(*BODY), drawn(*OTHER), ""])
    with read.tallied() as tally:
        assert pdf.text_of(path) == ({"title": "The (old) mill"}, [" ".join(BODY), " ".join(OTHER)])
    assert tally.left_out["pages without text"] == 1


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        pdf.text_of(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


def test_scans_and_damaged_files_are_named_with_the_reason(tmp_path: Path) -> None:
    assert "holds no text: 2 pages are pictures" in refused(written(tmp_path / "scan.pdf", ["", drawn("7")]))
    (tmp_path / "empty.pdf").write_bytes(b"")
    (tmp_path / "noise.pdf").write_bytes(random.Random(0).randbytes(3_000))
    whole = written(tmp_path / "a.pdf", [drawn(*BODY)]).read_bytes()
    (tmp_path / "cut.pdf").write_bytes(whole[:200])
    for name in ("empty", "noise", "cut"):
        assert "is damaged" in refused(tmp_path / f"{name}.pdf")
    with pytest.raises(DataError, match="no such file"):
        pdf.text_of(tmp_path / "none.pdf")


def test_an_encrypted_pdf_is_named(tmp_path: Path) -> None:
    import pypdf

    writer = pypdf.PdfWriter(written(tmp_path / "a.pdf", [drawn(*BODY)]))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    with pytest.raises(zip_archive.Encrypted, match="is encrypted; wanted a PDF with text; save it again"):
        pdf.text_of(tmp_path / "locked.pdf")
    writer = pypdf.PdfWriter(tmp_path / "a.pdf")
    writer.encrypt("", owner_password="owner", algorithm="RC4-128")  # which forbids printing alone
    writer.write(tmp_path / "open.pdf")
    assert pdf.text_of(tmp_path / "open.pdf")[1] == [" ".join(BODY)]


def test_pages_and_forms_that_hold_themselves_end(tmp_path: Path) -> None:
    form = "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 90 0 R >> >> /Length 5 >>"
    looped = written(tmp_path / "a.pdf", [drawn(*BODY), "/X Do"], {90: f"{form}\nstream\n/X Do\nendstream"})
    assert pdf.text_of(looped)[1] == [" ".join(BODY)]
    again = written(tmp_path / "b.pdf", [drawn(*BODY)], {2: "<< /Type /Pages /Count 9 /Kids [2 0 R 10 0 R 10 0 R] >>"})
    assert "is damaged" in refused(again)


def test_what_takes_too_long_or_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.pdf", [drawn(*BODY * 4_000)])
    monkeypatch.setattr(pdf, "SECONDS", 1)
    monkeypatch.setattr(pdf, "SECONDS_OF_MB", 0)
    assert "takes more than 1 seconds" in refused(path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], -signal.SIGKILL))
    with pytest.raises(RunError, match="was killed; give it more memory"):  # no fault of the file: the corpus stops
        pdf.text_of(path)


def test_memory_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pdf", [drawn(*BODY)])
    code = f"from ordsmed.text.markup import pdf; pdf._content = lambda _: bytes(8 << 30); pdf.main({str(path)!r}, '9')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs more than 3 GB of memory" in told.stdout


def test_parts_of_a_word_at_the_end_of_a_line_are_no_words() -> None:
    lines = ["The well-known gun-", "smoke of a mill-", "stream runs.", "smoke"]
    assert page_lines._words(lines) == {"the", "well-known", "well", "known", "of", "a", "runs", "smoke"}
    assert page_lines._words(lines[:-1]) == {"the", "well-known", "well", "known", "of", "a", "runs"}

"""Word and OpenDocument files: paragraphs, tables and notes are text; deleted text, comments and contents are not."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base.errors import DataError
from ordsmed.text.markup import office, zip_archive

RELS = '<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>'
STYLES = '<w:styles xmlns:w="w"><w:style w:styleId="Innhold1"><w:name w:val="toc 1"/></w:style></w:styles>'
CORE = '<c xmlns:dc="dc"><dc:title> A  letter </dc:title><dc:creator>A. B.</dc:creator></c>'
NOTES = '<w:footnotes xmlns:w="w"><w:footnote><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>'


def docx(path: Path, body: str, **members: str) -> Path:
    return archive(
        path,
        {
            "_rels/.rels": RELS,
            "word/document.xml": f'<w:document xmlns:w="w" xmlns:mc="mc"><w:body>{body}</w:body></w:document>',
            "word/styles.xml": STYLES,
            "docProps/core.xml": CORE,
            **members,
        },
    )


def odt(path: Path, body: str, **members: str) -> Path:
    spaces = 'xmlns:office="o" xmlns:text="t" xmlns:table="tb" xmlns:draw="d" xmlns:svg="s" xmlns:dc="dc"'
    content = f"<office:document-content {spaces}><office:body>{body}</office:body></office:document-content>"
    return archive(path, {"content.xml": content, "meta.xml": CORE, **members})


def archive(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name, text)
    return path


def p(*runs: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{''.join(runs)}</w:p>"


def r(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def row(*cells: str) -> str:
    return f"<w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            p(r("One "), r("two"), "<w:r><w:tab/></w:r>", r("three.")) + p() + p(r("Four\xad teen.")),
            ["One two three.", "Four teen."],
        ),
        (p(r("a"), "<w:r><w:br/></w:r>", r("b"), "<w:r><w:noBreakHyphen/></w:r>", r("c")), ["a", "b-c"]),
        (
            p(r("kept "), "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>", f"<w:ins>{r('new')}</w:ins>"),
            ["kept new"],
        ),
        (p(f"<w:moveFrom>{r('from')}</w:moveFrom>", f"<w:moveTo>{r('to')}</w:moveTo>"), ["to"]),
        (p(r("begins "), properties="<w:rPr><w:del/></w:rPr>") + p(r("goes on")), ["begins goes on"]),
        (p(r("Chapter 1 ... 7"), properties='<w:pStyle w:val="Innhold1"/>') + p(r("Text.")), ["Text."]),
        (p("<w:r><w:instrText>PAGE</w:instrText></w:r>", r("field")), ["field"]),
        (f"<w:tbl>{row(p(r('a')), p(r('b')))}{row(p(), p())}</w:tbl>", ["a\tb"]),
        (f"<w:tbl>{row(p(r('Left.')) + p(r('More.')), p(r('Right.')))}</w:tbl>", ["Left.", "More.", "Right."]),
        (
            p(
                r("out"),
                f"<mc:AlternateContent><mc:Choice><w:txbxContent>{p(r('box'))}</w:txbxContent></mc:Choice>"
                f"<mc:Fallback>{p(r('box'))}</mc:Fallback></mc:AlternateContent>",
                r("side"),
            ),
            ["box", "outside"],
        ),
        (p("<w:drawing><w:posOffset>914400</w:posOffset></w:drawing>", r("x")), ["x"]),
    ],
)
def test_a_word_document(tmp_path: Path, body: str, wanted: list[str]) -> None:
    path = docx(tmp_path / "a.docx", body, **{"word/footnotes.xml": NOTES})
    assert office.paragraphs(path) == ({"title": "A letter", "author": "A. B."}, [*wanted, "A note."])


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            "<text:h>Head</text:h><text:p>One<text:s text:c='3'/>two <text:span>three</text:span>.</text:p>",
            ["Head", "One two three."],
        ),
        ("<text:p>a<text:line-break/>b<text:tab/>c</text:p>", ["a", "b c"]),
        (
            "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p></text:deletion>"
            "</text:changed-region></text:tracked-changes><text:p>kept</text:p>",
            ["kept"],
        ),
        (
            "<text:p>it<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>A note.</text:p>"
            "</text:note-body></text:note> was</text:p><text:p>So.</text:p>",
            ["it was", "So.", "A note."],
        ),
        (
            "<text:table-of-content><text:p>I 7</text:p></text:table-of-content><text:p>x<office:annotation><dc:date>1"
            "</dc:date><text:p>no</text:p></office:annotation></text:p>",
            ["x"],
        ),
        (
            "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell>"
            "<text:p>b</text:p></table:table-cell></table:table-row></table:table>",
            ["a\tb"],
        ),
        (
            "<text:p>a<draw:frame><draw:text-box><text:p>box</text:p></draw:text-box><svg:title>no</svg:title>"
            "</draw:frame></text:p>",
            ["box", "a"],
        ),
        ("<table:table-cell><text:p>alone</text:p></table:table-cell>", ["alone"]),
    ],
)
def test_an_open_document(tmp_path: Path, body: str, wanted: list[str]) -> None:
    assert office.paragraphs(odt(tmp_path / "a.odt", body)) == ({"title": "A letter", "author": "A. B."}, wanted)


def with_password(path: Path) -> Path:
    """Mark all members of an archive as encrypted."""
    data = bytearray(path.read_bytes())
    for header, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        at = data.find(header)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(header, at + 1)
    path.write_bytes(data)
    return path


def test_what_locks_or_explodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'
    locked = {"META-INF/manifest.xml": "<m><encryption-data/></m>"}
    (tmp_path / "old.docx").write_bytes(office.OLE + b"x" * 99)
    (tmp_path / "no.odt").write_bytes(b"no zip")
    for path, wrong in (
        (tmp_path / "old.docx", "is encrypted, or a .doc file"),
        (tmp_path / "no.odt", "is not a complete odt: File is not a zip file"),
        (archive(tmp_path / "a.docx", {"x": ""}), "has no `_rels/.rels`; wanted a docx"),
        (docx(tmp_path / "b.docx", "", **{"word/styles.xml": bomb}), "styles.xml: declares entities"),
        (docx(tmp_path / "c.docx", "<w:p>"), "document.xml: is broken: mismatched tag"),
        (odt(tmp_path / "d.odt", "", **locked), "is encrypted"),
        (with_password(docx(tmp_path / "e.docx", "")), "e.docx: is encrypted; wanted a docx without a password"),
        (tmp_path / "none.odt", "no such file"),
    ):
        with pytest.raises(DataError) as caught:
            office.paragraphs(path)
        assert wrong in str(caught.value)
        assert str(caught.value).startswith(str(path))
    large = odt(tmp_path / "large.odt", "<text:p>" + "x" * 20_000 + "</text:p>")
    monkeypatch.setattr(zip_archive, "LARGEST", 10_000)
    with pytest.raises(DataError, match="unpacks to 20,"):
        office.paragraphs(large)


@given(st.data())
def test_damaged_files_are_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = data.draw(st.sampled_from([docx(folder / "a.docx", p(r("x"))), odt(folder / "a.odt", "<text:p>x</text:p>")]))
    whole = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    with contextlib.suppress(DataError):  # anything else is a failure
        office.paragraphs(path)

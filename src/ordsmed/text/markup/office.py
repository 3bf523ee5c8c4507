"""Read Word (.docx) and OpenDocument (.odt) files as paragraphs, with the standard library only.

    zip -> word/document.xml or content.xml -> paragraphs, one line per table row, notes at the end

Deleted text (tracked changes), comments, tables of contents, headers and footers are left out. The zip and its XML are
read within the limits of markup/zipped.py.
"""

from __future__ import annotations

import posixpath
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from ordsmed.text.markup import zip_archive

OLE = b"\xd0\xcf\x11\xe0"  # the first bytes of old .doc files and of encrypted .docx files
_CONTENTS = ("toc ", "table of figures", "index ")  # how the names of Word's styles of contents and indexes begin


@dataclass(frozen=True)
class _Names:
    paragraphs: frozenset[str]
    cell: str
    row: str
    spaces: frozenset[str]
    breaks: frozenset[str]
    dropped: frozenset[str]
    text: str = ""  # the only element that contains text; empty: all text inside a paragraph counts
    # dropped; in the properties of a paragraph it means that the paragraph's end is deleted
    deletions: frozenset[str] = frozenset()
    note: str = ""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


DOCX = _Names(
    paragraphs=_set("p"),
    cell="tc",
    row="tr",
    text="t",
    spaces=_set("tab ptab"),
    breaks=_set("br cr"),
    dropped=_set("Fallback rt"),
    deletions=_set("del moveFrom"),
)
ODT = _Names(
    paragraphs=_set("p h"),
    cell="table-cell",
    row="table-row",
    spaces=_set("s tab"),
    breaks=_set("line-break"),
    dropped=_set("""
        tracked-changes annotation note-citation table-of-content alphabetical-index illustration-index table-index
        object-index user-index ruby-text title desc forms scripts
    """),
    note="note-body",
)


@dataclass
class _Paragraph:
    pieces: list[str]
    dropped: bool = False
    continues: bool = False  # its end was deleted, so the next paragraph continues it


@dataclass
class _Reader:
    names: _Names
    contents: frozenset[str] = frozenset()  # styles of tables of contents
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._targets = [self.lines]  # stack of lists; the last one (document, cell or notes) gets finished paragraphs
        self._rows: list[list[list[str]]] = []
        self._open: list[_Paragraph] = []
        self._rest: list[str] = []  # the pieces of a paragraph whose end was deleted
        self._skipped = 0  # number of open elements that are skipped
        self._in_text = self._in_properties = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        names = self.names
        if self._skipped or tag in names.dropped or tag in names.deletions:
            self._skipped += 1
            if self._skipped == 1 and self._in_properties and tag in names.deletions and self._open:
                self._open[-1].continues = True
        elif tag in names.paragraphs:
            self._open.append(_Paragraph(self._rest))
            self._rest = []
        elif tag == names.cell:
            self._targets.append([])
        elif tag == names.row:
            self._rows.append([])
        elif tag == names.note:
            self._targets.append(self.notes)
        elif not self._in_properties and self._open and tag in (names.spaces | names.breaks | {"noBreakHyphen"}):
            self._open[-1].pieces.append("\n" if tag in names.breaks else "-" if tag == "noBreakHyphen" else " ")
        elif tag == "pStyle" and self._open:
            style = next((value for key, value in attributes.items() if key.rpartition(" ")[2] == "val"), "")
            self._open[-1].dropped = style in self.contents
        self._in_text = not self._skipped and (tag == names.text or not names.text)
        self._in_properties = self._in_properties or tag == "pPr"

    def text(self, text: str) -> None:
        if self._in_text and not self._skipped and self._open:
            self._open[-1].pieces.append(text)

    def end(self, tag: str) -> None:
        names = self.names
        if self._skipped:
            self._skipped -= 1
        elif tag in names.paragraphs:
            self._end_paragraph(self._open.pop())
        elif tag == names.cell:
            cell = self._targets.pop()
            if self._rows:
                self._rows[-1].append(cell)
            else:
                self._targets[-1] += cell
        elif tag == names.row:
            self._end_row(self._rows.pop())
        elif tag == names.note:
            self._targets.pop()
        self._in_text = not self._skipped and not names.text
        self._in_properties = self._in_properties and tag != "pPr"

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        if paragraph.continues:
            self._rest = paragraph.pieces
        elif not paragraph.dropped:
            lines = "".join(paragraph.pieces).replace("\xad", "").split("\n")
            self._targets[-1] += [line for raw in lines if (line := " ".join(raw.split()))]

    def _end_row(self, cells: list[list[str]]) -> None:
        """Add short cells as one line. A table with several paragraphs in a cell is layout: add them one by one."""
        if all(len(cell) <= 1 for cell in cells):
            cells = [["\t".join(line for cell in cells for line in cell)]] if any(cells) else []
        self._targets[-1] += [line for cell in cells for line in cell]


def paragraphs(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the title and author of a .docx or .odt file, if it names them, and its paragraphs."""
    _refuse_encrypted(path)
    with zip_archive.open_archive(path) as archive:
        return (_odt if path.suffix.lower() == ".odt" else _docx)(archive, path)


def _refuse_encrypted(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begins = file.read(len(OLE))
    except FileNotFoundError:
        return  # opening the archive reports it
    if begins == OLE:
        problem = "is encrypted, or a .doc file under another name"
        raise zip_archive.Encrypted(path, problem, "a file without a password", "save it again in Word or LibreOffice")


def _docx(archive: zipfile.ZipFile, path: Path) -> tuple[dict[str, str], list[str]]:
    relations = zip_archive.elements(archive, "_rels/.rels", path)
    targets = [a.get("Target", "") for _, a, _ in relations if a.get("Type", "").endswith("/officeDocument")]
    main = posixpath.normpath((targets or ["word/document.xml"])[0].lstrip("/"))
    part = lambda name: posixpath.join(posixpath.dirname(main), name)  # noqa: E731
    present = set(archive.namelist())
    reader = _Reader(DOCX, _styles_of_contents(archive, part("styles.xml"), path, present))
    for name in (main, *(part(note) for note in ("footnotes.xml", "endnotes.xml") if part(note) in present)):
        zip_archive.parse(archive, name, path, start=reader.start, end=reader.end, text=reader.text)
    return _meta(archive, "docProps/core.xml", path, present), reader.lines


def _styles_of_contents(archive: zipfile.ZipFile, name: str, path: Path, present: set[str]) -> frozenset[str]:
    """Return the ids of the styles of tables of contents. Their names are the same in every language."""
    style, contents = "", set[str]()
    for tag, attributes, _ in zip_archive.elements(archive, name, path) if name in present else ():
        plain = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if tag == "style":
            style = plain.get("styleId", "")
        elif tag == "name" and plain.get("val", "").lower().startswith(_CONTENTS):
            contents.add(style)
    return frozenset(contents)


def _odt(archive: zipfile.ZipFile, path: Path) -> tuple[dict[str, str], list[str]]:
    present = set(archive.namelist())
    manifest = "META-INF/manifest.xml"
    if manifest in present and any(t == "encryption-data" for t, _, _ in zip_archive.elements(archive, manifest, path)):
        raise zip_archive.Encrypted(path, "is encrypted", "a file without a password", "save it again without one")
    reader = _Reader(ODT)
    zip_archive.parse(archive, "content.xml", path, start=reader.start, end=reader.end, text=reader.text)
    return _meta(archive, "meta.xml", path, present), [*reader.lines, *reader.notes]


def _meta(archive: zipfile.ZipFile, name: str, path: Path, present: set[str]) -> dict[str, str]:
    keys = {"title": "title", "creator": "author"}
    elements = zip_archive.elements(archive, name, path) if name in present else ()
    return {keys[tag]: value for tag, _, text in elements if tag in keys and (value := " ".join(text.split()))}

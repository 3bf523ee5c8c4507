"""Read an EPUB as chapters of paragraphs, with the standard library only.

    zip -> META-INF/container.xml -> package: metadata, manifest, spine -> XHTML in the spine's order -> paragraphs

Tables of contents, covers, title pages, note marks, scripts and ruby readings are left out. The zip and its XML are
read within the limits of markup/zipped.py.
"""

import html
import posixpath
import re
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.text.markup import zip_archive


def _words(table: str) -> frozenset[str]:
    return frozenset(table.split())


_BLOCKS = _words("""
    address article aside blockquote body br caption center dd div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6
    header hr html li main ol p pre section table tbody td tfoot th thead tr ul
""")
_HEADINGS = _words("h1 h2 h3 h4 h5 h6")
_VOID = _words("area base br col embed hr img input link meta source track wbr")
_DROPPED = _words("audio head math nav object rp rt script style svg template title video")
# values of epub:type, of role (doc-...) and of EPUB 2's guide, without hyphens
_FRONT = _words("copyrightpage cover halftitlepage index landmarks loi lot pagelist titlepage toc")
_MARKS = _words("backlink noteref pagebreak")
# never matches beyond the next "<", so that the time is linear in the length; the page may end inside a tag
_TAG = re.compile(
    r"""<(/?)([A-Za-z][\w:.-]*+)((?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+|[^<>]*+)(?:>|\Z)|<[!?][^<>]*+(?:>|\Z)"""
)
_NOTE = re.compile(r"\s*(?:\[\s*(?:\d{1,4}|\*{1,3})\s*\]|\*{1,3}|(\d{1,4}))\s*")  # a mark, bare or in brackets
_TO_NOTE = re.compile(r"""href\s*=\s*["']#""")
_SUBSET = re.compile(r"\s*<\?xml[^<>]*+>\s*<!DOCTYPE[^<>\[]*+\[|\s*<!DOCTYPE[^<>\[]*+\[", re.IGNORECASE)
_ENTITY = re.compile(r"""<!ENTITY\s+(\w+)\s+(?:"((?:[^"<&]|&\#\w+;){0,40})"|'((?:[^'<&]|&\#\w+;){0,40})')\s*>""")
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


@dataclass
class Book:
    """The metadata of an EPUB (title, author, language, if given), and the paragraphs of its chapters."""

    meta: dict[str, str]
    chapters: list[list[str]]


def book(path: Path, errors: read.Errors = "strict", *, headings: bool = True) -> Book:
    """Read an EPUB. Documents of the spine that are missing are counted and left out."""
    with zip_archive.open_archive(path) as archive:
        package = _package(archive, path)
        chapters = [_chapter(archive, name, path, errors, headings) for name in _texts(archive, package, path)]
    return Book(package.meta, [chapter for chapter in chapters if chapter])


@dataclass
class _Package:
    meta: dict[str, str] = field(default_factory=dict)
    manifest: dict[str, str] = field(default_factory=dict)  # id -> name in the zip
    spine: list[str] = field(default_factory=list)  # ids
    front: set[str] = field(default_factory=set)  # names in the zip of tables of contents, covers, ...


def _package(archive: zipfile.ZipFile, path: Path) -> _Package:
    container = zip_archive.elements(archive, "META-INF/container.xml", path)
    root = next((a.get("full-path", "") for name, a, _ in container if name == "rootfile"), "")
    folder, package = posixpath.dirname(root), _Package()
    member_name = lambda href: posixpath.normpath(posixpath.join(folder, unquote(href.split("#")[0])))  # noqa: E731
    metadata: dict[str, list[str]] = {}
    for name, attributes, text in zip_archive.elements(archive, root, path):
        if name in ("title", "creator", "language") and text.strip():
            metadata.setdefault(name, []).append(" ".join(text.split()))
        elif name == "item":
            kind, location = attributes.get("media-type", ""), member_name(attributes.get("href", ""))
            if not kind.startswith(("image/", "audio/", "video/")):
                package.manifest[attributes.get("id", "")] = location
            if "nav" in attributes.get("properties", "").split():
                package.front.add(location)
        elif name == "itemref" and attributes.get("linear") != "no":
            package.spine.append(attributes.get("idref", ""))
        elif name == "reference" and attributes.get("type", "").replace("-", "") in _FRONT:
            package.front.add(member_name(attributes.get("href", "")))
    for key, name, limit in (("title", "title", 1), ("author", "creator", None), ("language", "language", 1)):
        if values := metadata.get(name, [])[:limit]:
            package.meta[key] = ", ".join(values)
    return package


def _texts(archive: zipfile.ZipFile, package: _Package, path: Path) -> list[str]:
    kinds = {info.filename: stat.S_IFMT(info.external_attr >> 16) for info in archive.infolist()}
    # a symbolic link contains a path, not text
    regular_files = {name for name, kind in kinds.items() if kind in (0, stat.S_IFREG)}
    locked = _locked(archive, path)
    wanted = dict.fromkeys(package.manifest.get(name, "") for name in package.spine)
    names = [name for name in wanted if name in regular_files and name not in package.front]
    if any(name in locked or archive.getinfo(name).flag_bits & zip_archive.LOCKED for name in names):
        raise zip_archive.Encrypted(path, "is encrypted", "a book without copy protection")
    if missing := [name for name in wanted if name not in regular_files and name in package.manifest.values()]:
        read.tally().left_out["missing chapters"] += len(missing)
    if not names:
        raise DataError(path, "no chapters: its spine names none that it contains", "an epub with text")
    if (size := sum(archive.getinfo(name).file_size for name in names)) > zip_archive.LARGEST:
        raise DataError(path, f"unpacks to {size:,} bytes of text", f"{zip_archive.LARGEST:,} at most", "leave it out")
    return names


def _locked(archive: zipfile.ZipFile, path: Path) -> set[str]:
    name = "META-INF/encryption.xml"
    if name not in archive.namelist():
        return set()
    return {
        unquote(a.get("URI", ""))
        for element, a, _ in zip_archive.elements(archive, name, path)
        if element == "CipherReference"
    }


def _chapter(archive: zipfile.ZipFile, name: str, path: Path, errors: read.Errors, headings: bool) -> list[str]:
    data, location = archive.read(name), f"{path}:{name}"
    declared = re.search(rb"""encoding\s*=\s*["']([\w.-]+)""", data[:200])
    utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if utf16 else declared[1].decode().lower() if declared else "utf-8"
    try:
        text, _ = read.decoded(data, [encoding], errors, location)
    except LookupError:
        raise DataError(location, f"is in `{encoding}`", "a known encoding", "convert it to UTF-8") from None
    return paragraphs(text, headings=headings)


def paragraphs(markup: str, *, headings: bool = True) -> list[str]:
    """Return the paragraphs of an HTML page, or none if most of its text is links, as in a table of contents.

    Tags are found by a pattern because `html.parser` takes hours for a page that is broken on purpose.
    """
    first, *commented = markup.split("<!--")
    markup = first + "".join(part.partition("-->")[2] for part in commented)
    markup = _without_declarations(markup)
    page, at = _Page(headings), 0
    for tag in _TAG.finditer(markup):
        page.text(markup[at : tag.start()])
        at = tag.end()
        if tag[1]:
            page.end(tag[2].lower())
        elif tag[2]:
            page.start(tag[2].lower(), tag[3])
            if tag[3].endswith("/"):
                page.end(tag[2].lower())
    page.text(markup[at:])
    page.end_paragraph()
    return page.paragraphs if page.linked * 2 <= sum(map(len, page.paragraphs)) else []


def _without_declarations(markup: str) -> str:
    """Return the page without the declarations of its DOCTYPE. Short entities that it declares are expanded."""
    subset = _SUBSET.match(markup)
    end = re.compile(r"\]\s*+>").search(markup, subset.end()) if subset else None
    if subset is None or end is None:
        return markup
    declared = {name: a or b for name, a, b in _ENTITY.findall(markup, subset.end(), end.start())}
    return re.sub(r"&(\w{1,40});", lambda named: declared.get(named[1], named[0]), markup[end.end() :])


class _Page:
    def __init__(self, headings: bool) -> None:
        self.headings = headings
        self.paragraphs: list[str] = []
        self.linked = 0  # characters inside links
        self._pieces: list[str] = []
        self._dropped, self._depth = "", 0  # the element that is left out, and how many elements of its name are open
        self._in_link = self._in_pre = False
        self._note = -1  # index in `_pieces` at which a possible note mark begins, or -1
        self._raised = False  # whether the possible note mark is superscript

    def start(self, tag: str, attributes: str) -> None:
        if tag == "body":
            self._depth = 0  # the end tag of <head> may be missing
        if self._depth:
            self._depth += tag == self._dropped
        elif self._drops(tag, attributes):
            self._dropped, self._depth = tag, int(tag not in _VOID)
        elif tag == "html":
            self._pieces.clear()  # remains of a DOCTYPE with declarations
        elif tag in _BLOCKS:
            self.end_paragraph()
        if tag == "a" and "href" in attributes:
            self._in_link, self._raised = True, False
            self._note = len(self._pieces) if _TO_NOTE.search(attributes) else -1
        self._raised = self._raised or tag == "sup"
        self._in_pre = self._in_pre or tag == "pre"

    def end(self, tag: str) -> None:
        if self._depth:
            # the end tag of <rt> may be missing
            self._depth = 0 if tag == "ruby" else self._depth - (tag == self._dropped)
        elif tag in _BLOCKS:
            self.end_paragraph()
        if tag == "a" and self._in_link:
            self._drop_note()
            self._in_link = False
        self._in_pre = self._in_pre and tag != "pre"

    def text(self, raw: str) -> None:
        if self._depth or not raw:
            return
        text = html.unescape(raw)
        if self._in_link:
            self.linked += len(text.strip())
        first, *rest = text.split("\n") if self._in_pre else [text]
        self._pieces.append(first)
        for line in rest:
            self.end_paragraph()
            self._pieces.append(line)

    def end_paragraph(self) -> None:
        """Add the collected pieces as a paragraph if they contain text. Soft hyphens are dropped."""
        if text := " ".join("".join(self._pieces).replace("\xad", "").split()):
            self.paragraphs.append(text)
        self._pieces.clear()
        self._note = -1

    def _drop_note(self) -> None:
        start, self._note = self._note, -1
        if start < 0 or not (mark := _NOTE.fullmatch("".join(self._pieces[start:]))):
            return
        after_space = start > 0 and self._pieces[start - 1][-1:].isspace()
        if not (mark[1] and after_space) or self._raised:
            del self._pieces[start:]
            self.linked -= len(mark[0].strip())

    def _drops(self, tag: str, attributes: str) -> bool:
        if tag in _DROPPED or (tag in _HEADINGS and not self.headings):
            return True
        values = (
            {name: double or single for name, double, single in _ATTRIBUTE.findall(attributes)} if attributes else {}
        )
        kinds = f"{values.get('epub:type', '')} {values.get('role', '').removeprefix('doc-')}".replace("-", "").split()
        return any(kind in _FRONT or kind in _MARKS for kind in kinds) or "pg-boilerplate" in values.get("class", "")

"""Read pages of a MediaWiki XML dump, or of WikiExtractor's output, in bounded memory.

    *-pages-articles.xml[.bz2|.gz|.xz|.zst]        -> DumpPage(text = wikitext), as expat reaches their ends
    *-multistream.xml.bz2 -> parts() -> pages()    -> the same pages, by several processes
    wiki_00 with <doc ...> or JSON lines           -> DumpPage(text = plain text)

A multistream file is split where a bzip2 stream begins with a page. Each part reads the header again, which names the
site and its namespaces.
"""

import bz2
import codecs
import lzma
import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from xml.parsers import expat

from ordsmed.base.errors import DataError
from ordsmed.text import read
from ordsmed.text.markup import wikitext
from ordsmed.text.source import Piece

Cut = Literal["refuse", "take"]
PART = 64 << 20  # packed bytes of a part, which one process reads
BITE = 1 << 16
LONGEST = 1 << 28  # characters of a line of WikiExtractor's output
WANTED = "a MediaWiki XML dump, or WikiExtractor's <doc> or JSON lines"


@dataclass
class DumpPage:
    """A page. `unshown` are the site's names for files and categories, or None if the text is plain already."""

    id: str = ""
    title: str = ""
    text: str = ""
    url: str = ""
    namespace: int = 0
    redirect: bool = False
    unshown: list[str] | None = None


def parts(path: Path, size: int = 0) -> list[Piece]:
    """Split a multistream .bz2 file into parts of about `size` packed bytes (0: `PART`). Any other file is one part."""
    size = size or PART
    if path.suffix.lower() != ".bz2" or path.stat().st_size <= size:
        return [Piece(path)]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as packed:
        edges = [0, *_edges(packed, size), None]
    return [Piece(path, start or 0, stop) for start, stop in pairwise(edges)]


def pages(
    piece: Piece, errors: read.Errors = "strict", cut: Cut = "refuse", densest: int = read.DENSEST
) -> Iterator[DumpPage]:
    """Yield the pages of a file or part, of all namespaces."""
    head = _head(piece.path)
    encoding = _encoding(head, piece.path)
    begin = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if begin.startswith("{"):
        return _records(piece.path, errors, densest)
    if begin.startswith("<doc "):
        return _docs(piece.path, errors, cut, densest)
    if not begin.startswith("<"):
        raise DataError(piece.path, "found no XML" if begin else "an empty file", WANTED, "name the dump itself")
    return _Reading(piece, errors, cut, encoding, densest).pages(begin)


# ---- where a multistream file can be split

_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_FIRST_PAGE = re.compile(rb"\s*<page>")


def _edges(packed: mmap.mmap, size: int) -> Iterator[int]:
    """Yield offsets of streams that begin with a page, at least `size` bytes apart; none if the second does not."""
    second = _STREAM.search(packed, 1, PART)
    if not second or not _begins_with_page(packed, second.start()):
        return
    last = 0
    while start := _STREAM.search(packed, last + size):
        if _begins_with_page(packed, start.start()):
            last = start.start()
            yield last
        else:  # not a stream, or the footer
            last = start.start() + 1 - size


def _begins_with_page(packed: mmap.mmap, start: int) -> bool:
    unpacker = bz2.BZ2Decompressor()
    try:
        for at in range(start, start + 2 * read.BLOCK, BITE):
            if unpacked := unpacker.decompress(packed[at : at + BITE], 256):
                return _FIRST_PAGE.match(unpacked) is not None
    except (OSError, EOFError):
        pass
    return False


# ---- bytes to characters

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_UNPACKERS: dict[str, Callable[[], Any]] = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_DECLARED = re.compile(rb"\s*<\?xml[^>]{1,100}?encoding\s*=\s*[\"']([\w.:-]{1,40})")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class _TrailingBytes(DataError):
    """A complete stream is followed by bytes that are not a stream."""


def _head(path: Path) -> bytes:
    """Return the first block without counting its bytes, or "<" if it is cut off, which the reader reports later."""
    with read.tallied():
        try:
            return next(_blocks(Piece(path), 0), b"")
        except EOFError:
            return b"<"


def _encoding(head: bytes, path: Path) -> str:
    name = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    if not name:
        declared = _DECLARED.match(head)
        name = declared[1].decode() if declared else "utf-8"
    try:
        codecs.getincrementaldecoder(name)()
    except LookupError:
        raise DataError(path, f"the unknown encoding `{name}`", "UTF-8 or UTF-16", "convert the file") from None
    return name


def _blocks(piece: Piece, densest: int = read.DENSEST) -> Iterator[bytes]:
    """Yield the unpacked bytes of a part. Raise EOFError if the packed data are cut off."""
    if unpacker := _UNPACKERS.get(piece.path.suffix.lower()):
        return _streams(piece, unpacker, densest)
    return _whole_file(piece.path, densest)


def _whole_file(path: Path, densest: int) -> Iterator[bytes]:
    try:
        yield from read.blocks(path, densest)
    except read.CutOff:
        raise EOFError from None


def _streams(piece: Piece, new: Callable[[], Any], densest: int) -> Iterator[bytes]:
    """Yield the unpacked streams from `start` to `stop`. Raise `_TrailingBytes` if other bytes follow."""
    unpacker, is_started, ended, location = new(), False, False, piece.start
    density = read.Density(piece.path, densest, location)
    try:
        for packed in _packed(piece):
            location += len(packed)
            while packed or (is_started and not unpacker.needs_input):
                block = unpacker.decompress(packed, read.BLOCK)
                packed, is_started = b"", True
                if block:
                    density.passed(len(block), location)
                    yield block
                if unpacker.eof:
                    packed, is_started, ended, unpacker = unpacker.unused_data, False, True, new()
    except FileNotFoundError:
        raise DataError(piece.path, "no such file") from None
    except (OSError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or f"damaged {piece.path.suffix} data before byte {location:,}"
        kind = _TrailingBytes if ended and not is_started else DataError
        raise kind(piece.path, f"cannot be read: {reason}", "", "copy it again") from None
    if is_started:
        raise EOFError


def _packed(piece: Piece) -> Iterator[bytes]:
    with piece.path.open("rb") as file:
        file.seek(piece.start)
        remaining = (piece.stop or piece.path.stat().st_size) - piece.start
        while packed := file.read(min(BITE, remaining)):
            remaining -= len(packed)
            read.tally().bytes += len(packed)
            yield packed


def _texts(piece: Piece, errors: read.Errors, encoding: str, densest: int) -> Iterator[str]:
    """Yield blocks of characters. A character cut by the end of a part is dropped: the part is cut off there."""
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    location = 0
    for block in _blocks(piece, densest):
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block)
        except UnicodeDecodeError as error:
            problem = f"byte {location - pending + error.start:,} (unpacked): invalid {encoding.upper()}"
            remedy = 'convert the file, or set errors = "replace"'
            raise DataError(piece.path, problem, f"text in {encoding.upper()}", remedy) from None
        location += len(block)
        if errors == "replace":
            text = _NOT_XML.sub("\ufffd", text)
            read.tally().replaced += text.count("\ufffd") - block.count("\ufffd".encode(encoding))
        yield text


# ---- XML to pages

_TEXTS = frozenset({"title", "ns", "id", "text", "base", "dbname", "namespace"})
_SAFE = "/:@!$()*,;~'"  # not escaped in addresses of pages
_UNSHOWN = (-2, 6, 14)  # media, files, categories


class _Reading:
    """Parser of one part: expat calls `_start` and `_end`, which add complete pages to `finished`."""

    def __init__(self, piece: Piece, errors: read.Errors, cut: Cut, encoding: str, densest: int) -> None:
        self.piece, self.errors, self.cut, self.encoding, self.densest = piece, errors, cut, encoding, densest
        self.site: dict[str, str] = {}  # base, dbname
        self.unshown: list[str] = []
        self.finished: list[DumpPage] = []
        self.whole, self.depth, self.ended, self.shown = 0, 0, False, True
        self.page: DumpPage | None = None
        self.pieces: list[str] = []
        self._begin()

    def pages(self, head: str) -> Iterator[DumpPage]:
        """Yield the pages, then raise the error if there is one."""
        if self.piece.start:
            self._site_of(head)
        try:
            for text in _texts(self.piece, self.errors, self.encoding, self.densest):
                error = self._feed(text)
                yield from self.finished
                self.finished.clear()
                if error:
                    raise error
            whole = self.ended if self.piece.stop is None else self.depth == 1
        except EOFError:
            whole = False
        except _TrailingBytes:
            if not self.ended or self.piece.stop:  # else the bytes are ignored, as bzip2 does
                raise
            whole = True
        if not whole and self.piece.stop:
            raise DataError(self.piece.path, f"is damaged at {self._place()}", "whole pages", "copy it again")
        if not whole:
            _cut_off(self.piece.path, self._place(), self.cut)

    def _begin(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.buffer_size = read.BLOCK
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _site_of(self, head: str) -> None:
        if (error := self._feed(head)) and not self.site:
            raise error
        self.finished, self.pieces, self.page, self.whole, self.depth = [], [], None, 0, 0
        self._begin()
        self._feed("<mediawiki>")

    def _feed(self, text: str) -> DataError | None:
        try:
            self.parser.Parse(text, False)
        except DataError as error:
            return error
        except (expat.ExpatError, ValueError) as error:
            control = _NOT_XML.search(text) if "token" in str(error) else None
            reason = f"the character {control[0]!r}, which XML forbids" if control else str(error).split(": line")[0]
            remedy = 'set errors = "replace"' if control else "copy it again, or fix it"
            return DataError(self.piece.path, f"{self._place()}: {reason}", WANTED, remedy)
        return None

    def _place(self) -> str:
        part = f" of the part from byte {self.piece.start:,}" if self.piece.start else ""
        return f"line {self.parser.CurrentLineNumber:,}{part}, after {self.whole:,} whole pages"

    def _refuse(self, *_: object) -> None:
        problem = f"line {self.parser.CurrentLineNumber:,}: a document type (<!DOCTYPE), as in XML bombs"
        raise DataError(self.piece.path, problem, WANTED, "remove it if you trust the file")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth == 1 and name != "mediawiki":
            raise DataError(self.piece.path, f"found XML that begins with <{name}>", WANTED, "name the dump itself")
        if name == "page":
            self.page = DumpPage(unshown=self.unshown)
        elif name == "redirect" and self.page:
            self.page.redirect = True
        elif name in _TEXTS:
            self.shown = _number(attributes.get("key", "0")) not in _UNSHOWN
            self.pieces.clear()
            self.parser.CharacterDataHandler = self.pieces.append

    def _end(self, name: str) -> None:
        self.depth -= 1
        if name in _TEXTS:
            self.parser.CharacterDataHandler = None
            self._set(name, "".join(self.pieces))
        elif name == "page" and self.page:
            self._name(self.page)
            self.finished.append(self.page)
            self.whole += 1
            self.page = None
        self.ended = not self.depth

    def _set(self, name: str, value: str) -> None:
        page = self.page
        if page is None:
            self.site.setdefault(name, value)
            if name == "namespace" and not self.shown and value.lower() not in wikitext.UNSHOWN:
                self.unshown.append(value.lower())
        elif name == "title":
            page.title = value
        elif name == "ns":
            page.namespace = _number(value)
        elif name == "text":  # the last of several revisions
            page.text = value
        elif name == "id" and not page.id:  # the ids of the revision and its author come later
            page.id = value

    def _name(self, page: DumpPage) -> None:
        base, _, home = self.site.get("base", "").rpartition("/")
        if base.startswith("http") and "?" not in home:
            page.url = f"{base}/{quote(page.title.replace(' ', '_'), safe=_SAFE)}"
        if name := self.site.get("dbname"):
            page.id = f"{name}:{page.id}"


def _number(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"the namespace {value[:40]!r} is not a number") from None


def _cut_off(path: Path, location: str, cut: Cut) -> None:
    if cut == "refuse":
        raise DataError(path, f"is cut off at {location}", "a whole file", 'copy it again, or set cut = "take"')
    read.tally().left_out["cut-off dumps"] += 1


# ---- WikiExtractor's output

_DOC = re.compile(r'<doc id="([^"]*)"(?: revid="[^"]*")?(?: url="([^"]*)")?(?: title="(.*)")?\s*>\s*\Z')


def _records(path: Path, errors: read.Errors, densest: int) -> Iterator[DumpPage]:
    import msgspec

    for number, line in enumerate(read.lines(path, errors, longest=LONGEST, densest=densest), 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line, type=dict[str, Any])
            yield _plain(*(str(record[key] or "") for key in ("id", "url", "title", "text")))
        except (msgspec.DecodeError, UnicodeEncodeError, KeyError, RecursionError) as error:
            reason = {KeyError: f"without {error}", RecursionError: "nested too deeply"}.get(type(error), error)
            problem, remedy = f"not a page as JSON: {reason}", "a corpus of kind `jsonl` reads other objects"
            raise DataError(f"{path}:{number}", problem, "an object with id, url, title and text", remedy) from None


def _docs(path: Path, errors: read.Errors, cut: Cut, densest: int) -> Iterator[DumpPage]:
    begin: re.Match[str] | None = None
    lines: list[str] = []
    number = 0
    for number, line in enumerate(read.lines(path, errors, longest=LONGEST, densest=densest), 1):
        if begin and line.strip() == "</doc>":
            yield _plain(begin[1], begin[2] or "", wikitext.decoded(begin[3] or ""), "\n".join(lines))
            begin, lines = None, []
        elif begin:
            lines.append(line)
        elif line.strip() and not (begin := _DOC.match(line)):
            raise DataError(f"{path}:{number}", "text outside of <doc ...> and </doc>", WANTED, "fix the file")
    if begin:
        _cut_off(path, f"line {number:,}, a <doc> without its </doc>", cut)


def _plain(name: str, url: str, title: str, text: str) -> DumpPage:
    """Return a page of WikiExtractor, which escapes <, > and &, and may put the title before the text."""
    lines = [line.strip() for line in wikitext.decoded(text).split("\n")]
    paragraphs = [line for line in lines if line]
    if paragraphs[:1] == [title]:
        del paragraphs[0]
    return DumpPage(name, title, "\n".join(paragraphs), url)

"""Web pages: downloaded from lists of addresses or Reddit's links, or read from local HTML and WARC files.

lists -> web/urls.py -> web/crawl.py -> pages in the order of the lists -> main text
files of HTML, WARC                    -> pages in the order of the files -> main text
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ordsmed.base import files
from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError
from ordsmed.base.keys import value_key
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece
from ordsmed.web import html, warc
from ordsmed.web.crawl import KINDS, Crawl, crawl
from ordsmed.web.pages import SLOT, bytes_laid_out, lay_out, pages_in_order
from ordsmed.web.urls import Rules, addresses, fault_of

HTML = re.compile(r"\.(?:x?html|htm)(?:\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE)
WARC = re.compile(r"\.(?:warc|wet)(?:\.gz)?$", re.IGNORECASE)
PIECE = 4096 * SLOT.itemsize  # bytes of a piece of an order file: 4,096 addresses


@dataclass(frozen=True)
class Web(Rules, Crawl, Choice):
    """The main text of web pages."""

    LICENCE: ClassVar[str] = "as each page's owner says"
    WORDS: ClassVar[int] = 0

    path: str | list[str] | None = None
    "local HTML and WARC files, folders of them or patterns; or set `urls`"
    urls: str | list[str] | None = None
    "lists of addresses or dumps of Reddit submissions to download; .gz, .bz2, .xz and .zst are unpacked"
    pages: str = "work/pages/web"
    "folder for downloaded pages; it is resumed, and can be shared by several corpora"
    download: bool = True
    "download pages that are missing in that folder; false: use only its pages"
    densest: int = read.DENSEST
    "maximum ratio of unpacked to packed size of a local file that unpacks to over 64 MB; 0: no limit"
    shortest: int = 200
    "minimum characters of a page's main text; shorter pages are left out"

    def __post_init__(self) -> None:
        Rules.__post_init__(self)
        Crawl.__post_init__(self)
        if bool(self.path) == bool(self.urls):
            problem = "both `path` and `urls`" if self.path else "neither `path` nor `urls`"
            raise ValueError(f"path: found {problem}; wanted one of them")
        at_least(self, shortest=0, densest=0)

    def prepare(self) -> None:
        """Download missing pages and record the position of each. One process does this before pieces are read."""
        if not self.urls:
            return
        if not self.download and not Path(self.pages).is_dir():
            raise DataError(self.pages, "no such folder", "a folder of downloaded pages", "set `download = true`")
        left_out = Counter[str]()
        with read.tallied():  # reading lists does not count as reading documents
            target_fault = fault_of(self, self.private)
            if self.download:
                total = sum(1 for _ in self._addresses(Counter()))
                counts = crawl(self._addresses(Counter()), Path(self.pages), self, total, target_fault)
                outcomes = ", ".join(f"{n:,} {outcome}" for outcome, n in counts.most_common())
                say(f"{self.pages}: {outcomes or 'no pages'}")
            missing = lay_out(self._addresses(left_out), Path(self.pages), self._order, target_fault)
        files.write_json(self._order.with_suffix(".json"), left_out + missing)

    def documents(self) -> Iterator[Document]:
        """Yield the pages with main text, in the order of the lists or files."""
        self.prepare()
        for piece in self.pieces():
            for raw in self.read(piece):
                if (document := self.refine(raw)) is not None:
                    yield document

    def pieces(self) -> list[Piece]:
        """Return the files, or parts of the lists."""
        if self.path:
            return [Piece(path) for path in read.files(self.path)]
        end = self._order.stat().st_size
        parts = [(start, min(start + PIECE, end)) for start in range(0, max(end, 1), PIECE)]
        return [Piece(self._order, *part, bytes_laid_out(self._order, *part)) for part in parts]

    def read(self, piece: Piece) -> Iterator[Document]:
        if self.urls:
            if piece.start == 0:
                read.tally().left_out.update(files.read_json(piece.path.with_suffix(".json")))
            for page in pages_in_order(piece.path, piece.start, piece.stop):
                yield _document(page.body, page.content_type, page.url)
        elif WARC.search(piece.path.name):
            yield from self._archived(piece.path)
        elif HTML.search(piece.path.name):
            yield from self._file(piece.path)
        else:
            read.tally().left_out["neither HTML nor WARC"] += 1

    def refine(self, document: Document) -> Document | None:
        """Return the page's main text; plain text is returned unchanged."""
        left_out = read.tally().left_out
        counted = left_out.total()
        text = document.text if document.meta.pop("plain") else html.main_text(document.text)
        if len(text) >= max(self.shortest, 1):
            document.text = text
            return document
        if left_out.total() == counted:  # otherwise the reason is counted already
            left_out["short main text" if text else "no main text"] += 1
        return None

    def stamp(self) -> object:
        """Return paths, sizes and times of the files or lists; for lists, also the rules, but not the pages."""
        if self.path:
            return read.stamp(read.files(self.path))
        return [read.stamp(read.files(self.urls or [])), self.rules_stamp(), self.private]

    def size(self) -> int:
        if self.urls and self._order.exists():
            return bytes_laid_out(self._order)
        return read.size(read.files(self.path or self.urls or []))

    @property
    def _order(self) -> Path:
        """File with the positions of these lists' pages. A folder of pages can have several."""
        name = value_key(self.stamp(), 12)
        return Path(self.pages) / f"order-{name}.bin"

    def _addresses(self, left_out: Counter[str]) -> Iterator[str]:
        return addresses(read.files(self.urls or []), self, left_out, self.private)

    def _archived(self, path: Path) -> Iterator[Document]:
        left_out = read.tally().left_out
        for record in warc.records(path, self.densest):
            if record.status != 200:
                left_out[f"HTTP {record.status}"] += 1
            elif record.content_type.partition(";")[0].strip().lower() not in KINDS:
                left_out["no HTML or text"] += 1
            elif len(record.body) > self.largest:
                left_out["too large"] += 1
            else:
                yield _document(record.body, record.content_type, record.url)

    def _file(self, path: Path) -> Iterator[Document]:
        body = b""
        for block in read.blocks(path):
            body += block
            if len(body) > self.largest:
                read.tally().left_out["too large"] += 1
                return
        yield Document(html.decode(body), id=str(path), meta={"plain": False})


def _document(body: bytes, content_type: str, url: str) -> Document:
    plain = content_type.lower().startswith("text/plain")
    return Document(html.decode(body, content_type), id=url, meta={"url": url, "plain": plain})

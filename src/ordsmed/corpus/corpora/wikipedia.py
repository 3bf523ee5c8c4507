"""Wikipedia: the articles of an XML dump as prose, or the output of WikiExtractor.

    enwiki-*-pages-articles-multistream.xml.bz2  ->  Document("Oslo is the capital ...", id="enwiki:22309", meta={...})

Headings, lists, tables, references, templates and pictures are left out; one paragraph per line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.markup import dump, wikitext
from ordsmed.text.source import FileSource, Piece

_UNSHOWN = "_unshown"  # meta key between `read` and `refine`: namespaces of files and categories of a wikitext


@dataclass(frozen=True)
class Wikipedia(FileSource, Choice):
    """A dump of Wikipedia."""

    LICENCE = "CC BY-SA 4.0 (text of Wikipedia)"
    WORDS = 2_500_000_000

    namespaces: list[int] = field(default_factory=lambda: [0])
    "which namespaces are read: 0 articles, 1 their talk pages, 4 about Wikipedia, ..."
    disambiguation: bool = False
    "whether to keep pages that list the meanings of a title"
    errors: read.Errors = "strict"
    "invalid UTF-8 and control characters: stop with an error (strict), or write U+FFFD and count them (replace)"
    cut: dump.Cut = "refuse"
    "a dump that is cut off: raise an error after its last complete page, or keep these pages and count it"
    densest: int = read.DENSEST
    "largest ratio of unpacked to packed size, over 64 MB; a denser file is refused as a bomb; 0: no limit"

    def __post_init__(self) -> None:
        if not self.namespaces:
            raise ValueError("namespaces: found an empty list; wanted numbers such as [0]")
        at_least(self, densest=0)

    def pieces(self) -> list[Piece]:
        return [part for path in read.files(self.path) for part in dump.parts(path)]

    def read(self, piece: Piece) -> Iterator[Document]:
        for page in dump.pages(piece, self.errors, self.cut, self.densest):
            if reason := self._left_out(page):
                read.tally().left_out[reason] += 1
            else:
                about = {"title": page.title, "url": page.url, _UNSHOWN: page.unshown}
                yield Document(page.text, id=page.id, meta={k: v for k, v in about.items() if v not in ("", None)})

    def refine(self, document: Document) -> Document | None:
        meta = dict(document.meta)
        unshown = meta.pop(_UNSHOWN, None)
        if unshown is None:
            return document
        if not self.disambiguation and wikitext.is_disambiguation(document.text):
            read.tally().left_out["disambiguation pages"] += 1
        elif text := wikitext.prose(document.text, unshown):
            return Document(text, id=document.id, meta=meta)
        else:
            read.tally().left_out["empty"] += 1
        return None

    def _left_out(self, page: dump.DumpPage) -> str:
        if page.namespace not in self.namespaces:
            return "other namespaces"
        if page.redirect or (page.unshown is not None and wikitext.is_redirect(page.text)):
            return "redirects"
        return "" if page.text.strip() else "empty"

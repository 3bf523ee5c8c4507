"""Wikipedia: the articles of an XML dump as prose, or what WikiExtractor made of them.

    enwiki-*-pages-articles-multistream.xml.bz2  ->  Document("Oslo is the capital ...", id="enwiki:22309", meta={...})

Headings, lists, tables, references, templates and pictures are left out; one paragraph a line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.markup import dump, wikitext
from ordsmed.text.source import FileSource, Piece

_UNSHOWN = "_unshown"  # from `read` to `refine`: the text is wikitext, and the dump's names for files and categories


@dataclass(frozen=True)
class Wikipedia(FileSource, Choice):
    """The articles of Wikipedia dumps."""

    LICENCE = "CC BY-SA 4.0 (text of Wikipedia)"
    WORDS = 2_500_000_000

    namespaces: list[int] = field(default_factory=lambda: [0])
    "which namespaces are taken: 0 articles, 1 their talk, 4 about Wikipedia, ..."
    disambiguation: bool = False
    "whether pages that list the meanings of a title are taken"
    errors: read.Errors = "strict"
    "invalid UTF-8 and control characters: refuse them with their place (strict), or put U+FFFD and count (replace)"
    cut: dump.Cut = "refuse"
    "a dump that stops before its end: refuse it behind its last whole page, or take what is there and count"
    densest: int = read.DENSEST
    "times its size, over 64 MB, that a packed file may unpack to; what is denser is refused as a bomb; 0: any"

    def __post_init__(self) -> None:
        if not self.namespaces:
            raise ValueError("namespaces: found an empty list; wanted numbers such as [0]")
        at_least(self, densest=0)

    def pieces(self) -> list[Piece]:
        """The files, multistream dumps in several parts."""
        return [part for path in read.files(self.path) for part in dump.parts(path)]

    def read(self, piece: Piece) -> Iterator[Document]:
        """The pages as wikitext."""
        for page in dump.pages(piece, self.errors, self.cut, self.densest):
            if reason := self._left_out(page):
                read.tally().left_out[reason] += 1
            else:
                about = {"title": page.title, "url": page.url, _UNSHOWN: page.unshown}
                yield Document(page.text, id=page.id, meta={k: v for k, v in about.items() if v not in ("", None)})

    def refine(self, document: Document) -> Document | None:
        """The prose of a page."""
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

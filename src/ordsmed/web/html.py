"""Extract the main prose of a web page, one paragraph per line.

    bytes -- decode --> markup -- parsed --> tree -- make_paragraphs --> trafilatura --> lines -- wanted --> text
                                                     (again in a greedier mode, if it found less than half of the prose)

trafilatura finds the prose. The headline and lines such as "Read more: ..." are removed from its result. Rules that
removed boxes from the tree beforehand helped on the pages they were made for, and lost prose on others.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import logging
import re
from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING

from ordsmed.base.errors import RecipeError
from ordsmed.text import read

if TYPE_CHECKING:
    from lxml.html import HtmlElement

LONGEST = 5 << 20  # characters of a page; the rest is ignored
LEAST = 0.5  # share of the text that looks like prose; if less was extracted, try the greedier mode
TOP = 4  # first lines that may be the headline
ELEMENTS = 30_000  # most elements of a page: trafilatura's time grows with their square, 1 s for this number

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_META = re.compile(rb"<meta\b[^>]{0,1000}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
# Character sets that browsers read as a larger one, because pages use its characters.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
}
_NO_CHARSETS = {"utf-7", "idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}

_PARTS = ("div", "section", "article", "td")  # elements that contain paragraphs
_INLINE = frozenset(
    [
        "a",
        "abbr",
        "b",
        "bdi",
        "big",
        "cite",
        "code",
        "em",
        "font",
        "i",
        "ins",
        "kbd",
        "label",
        "mark",
        "q",
        "s",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "time",
        "tt",
        "u",
        "var",
        "wbr",
    ]
)
_CONTENT_NAME = re.compile("article|body|content|entry|main|message|post|story|text", re.IGNORECASE)
_SEE = (
    r"(?:also (?:read|see|on)|don['’]t miss|explore further|more (?:from|on)|read (?:also|more|next)|recommended"
    r"|related|see (?:also|more)|watch|you (?:may|might) (?:also )?(?:be interested in|enjoy|like)|les (?:også|mer)"
    r"|læs også|läs (?:också|mer|även)|lesen sie auch|mehr zum thema|lees ook|lire aussi|à lire|lea también|leggi anche"
    r"|leia (?:mais|também)|czytaj także|читайте также)\b"
)
_UNWANTED = re.compile(
    rf"\W*(?:{_SEE}[^:.!?]{{0,30}}(?::.*|\W*$)"
    r"|(?:comments?|tags?|filed under|image(?: credit)?|photo(?: by)?)(?::.*|\W*$)"
    r"|(?:sign up|subscribe|click here)\b.*\b(?:alerts|channel|e-?mails?|inbox|newsletters?|podcast|rss|updates)\b"
    r"|thanks for signing up|an error (?:has )?occurred|follow (?:us|me|@|\w+['’]s full coverage)\b"
    r"|share this\b|leave a (?:comment|reply)\b|write to .* at \S+@|(?:advertisement|annonse|anzeige|publicité)\W*$"
    r"|©|all rights reserved|copyright\b.*\b(?:19|20)\d\d\b|if you (?:buy something|enjoyed this))",
    re.IGNORECASE,
)
_UNWANTED_LENGTH = 100  # longer lines are kept
_LONG_TEXTS = (
    "//body//text()[string-length() > 60][not(ancestor::a or ancestor::script or ancestor::style or ancestor::noscript"
    " or ancestor::*[self::div or self::ol or self::ul or self::li or self::section]"
    "[contains(@class, 'comment') or contains(@id, 'comment')])]"
)


def decode(page: bytes, content_type: str = "") -> str:
    """Decode a page by its byte order mark, its Content-Type, its <meta>, else as UTF-8 or windows-1252."""
    for mark, charset in _MARKS:
        if page.startswith(mark):
            return page[len(mark) :].decode(charset, "replace")
    named = _CHARSET.search(content_type)
    within = _META.search(page, 0, 4096)
    for name in (named and named[1], within and within[1].decode("ascii", "replace").replace("utf-16", "utf-8")):
        with contextlib.suppress(LookupError, ValueError):
            if name and (charset := codecs.lookup(name).name) not in _NO_CHARSETS:
                return page.decode(_MEANT.get(charset, charset), "replace")
    try:
        return page.decode()
    except UnicodeDecodeError:
        return page.decode("cp1252", "replace")


def main_text(page: str) -> str:
    """Return the main prose of a page, one paragraph per line; empty if there is none."""
    library = _trafilatura()
    read.tally().cut += len(page) > LONGEST
    try:
        tree = library.load_html(page[:LONGEST])
        if tree is None or sum(1 for _ in tree.iter()) > ELEMENTS:
            raise ValueError
        headlines = _headlines(tree)
        make_paragraphs(tree)
        text = library.extract(tree, fast=True, include_comments=False) or ""
        if len(text) < LEAST * _all_prose(tree):
            # Slower, but keeps more: the other mode keeps only the first reply in a forum, as all have the same class.
            for box in tree.iter(*_PARTS):
                for key in ("class", "id"):
                    if _CONTENT_NAME.search(name := box.get(key, "")) and "comment" not in name.lower():
                        del box.attrib[key]
                if box.tag == "article":
                    box.tag = "div"
            text = max(text, library.extract(tree, fast=False, include_comments=False) or "", key=len)
    except Exception:  # a library may fail in any way, and this is one page of millions
        read.tally().left_out["pages that could not be parsed"] += bool(page.strip())
        return ""
    lines = [line for line in (" ".join(line.split()) for line in text.split("\n")) if line]
    lines = [line for at, line in enumerate(lines) if at >= TOP or _words(line) not in headlines]
    return "\n".join(line for line in lines if len(line) >= _UNWANTED_LENGTH or not _UNWANTED.match(line))


def _all_prose(tree: HtmlElement) -> int:
    lengths = (len(" ".join(text.split())) for text in tree.xpath(_LONG_TEXTS))
    return sum(length for length in lengths if length > 60)


@functools.cache
def _trafilatura() -> ModuleType:
    try:
        import trafilatura
    except ImportError:
        raise RecipeError("html", "`trafilatura` is not installed", "", "pip install 'ordsmed[corpora]'") from None
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL + 1)  # it logs an error for every malformed page
    return trafilatura


def _headlines(tree: HtmlElement) -> set[str]:
    """Return the titles of the page, and its headlines that contain a title or are part of one, as words."""
    titles = {_words(tree.findtext(".//title") or "")} | {
        _words(meta.get("content", ""))
        for meta in tree.iter("meta")
        if (meta.get("property") or meta.get("name")) in ("og:title", "twitter:title")
    }
    heads = {_words(_text(headline)) for headline in islice(tree.iter("h1"), 5)}
    return (titles | {head for head in heads if any(head in title or title in head for title in titles if title)}) - {
        ""
    }


def make_paragraphs(tree: HtmlElement) -> None:
    """Make paragraphs of text without <p> among paragraphs: loose in the box, or alone in a <div>."""
    for box in list(tree.iter(*_PARTS)):
        paragraphs = len(box.findall("p"))
        if paragraphs >= 3:
            for division in box.findall("div"):
                if _is_inline(division) and 2 * len(_link_text(division)) < len(_text(division)):
                    division.tag = "p"
        if paragraphs or len(box.findall("br")) >= 3:
            _wrap_loose(box)


def _wrap_loose(box: HtmlElement) -> None:
    parts = list(_parts(box))
    run = None  # the current paragraph
    for part in parts:
        if isinstance(part, str) or (part.tag in _INLINE and _is_inline(part)):
            if run is None and (not isinstance(part, str) or part.strip()):
                run = box.makeelement("p")
                box.append(run)
            if run is not None:
                _append(run, part)
        elif isinstance(part.tag, str):
            run = None
            if part.tag != "br":
                box.append(part)


def _parts(box: HtmlElement) -> Iterator[HtmlElement | str]:
    text, box.text = box.text, None
    if text:
        yield text
    for child in list(box):
        tail, child.tail = child.tail, None
        box.remove(child)
        yield child
        if tail:
            yield tail


def _append(run: HtmlElement, part: HtmlElement | str) -> None:
    if not isinstance(part, str):
        run.append(part)
    elif len(run):
        run[-1].tail = (run[-1].tail or "") + part
    else:
        run.text = (run.text or "") + part


def _is_inline(element: HtmlElement) -> bool:
    return all(inner.tag in _INLINE for inner in element.iterdescendants())


def _text(element: HtmlElement) -> str:
    return " ".join("".join(element.itertext()).split())


def _link_text(element: HtmlElement) -> str:
    return " ".join(_text(link) for link in element.iter("a"))


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))

"""The main prose of a web page, one paragraph a line.

    bytes -- decode --> markup -- parsed --> tree -- RULES --> plainer tree -- trafilatura --> lines -- wanted --> text

trafilatura chooses where the prose stands; each rule here mends one kind of mistake that it makes on real pages. A rule
knows what web pages have in common (headlines, captions, teasers, loose text), never a site.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ordsmed.base.errors import RecipeError
from ordsmed.text import read

LONGEST = 5 << 20  # characters of a page; what stands behind them is not looked at
LEAST = 0.5  # of what looks like prose; where less than that was found, it is looked for again
ELEMENTS = 30_000  # of a page: trafilatura's time grows with their square, 1 s here

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_META = re.compile(rb"<meta\b[^>]{0,1000}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
# The names that browsers take for a larger character set, of which pages make use.
_MEANT = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030",
          "shift_jis": "cp932", "euc_kr": "cp949", "iso8859-11": "cp874", "tis-620": "cp874"}  # fmt: skip
_NO_CHARSETS = {"utf-7", "idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}

_PARTS = ("div", "section", "article", "td")  # what holds paragraphs
_INLINE = frozenset(
    ["a", "abbr", "b", "bdi", "big", "cite", "code", "em", "font", "i", "ins", "kbd", "label", "mark", "q", "s",
     "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr"]
)  # fmt: skip
_CONTENT = r"(?:article|blog|entry|main|page|post|single|story|text)[-_]*"
_BODY = re.compile(_CONTENT + r"(?:body|chunk|content|copy|text)|body[-_]*(?:copy|text)")
_CONTENT_NAME = re.compile("article|body|content|entry|main|message|post|story|text", re.IGNORECASE)
_PLAIN_NAME = re.compile(rf"(?:{_CONTENT})*(?:article|body|content|entry|main|post|story|text)")
_BESIDE = re.compile(
    r"advert|also-?like|article-?tools|caption|copyright|credit(?!-?card)|disclosure|donat|latest-news|newsletter"
    r"|most-?(?:popular|read|viewed)|opt-?in|photographer|promo|read-?more|recommend|related|reprint|sign-?up|sponsor"
    r"|subscri(?:be|ption)|trending|(?:^|[-_\s])cta(?:[-_\s]|$)",
    re.IGNORECASE,
)
_SEE = (
    r"(?:also (?:read|see|on)|don['’]t miss|explore further|more (?:from|on)|read (?:also|more|next)|recommended"
    r"|related|see (?:also|more)|watch|you (?:may|might) (?:also )?(?:be interested in|enjoy|like)|les (?:også|mer)"
    r"|læs også|läs (?:också|mer|även)|lesen sie auch|mehr zum thema|lees ook|lire aussi|à lire|lea también|leggi anche"
    r"|leia (?:mais|também)|czytaj także|читайте также)\b"
)
_LABEL = re.compile(rf"\W*{_SEE}[^:]{{0,20}}[:|–-]\s*", re.IGNORECASE)
_UNWANTED = re.compile(
    rf"\W*(?:{_SEE}[^:.!?]{{0,30}}(?::.*|\W*$)"
    r"|(?:comments?|tags?|filed under|image(?: credit)?|photo(?: by)?)(?::.*|\W*$)"
    r"|(?:sign up|subscribe|click here)\b.*\b(?:alerts|channel|e-?mails?|inbox|newsletters?|podcast|rss|updates)\b"
    r"|thanks for signing up|an error (?:has )?occurred|follow (?:us|me|@|\w+['’]s full coverage)\b"
    r"|share this\b|leave a (?:comment|reply)\b|write to .* at \S+@|(?:advertisement|annonse|anzeige|publicité)\W*$"
    r"|©|all rights reserved|copyright\b.*\b(?:19|20)\d\d\b|if you (?:buy something|enjoyed this))",
    re.IGNORECASE,
)
_UNWANTED_LENGTH = 100  # a longer line tells more than that
_LONG_TEXTS = (
    "//body//text()[string-length() > 60][not(ancestor::a or ancestor::script or ancestor::*[self::div or self::ol"
    " or self::ul or self::li or self::section][contains(@class, 'comment') or contains(@id, 'comment')])]"
)
_PROSE = (
    "boolean(.//text()[string-length(normalize-space()) > 100]"
    "[not(ancestor::h1 or ancestor::h2 or ancestor::h3 or ancestor::h4 or ancestor::h5 or ancestor::h6)]"
    " | .//p[string-length(normalize-space()) > 100])"
)


def decode(page: bytes, content_type: str = "") -> str:
    """Text of a page, by its byte order mark, its Content-Type, its <meta>, else UTF-8 or windows-1252."""
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
    """The main prose of a page, one paragraph a line; empty where there is none."""
    library = _trafilatura()
    read.tally().cut += len(page) > LONGEST
    try:
        tree = library.load_html(page[:LONGEST])
        if tree is None or sum(1 for _ in tree.iter()) > ELEMENTS:
            raise ValueError
        for rule in RULES:
            rule(tree)
        found = library.extract(tree, fast=True, include_comments=False) or ""
        if len(found) < LEAST * _all_prose(tree):
            found = max(found, _extracted_anew(library, tree), key=len)
    except Exception:  # whatever a library stumbles on: one page of millions
        read.tally().left_out["pages that could not be parsed"] += bool(page.strip())
        return ""
    lines = (" ".join(line.split()) for line in found.split("\n"))
    return "\n".join(line for line in lines if line and not _is_unwanted(line))


def _all_prose(tree: Any) -> int:
    """Characters that look like prose, wherever they stand but among comments."""
    lengths = (len(" ".join(text.split())) for text in tree.xpath(_LONG_TEXTS))
    return sum(length for length in lengths if length > 60)


def _extracted_anew(library: Any, tree: Any) -> str:
    """Slower and greedier. Of the replies of a forum, all of one name, the library takes the first for the article."""
    for box in tree.iter(*_PARTS):
        for key in ("class", "id"):
            if _CONTENT_NAME.search(name := box.get(key, "")) and "comment" not in name.lower():
                del box.attrib[key]
        if box.tag == "article":
            box.tag = "div"
    return library.extract(tree, fast=False, include_comments=False) or ""


@functools.cache
def _trafilatura() -> Any:
    try:
        import trafilatura
    except ImportError:
        raise RecipeError("html", "`trafilatura` is not installed", "", "pip install 'ordsmed[corpora]'") from None
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL + 1)  # it logs an error for every odd page
    return trafilatura


def _is_unwanted(line: str) -> bool:
    return len(line) < _UNWANTED_LENGTH and _UNWANTED.match(line) is not None


def drop_scripts(tree: Any) -> None:
    """Scripts and styles go first: they are most of a page. The metadata among them tell forums from articles."""
    for element in list(tree.iter("script", "style", "svg", "iframe", "noscript", "link")):
        if element.get("type") != "application/ld+json":
            _drop(element)


def join_parts(tree: Any) -> None:
    """An article cut into several boxes of one name, for advertisements between: put together in the first."""
    boxes = defaultdict(list)
    for box in tree.iter("div", "section"):
        name = box.get("class", "")
        if _BODY.search(name) and sum(len(_text(p)) for p in box.findall("p")) > 250:
            boxes[box.tag, name].append(box)
    for first, *others in boxes.values():
        near = set(islice(first.iterancestors(), 3))
        for box in others:
            teasers = len(_link_text(box)) > 0.3 * len(_text(box))
            if not (teasers or near.isdisjoint(islice(box.iterancestors(), 3)) or box.find(".//h1") is not None):
                first.extend(list(box))


def drop_headline(tree: Any) -> None:
    """The headline, and what stands in one box with it (standfirst, byline, date), as far as that holds no prose."""
    titles = {_words(tree.findtext(".//title") or "")} | {
        _words(meta.get("content", ""))
        for meta in tree.iter("meta")
        if (meta.get("property") or meta.get("name")) in ("og:title", "twitter:title")
    }
    for headline in list(islice(tree.iter("h1"), 5)):
        words = _words(_text(headline))
        if words and any(words in title or (title and title in words) for title in titles):
            box = headline
            while (outer := box.getparent()) is not None and _is_head(outer):
                box = outer
            _drop(box)


def _is_head(box: Any) -> bool:
    return box.tag not in ("body", "html", "main") and len(_text(box)) < 1500 and not box.xpath(_PROSE)


def drop_beside(tree: Any) -> None:
    """Small boxes named for what stands beside an article: captions, newsletters, related articles.

    trafilatura goes by names too, but drops large boxes whose names resemble such a one ("bar" in "barnard"): what
    holds half of the prose keeps no name but those that tell content.
    """
    prose = _prose(tree)
    whole = prose[tree]
    for element in list(tree.iter(*_PARTS, "main", "aside", "form", "ul", "p", "span", "small", "a", "em", "cite",
                                  "h2", "h3", "h4", "h5")):  # fmt: skip
        names = element.get("class", "") + " " + element.get("id", "")
        if names == " ":
            continue
        if whole and 2 * prose[element] >= whole:
            for key in ("class", "id"):
                element.set(key, " ".join(filter(_PLAIN_NAME.fullmatch, element.get(key, "").split())))
        elif _BESIDE.search(names) and 5 * prose[element] <= whole and len(_text(element)) < 1500:
            _drop(element)


def drop_links(tree: Any) -> None:
    """Paragraphs and lists that are nothing but links elsewhere; a list of short names may be links."""
    for element in list(tree.iter("p", "ul", "ol")):
        if element.find(".//a") is None:
            continue
        text, links = _text(element), _link_text(element)
        if element.tag == "p":
            behind = text[label.end() :] if (label := _LABEL.match(text)) else text
            elsewhere = len(links) >= 0.8 * len(behind) and links.count(" ") >= 4
            if elsewhere and (behind != text or text[-1] not in ".!?…"):
                _drop(element)
        elif len(links) >= 0.9 * len(text):
            _drop(element)


def make_paragraphs(tree: Any) -> None:
    """Text among paragraphs that has no <p> of its own is one too: loose in the box, or alone in a <div>."""
    for box in list(tree.iter(*_PARTS)):
        paragraphs = len(box.findall("p"))
        if paragraphs >= 3:
            for division in box.findall("div"):
                if _is_inline(division) and 2 * len(_link_text(division)) < len(_text(division)):
                    division.tag = "p"
        if paragraphs or len(box.findall("br")) >= 3:
            _wrap_loose(box)


def _wrap_loose(box: Any) -> None:
    parts = list(_parts(box))
    run = None  # the paragraph that is being put together
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


def _parts(box: Any) -> Iterator[Any]:
    """The text and the elements of a box in their order, taken out of it."""
    text, box.text = box.text, None
    if text:
        yield text
    for child in list(box):
        tail, child.tail = child.tail, None
        box.remove(child)
        yield child
        if tail:
            yield tail


def _append(run: Any, part: Any) -> None:
    if not isinstance(part, str):
        run.append(part)
    elif len(run):
        run[-1].tail = (run[-1].tail or "") + part
    else:
        run.text = (run.text or "") + part


def _is_inline(element: Any) -> bool:
    return all(inner.tag in _INLINE for inner in element.iterdescendants())


def _prose(tree: Any) -> dict[Any, int]:
    """Characters of the paragraphs in each element."""
    found: dict[Any, int] = defaultdict(int)
    for element in reversed(list(tree.iter())):  # children before their parents
        if element.tag == "p":
            found[element] = len(_text(element))
        if element in found and (parent := element.getparent()) is not None:
            found[parent] += found[element]
    return found


def _drop(element: Any) -> None:
    """Take an element out; the text behind it stays."""
    if element.getparent() is not None:
        element.drop_tree()


def _text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _link_text(element: Any) -> str:
    return " ".join(_text(link) for link in element.iter("a"))


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


RULES: tuple[Callable[[Any], None], ...] = (
    drop_scripts,
    join_parts,
    drop_beside,
    drop_headline,
    drop_links,
    make_paragraphs,
)

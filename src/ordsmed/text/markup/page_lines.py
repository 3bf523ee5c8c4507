"""Join the lines of printed pages into paragraphs, without running heads, page numbers and tables of contents.

    page 7:  THE HERON                          ->  "The mill lies where the river turns, and the miller knew it."
             The mill lies where the ri-
             ver turns, and the miller
             7                 (page 8:)  knew it.

A paragraph ends after a short line, and before a line that has a larger gap above it, an indent or another font size.
Words hyphenated at a line end are joined.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ordsmed.text.markup import line_wrapping

EDGE = 2  # lines at the top and at the bottom of a page that may be running heads
REPEATED = 3  # a line at the edge of this many pages, its numbers aside, is a running head
SHORT, VERY_SHORT = 0.75, 0.6  # share of a full line's characters
GAP = 1.3  # a larger gap, in usual line distances, begins a paragraph
INDENT = 0.7  # a larger indent, in font sizes, begins a paragraph
SIZES = 0.08  # lines whose font sizes differ by a larger share are in different paragraphs
_NUMBER = re.compile(r"[\W_]*(?:\d{1,5}|[ivxlcdm]{1,7})[\W_]*", re.IGNORECASE)
# a dotted leader before a page number
_CONTENTS = re.compile(r"(?:[ \u00a0]?[.·…]){5,}\s*(?:\d{1,5}|[ivxlcdm]{1,7})?\Z", re.IGNORECASE)
_PARTED = re.compile(r"([^\W\d_]+)[-\u00ad\u2010]\Z")
_TOKEN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_BEGINS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class PageLine:
    """A line, its start (points from the left and from the bottom of the page) and its font size."""

    text: str
    x: float
    y: float
    size: float


def paragraphs(pages: Sequence[Sequence[PageLine]]) -> list[str]:
    body = without_heads(pages)
    lines = [(number, line) for number, page in enumerate(body) for line in page if not _CONTENTS.search(line.text)]
    if not lines:
        return []
    words = _words([line.text for _, line in lines])
    full = sorted(len(line.text) for _, line in lines)[len(lines) * 3 // 4]
    usual = _usual_gap(lines)
    result = list[str]()
    text = lines[0][1].text
    for (page, line), (next_page, next_line) in pairwise(lines):
        gap = (line.y - next_line.y) / line.size if next_page == page else -1.0  # below 0: another page or column
        if _ends(line, next_line, gap / usual, full):
            result.append(text)
            text = next_line.text
        else:
            text = _joined(text, next_line.text, words)
    return [*result, text]


def without_heads(pages: Sequence[Sequence[PageLine]]) -> list[list[PageLine]]:
    """Return the pages without page numbers, and without lines that are at the edge of many pages."""
    edges = [_edge(page) for page in pages]
    seen = Counter(key for page in edges for key in {_key(line) for line in page})
    least = min(REPEATED, max(2, len(pages)))
    heads = {key for key, count in seen.items() if count >= least}
    return [
        [line for line in page if not (line in edge and (_key(line) in heads or _NUMBER.fullmatch(line.text)))]
        for page, edge in zip(pages, edges, strict=True)
    ]


def _edge(page: Sequence[PageLine]) -> set[PageLine]:
    ordered = sorted(page, key=lambda line: -line.y)
    return {*ordered[:EDGE], *ordered[-EDGE:]}


def _key(line: PageLine) -> str:
    return re.sub(r"\d+", "#", line.text.casefold())


def _usual_gap(lines: Sequence[tuple[int, PageLine]]) -> float:
    gaps = [
        (line.y - next_line.y) / line.size
        for (page, line), (next_page, next_line) in pairwise(lines)
        if page == next_page and 0 < line.y - next_line.y < 3 * line.size
    ]
    return median(gaps) if gaps else 1.2


def _ends(line: PageLine, next_line: PageLine, gap: float, full: int) -> bool:
    """Return whether a paragraph ends with `line`. `gap` is the distance to the next line in usual distances."""
    if abs(line.size - next_line.size) > SIZES * max(line.size, next_line.size):
        return True
    small = (first := next_line.text.lstrip("\"'“‘«([")[:1]).isalpha() and not first.isupper()
    closes, length = line.text.endswith(line_wrapping.STOPS), len(line.text)
    if gap <= 0:  # the next line is at the top of a page or column
        return closes and not small
    if gap > GAP:
        return True
    if _PARTED.search(line.text):
        return False
    if line_wrapping.ITEM.match(next_line.text):
        return closes or length < SHORT * full or bool(line_wrapping.ITEM.match(line.text))
    indented = next_line.x - line.x > INDENT * next_line.size
    return (closes and (indented or length < SHORT * full)) or (length < VERY_SHORT * full and not small)


def _words(lines: Sequence[str]) -> set[str]:
    """Return the words of a text in lower case, compounds whole and in parts.

    The two halves of a word hyphenated at a line end are left out: they would look like words of their own.
    """
    words, is_rest = set[str](), False
    for line in lines:
        tokens = _TOKEN.findall(line.lower())
        is_parted = bool(_PARTED.search(line[-60:]))
        words.update(tokens[int(is_rest) : len(tokens) - is_parted])
        is_rest = is_parted
    return words | {part for word in words for part in word.split("-")}


def _joined(line: str, next_line: str, words: set[str]) -> str:
    """Join two lines. A word hyphenated at the line end loses its hyphen; a compound keeps it."""
    parted, begins = _PARTED.search(line[-60:]), _BEGINS.match(next_line)
    if parted is None or begins is None or not begins[0][0].islower():
        return line_wrapping.line_before(line, next_line, words) + next_line
    first, next_part = parted[1].lower(), begins[0].lower()
    is_compound = f"{first}-{next_part}" in words or {first, next_part} <= words
    keeps = is_compound and first + next_part not in words
    return (line if keeps else line[:-1]) + next_line

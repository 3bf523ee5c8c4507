"""Lines that were broken at a fixed width become paragraphs again: books and mail with lines of 70 characters.

    It is a truth that nobody doubts, said the miller, that a heron      ->  one line
    in possession of a good river must be in want of a fish.

A line was broken by width where the first word of the next one had no more room in it, which is not so in verse and
lists; that is asked of the whole text first and then of every block of lines, so that verse in a novel stays verse.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

_FEWEST = 5  # lines that another follows: fewer tell no width
STOPS = tuple(".!?:;…\"'”’»)]_。！？；：」』؟۔।")
_TIGHT = "\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uffe0-\uffe6\U00020000-\U0003ffff"
_BESIDE_TIGHT = "“”‘’—…·"  # as much at home between Chinese characters as between words
_NO_BLANK = re.compile(f"[{_TIGHT}][{_TIGHT}{_BESIDE_TIGHT}]|[{_BESIDE_TIGHT}][{_TIGHT}]")
_WIDE = re.compile(f"[{_TIGHT}\uac00-\ud7a3]")  # two columns each
_FIRST = re.compile(rf"\s*([{_TIGHT}]|[^\s{_TIGHT}]+)")  # Chinese may be broken anywhere
ITEM = re.compile(r"\s*(?:[-*•·–—>|+#]|\d{1,3}[.)])\s")
_HYPHENS, _DASHES = ("-", "\u00ad", "\u2010"), ("-", "\u2010", "—")
_PARTED = re.compile(r"([^\W\d_]+).\Z")
_DASH = re.compile(r"\w(?:--|.)\Z")
_WORD = re.compile(r"[^\W\d_]+")


def joined(lines: list[str], *, always: bool = False) -> list[str]:
    """The lines of a text, those that were broken by width as one; `always`: all between blank lines, which stay."""
    texts = [line.expandtabs().rstrip() for line in lines]
    paragraphs = list(_blocks(texts, by_indent=not always))
    if not always:
        least = _least(paragraphs)
        if least is None:
            return lines
        margin = sorted(_indent(text) for text in texts if text)[sum(map(bool, texts)) // 10]
        paragraphs = [paragraph for block in paragraphs for paragraph in _paragraphs(block, least, margin)]
    parted = any(_parted(line) for paragraph in paragraphs for line in paragraph[:-1])
    words = _words(texts) if parted else set[str]()
    return [_join(paragraph, words) for paragraph in paragraphs]


def _words(texts: list[str]) -> set[str]:
    once = {part for text in texts for part in text.lower().split()}  # thrice as quick as taking words from all
    return {word for part in once for word in _WORD.findall(part)}


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip()) if text[:1].isspace() else 0


def _blocks(texts: list[str], *, by_indent: bool) -> Iterator[list[str]]:
    """Lines between blank ones, which are blocks too; a line that is set in more than the one before begins another."""
    block, depth = list[str](), 0
    for text in texts:
        indent = _indent(text)
        if block and (not text or (by_indent and indent >= depth + 2)):
            yield block
            block = []
        if text:
            block.append(text)
        else:
            yield [text]
        item = ITEM.match(text)
        depth = item.end() if item else indent
    if block:
        yield block


def _least(blocks: list[list[str]]) -> float | None:
    """More columns than these a line and the next word take where it was broken by width; None for unwrapped text.

    Of wrapped text most lines are full, but for those that may end a paragraph, and most begin with a small letter.
    """
    pairs = [pair for block in blocks for pair in pairwise(block)]
    if len(pairs) < _FEWEST:
        return None
    width = sorted(_columns(line) for line, _ in pairs)[len(pairs) * 49 // 50]
    goes_on = sum(_begins_small(after) for _, after in pairs)
    closed, inner = list[int](), list[int]()  # what lines reach: those that close, and those inside a sentence
    for line, after in pairs:
        (closed if line.endswith(STOPS) else inner).append(_reach(line, after))
    inner.sort()
    if not 40 <= width <= 120 or min(goes_on, len(inner)) < 0.5 * len(pairs) or inner[len(inner) // 2] <= 0.96 * width:
        return None
    least = max(0.8 * width, inner[len(inner) // 20] - 1)
    # where few lines that close are shorter than the others, paragraphs are told by gaps
    return least if sum(reach <= least for reach in closed) > len(closed) / 3 else 0.8 * width


def _begins_small(line: str) -> bool:
    first = line.lstrip()[0]
    return first.isalpha() and not first.isupper()


def _columns(text: str) -> int:
    return len(text) if text.isascii() else len(text) + len(_WIDE.findall(text))


def _reach(line: str, after: str) -> int:
    """How many columns a line would take with the first word of the next."""
    first = _FIRST.match(after)
    return _columns(line) + 1 + (_columns(first[1]) if first else 0)


def _paragraphs(block: list[str], least: float, margin: int) -> Iterator[list[str]]:
    """One, or every line of verse and every item of a list; a short line that closes ends one too."""
    full = [_reach(line, after) > least for line, after in pairwise(block)]
    verse = sum(full) * 2 < len(full)
    paragraph, listed = block[:1], ITEM.match(block[0])  # listed: what is held is an item
    for (line, after), goes_on in zip(pairwise(block), full, strict=True):
        closes, item = line.endswith(STOPS), ITEM.match(after)
        begins = item or (not listed and _indent(after) >= margin + 2)
        if (begins and closes) or (item and listed) or (not goes_on and (verse or closes or begins)):
            yield paragraph
            paragraph, listed = [], item
        paragraph.append(after)
    yield paragraph


def _join(lines: list[str], words: set[str]) -> str:
    parts = [lines[0], *(line.lstrip() for line in lines[1:])]
    return "".join([*(line_before(line, after, words) for line, after in pairwise(parts)), parts[-1]])


def line_before(line: str, after: str, words: set[str]) -> str:
    """A line as the next goes on from it; a parted word loses its hyphen if the text has it whole elsewhere."""
    if parted := _parted(line):
        rest = _WORD.match(after)
        whole = line.endswith("\u00ad") or (rest and (parted[1] + rest[0]).lower() in words)
        return line[:-1] if whole else line
    no_blank = line.endswith(_DASHES) and _DASH.search(line[-3:])
    return line if no_blank or _NO_BLANK.match(line[-1] + after[0]) else line + " "


def _parted(line: str) -> re.Match[str] | None:
    return _PARTED.search(line[-60:]) if line.endswith(_HYPHENS) else None

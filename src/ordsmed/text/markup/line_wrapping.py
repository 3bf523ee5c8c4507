"""Join hard-wrapped lines into paragraphs: books and mail with lines of 70 characters.

    It is a truth that no one doubts, said the miller, that a heron      ->  one line
    in possession of a good river must be in want of a fish.

A line was wrapped if the first word of the next line did not fit into it, unlike lines of verse and lists. This is
tested first for the whole text and then for every block of lines, so that verse in a novel stays verse.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

_FEWEST = 5  # pairs of lines needed to measure the width
STOPS = tuple(".!?:;…\"'”’»)]_。！？；：」』؟۔।")
_TIGHT = "\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uffe0-\uffe6\U00020000-\U0003ffff"
_BESIDE_TIGHT = "“”‘’—…·"  # used both between Chinese characters and between words
_NO_BLANK = re.compile(f"[{_TIGHT}][{_TIGHT}{_BESIDE_TIGHT}]|[{_BESIDE_TIGHT}][{_TIGHT}]")
_WIDE = re.compile(f"[{_TIGHT}\uac00-\ud7a3]")  # characters that take two columns
# the first word; between Chinese characters a line may be broken anywhere
_FIRST = re.compile(rf"\s*([{_TIGHT}]|[^\s{_TIGHT}]+)")
ITEM = re.compile(r"\s*(?:[-*•·–—>|+#]|\d{1,3}[.)])\s")
_HYPHENS, _DASHES = ("-", "\u00ad", "\u2010"), ("-", "\u2010", "—")
_PARTED = re.compile(r"([^\W\d_]+).\Z")
_DASH = re.compile(r"\w(?:--|.)\Z")
_WORD = re.compile(r"[^\W\d_]+")


def joined(lines: list[str], *, always: bool = False) -> list[str]:
    """Return the lines of a text with hard-wrapped ones joined. `always` joins all lines between blank lines."""
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
    # three times as fast as matching words in all texts
    parts = {part for text in texts for part in text.lower().split()}
    return {word for part in parts for word in _WORD.findall(part)}


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip()) if text[:1].isspace() else 0


def _blocks(texts: list[str], *, by_indent: bool) -> Iterator[list[str]]:
    """Yield runs of lines, and each blank line between them. `by_indent`: a deeper indent begins a run."""
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
    """Return the width of the text: a wrapped line and the next word are longer. Return None for unwrapped text.

    In a wrapped text most lines are full, except those that may end a paragraph, and most begin with a small letter.
    """
    pairs = [pair for block in blocks for pair in pairwise(block)]
    if len(pairs) < _FEWEST:
        return None
    width = sorted(_columns(line) for line, _ in pairs)[len(pairs) * 49 // 50]
    small = sum(_begins_small(next_line) for _, next_line in pairs)
    closed, inner = (
        list[int](),
        list[int](),
    )  # length including the next word, of lines that end a sentence and of other lines
    for line, next_line in pairs:
        (closed if line.endswith(STOPS) else inner).append(_reach(line, next_line))
    inner.sort()
    if not 40 <= width <= 120 or min(small, len(inner)) < 0.5 * len(pairs) or inner[len(inner) // 2] <= 0.96 * width:
        return None
    least = max(0.8 * width, inner[len(inner) // 20] - 1)
    # if few lines that end a sentence are short, the text separates paragraphs by blank lines
    return least if sum(reach <= least for reach in closed) > len(closed) / 3 else 0.8 * width


def _begins_small(line: str) -> bool:
    first = line.lstrip()[0]
    return first.isalpha() and not first.isupper()


def _columns(text: str) -> int:
    return len(text) if text.isascii() else len(text) + len(_WIDE.findall(text))


def _reach(line: str, next_line: str) -> int:
    first = _FIRST.match(next_line)
    return _columns(line) + 1 + (_columns(first[1]) if first else 0)


def _paragraphs(block: list[str], least: float, margin: int) -> Iterator[list[str]]:
    """Yield the block as one paragraph, or as the lines of verse and the items of a list."""
    full = [_reach(line, next_line) > least for line, next_line in pairwise(block)]
    verse = sum(full) * 2 < len(full)
    paragraph, listed = block[:1], ITEM.match(block[0])  # listed: the current paragraph is a list item
    for (line, next_line), is_full in zip(pairwise(block), full, strict=True):
        closes, item = line.endswith(STOPS), ITEM.match(next_line)
        begins = item or (not listed and _indent(next_line) >= margin + 2)
        if (begins and closes) or (item and listed) or (not is_full and (verse or closes or begins)):
            yield paragraph
            paragraph, listed = [], item
        paragraph.append(next_line)
    yield paragraph


def _join(lines: list[str], words: set[str]) -> str:
    parts = [lines[0], *(line.lstrip() for line in lines[1:])]
    return "".join([*(line_before(line, next_line, words) for line, next_line in pairwise(parts)), parts[-1]])


def line_before(line: str, next_line: str, words: set[str]) -> str:
    """Return a line ready to be joined to the next: with a space, or without the hyphen of a hyphenated word.

    A word is hyphenated if it occurs elsewhere as a whole.
    """
    if parted := _parted(line):
        first_word = _WORD.match(next_line)
        whole = line.endswith("\u00ad") or (first_word and (parted[1] + first_word[0]).lower() in words)
        return line[:-1] if whole else line
    no_blank = line.endswith(_DASHES) and _DASH.search(line[-3:])
    return line if no_blank or _NO_BLANK.match(line[-1] + next_line[0]) else line + " "


def _parted(line: str) -> re.Match[str] | None:
    return _PARTED.search(line[-60:]) if line.endswith(_HYPHENS) else None

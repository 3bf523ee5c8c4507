"""Wikitext to prose beside mwparserfromhell: words found, markup left over, articles a second. Both in one run.

    python tests/measure/wikipedia.py DUMP

What mwparserfromhell finds: the page parsed; templates, tables, references, headings, list lines and links to files
and categories removed from the tree; the rest by `strip_code`. Words are runs of letters and digits. The share of an
article is how many of these words, each as often as it stands there, are found in ours as well.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mwparserfromhell
from mwparserfromhell.nodes import Heading, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from ordsmed.corpus.corpora import wikipedia
from ordsmed.text.document import Document
from ordsmed.text.markup.wikitext import UNSHOWN, prose

WORD = re.compile(r"\w+")
MARKUP = re.compile(
    r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|'''|&(?:\w+|#\d+);|==|\x01"
    r"|</?(?:ref|br|sub|sup|small|math|span|div|i|b|p|code|nowiki|gallery|table|blockquote|source|center|li)\b[^<>]*>"
)
REMOVED = {"table", "ref", "references", "gallery", "math", "timeline", "pre", "source", "syntaxhighlight", "score"}
LISTS = {"li", "dd", "dt"}
ROUNDS = 3


@dataclass
class Found:
    """One article: words that mwparserfromhell finds, those of them in ours, all of ours, and what markup is left."""

    title: str
    theirs: int
    both: int
    ours: int
    markup: list[str]


def theirs(wikitext: str) -> str:
    """The prose of a page by mwparserfromhell."""
    return str(_pruned(mwparserfromhell.parse(wikitext)).strip_code())


def _pruned(code: Wikicode) -> Wikicode:
    """Without what is no prose. A list item is its mark and what follows up to the end of the line."""
    kept: list[Node] = []
    in_item = False
    for node in code.nodes:
        if isinstance(node, Tag) and node.wiki_markup and str(node.tag) in LISTS:
            in_item = True
        elif in_item and isinstance(node, Text) and "\n" in node.value:
            in_item = False
            kept.append(Text(node.value[node.value.index("\n") :]))
        elif not in_item and not _is_removed(node):
            for part in ("contents", "text"):
                if isinstance(inner := getattr(node, part, None), Wikicode):
                    setattr(node, part, _pruned(inner))
            kept.append(node)
    return Wikicode(kept)


def _is_removed(node: Node) -> bool:
    if isinstance(node, Wikilink):
        namespace, colon, _ = str(node.title).partition(":")
        return bool(colon) and namespace.strip().lower() in UNSHOWN
    return isinstance(node, Template | Heading) or (isinstance(node, Tag) and str(node.tag).strip().lower() in REMOVED)


def compared(title: str, found: str, sought: str) -> Found:
    """The words of both, each as often as it stands there, and the markup in what was found."""
    ours, words = Counter(WORD.findall(found)), Counter(WORD.findall(sought))
    both = (ours & words).total()
    return Found(title, words.total(), both, ours.total(), [m[0] for m in MARKUP.finditer(found)])


def articles(dump: str) -> list[Document]:
    """The raw pages of a dump."""
    settings = wikipedia.Wikipedia(dump)
    return [raw for piece in settings.pieces() for raw in settings.read(piece)]


def measured(dump: str) -> Iterator[Found]:
    """Every article of a dump, by both."""
    for raw in articles(dump):
        yield compared(raw.meta["title"], prose(raw.text), theirs(raw.text))


def seconds(convert: Callable[[str], str], texts: list[str]) -> float:
    """The quickest of some rounds over all texts, on one core."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for text in texts:
            convert(text)
        rounds.append(time.process_time() - begin)
    return min(rounds)


def main(dump: str) -> None:
    """Prints the table."""
    found = list(measured(dump))
    texts = [raw.text for raw in articles(dump)]
    size = sum(map(len, texts)) / 1e6
    words, both, ours = (sum(getattr(f, name) for f in found) for name in ("theirs", "both", "ours"))
    shares = sorted((round(f.both / f.theirs, 4), f.title) for f in found if f.theirs)
    left = {f.title: f.markup for f in found if f.markup}
    print(f"{len(texts)} articles, {size:.1f} M characters; {words:,} words by mwparserfromhell")
    print(f"found in ours        {both / words:.2%} of all words")
    print(f"an article           median {statistics.median(s for s, _ in shares):.2%}, worst {shares[:5]}")
    print(f"words in ours        {ours:,}, {both / ours:.2%} of them in theirs")
    print(f"markup left over     {sum(map(len, left.values()))} {list(left.items())[:5]}")
    took = {"ordsmed": seconds(prose, texts), "mwparserfromhell": seconds(theirs, texts)}
    for name, passed in took.items():
        print(f"{name:20} {len(texts) / passed:8.1f} articles/s  {size / passed:6.2f} M characters/s")
    print(f"times as quick       {took['mwparserfromhell'] / took['ordsmed']:.1f}")


if __name__ == "__main__":
    main(sys.argv[1])

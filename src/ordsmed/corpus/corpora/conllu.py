"""CoNLL-U: treebanks and parsed text back to running text, with the sentences the files tell.

    # newdoc id = a        # newpar        # text = One came.        1 \\t One \\t ...      (ten columns, blank line)
      a document             a line          a sentence; without it the forms are put together

A sentence is joined to the one before it by a blank, by a line end where a paragraph begins, and by nothing where the
last word says SpaceAfter=No. `Document.ends` tells the sentences, so a recipe may take them as given.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.clean import tidy
from ordsmed.text.document import Document
from ordsmed.text.labelled import conll
from ordsmed.text.source import Piece, TextSource

LONGEST = 8 << 20  # characters of one document; what is longer is cut at a sentence


@dataclass(frozen=True)
class Conllu(TextSource, Choice):
    """Documents of CoNLL-U files, their sentences as the files give them."""

    LICENCE = "as each treebank says"

    every: int = 100
    "sentences of a document where a file marks none by `# newdoc`; 0: the whole file is one"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, every=0)

    def read(self, piece: Piece) -> Iterator[Document]:
        joined, marked = _Joined(), False
        for sentence in _sentences(piece.path, self.lines(piece.path)):
            marked = marked or sentence.document is not None
            full = self.every and not marked and len(joined.ends) >= self.every
            if too_long := joined.length + len(sentence.text) > LONGEST:
                read.tally().cut += 1
            if joined.ends and (sentence.document is not None or full or too_long):
                yield joined.document()
                joined = _Joined()
            joined.add(sentence, f"{piece.path}:{sentence.line}")
        if joined.ends:
            yield joined.document()


@dataclass
class _Sentence:
    line: int
    document: str | None = None  # the name after `# newdoc`; "" where it has none, None where there is no mark
    paragraph: bool = False
    text: str = ""
    glued: bool = False  # the next sentence follows without a blank
    words: list[tuple[str, bool]] = field(default_factory=list)  # (form, a blank follows)
    covered: int = 0  # the last word that a range such as 1-2 stands for


@dataclass
class _Joined:
    """The sentences of a document that is not whole yet."""

    name: str = ""
    parts: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    length: int = 0
    glued: bool = False

    def add(self, sentence: _Sentence, place: str) -> None:
        gap = "\n" if sentence.paragraph else "" if self.glued else " "
        self.name = self.name or sentence.document or place
        self.parts.append((gap if self.parts else "") + sentence.text)
        self.length += len(self.parts[-1])
        self.ends.append(self.length)
        self.glued = sentence.glued

    def document(self) -> Document:
        return Document("".join(self.parts), ends=self.ends, id=self.name)


def _sentences(path: Path, lines: Iterator[str]) -> Iterator[_Sentence]:
    """The sentences that hold text; the marks of one without text pass to the next."""
    sentence = _Sentence(1)
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            comment = line[1:].strip()
            key, _, value = (part.strip() for part in comment.partition("="))
            if key in ("newdoc", "newdoc id"):
                sentence.document = value
            elif key in ("newpar", "newpar id"):
                sentence.paragraph = True
            elif key == "text":
                sentence.text = value
        elif line and not line.isspace():
            _word(sentence, line, f"{path}:{number}")
        elif _finish(sentence):
            yield sentence
            sentence = _Sentence(number + 1)
    if _finish(sentence):
        yield sentence


def _word(sentence: _Sentence, line: str, place: str) -> None:
    columns, number = conll.cells(line, place)
    if "." in columns[0]:
        return  # an empty node: a word that is understood and not said
    if last := number[2]:
        sentence.covered = int(last)
    elif int(columns[0]) <= sentence.covered:
        return
    sentence.words.append((columns[1], "SpaceAfter=No" not in columns[9].split("|")))


def _finish(sentence: _Sentence) -> bool:
    """Settle the text of a sentence; whether it has any. White space is made tidy here, so that its end stays one."""
    if not sentence.text:
        sentence.text = "".join(form + " " * space for form, space in sentence.words)
    sentence.text = tidy(sentence.text, "none")
    sentence.glued = bool(sentence.words) and not sentence.words[-1][1]
    sentence.words, sentence.covered = [], 0
    return bool(sentence.text)

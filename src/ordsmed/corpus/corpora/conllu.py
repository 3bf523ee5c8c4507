"""CoNLL-U: treebanks and parsed text as running text, with the sentences of the files.

    # newdoc id = a        # newpar        # text = One came.        1 \\t One \\t ...      (ten columns, blank line)
      a document             a line          a sentence; without it the forms are joined

A sentence is joined to the previous one by a space, by a line end if it begins a paragraph, and by nothing after
SpaceAfter=No. `Document.ends` holds the sentences, so a recipe can use them (`sentences = "given"`).
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

LONGEST = 8 << 20  # characters of a document; a longer one is cut between sentences


@dataclass(frozen=True)
class Conllu(TextSource, Choice):
    """Documents of CoNLL-U files, with their sentences."""

    LICENCE = "as each treebank says"

    every: int = 100
    "sentences per document in files without `# newdoc`; 0: the whole file is one document"

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
    document: str | None = None  # the name after `# newdoc`, "" without a name; None without `# newdoc`
    paragraph: bool = False
    text: str = ""
    glued: bool = False  # the next sentence follows without a space
    words: list[tuple[str, bool]] = field(default_factory=list)  # (form, whether a space follows)
    covered: int = 0  # number of the last word of the current range, such as 2 in 1-2


@dataclass
class _Joined:
    name: str = ""
    parts: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    length: int = 0
    glued: bool = False

    def add(self, sentence: _Sentence, location: str) -> None:
        gap = "\n" if sentence.paragraph else "" if self.glued else " "
        self.name = self.name or sentence.document or location
        self.parts.append((gap if self.parts else "") + sentence.text)
        self.length += len(self.parts[-1])
        self.ends.append(self.length)
        self.glued = sentence.glued

    def document(self) -> Document:
        return Document("".join(self.parts), ends=self.ends, id=self.name)


def _sentences(path: Path, lines: Iterator[str]) -> Iterator[_Sentence]:
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


def _word(sentence: _Sentence, line: str, location: str) -> None:
    columns, number = conll.cells(line, location)
    if "." in columns[0]:
        return  # an empty node: an elided word
    if last := number[2]:
        sentence.covered = int(last)
    elif int(columns[0]) <= sentence.covered:
        return
    sentence.words.append((columns[1], "SpaceAfter=No" not in columns[9].split("|")))


def _finish(sentence: _Sentence) -> bool:
    if not sentence.text:
        sentence.text = "".join(form + " " * space for form, space in sentence.words)
    sentence.text = tidy(sentence.text, "none")
    sentence.glued = bool(sentence.words) and not sentence.words[-1][1]
    sentence.words, sentence.covered = [], 0
    return bool(sentence.text)

"""Texts from the command line, from files of lines or from standard input.

"A great movie."   reviews.txt   -          ->  TypedText(place, text)
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.text import read
from ordsmed.use.fill import lines

AT_ONCE = 32  # texts of a file per batch
INPUT = "standard input"
LIKE_A_FILE = re.compile(r"\S+\.[a-z]{2,5}")  # a text that may be a mistyped file name
T = TypeVar("T")


@dataclass(frozen=True)
class TypedText:
    """A text and where it came from, for error messages; `second` is the other text of a pair."""

    place: str
    text: str
    second: str = ""

    def alone(self) -> TypedText:
        """Return this line, or raise an error if it is the row of a table."""
        if "\t" in self.text:
            problem, remedy = f"found a TAB in {self.text[:40]!r}", "`ordsmed predict` reads tables"
            raise DataError(self.place, problem, "a text a line", remedy)
        return self

    def pair(self) -> TypedText:
        """Return the pair that this line holds, or raise an error if it is not text<TAB>text."""
        columns = self.text.split("\t")
        if len(columns) != 2 or not all(map(str.strip, columns)):
            wanted = "text<TAB>second text, because the model learned pairs; as words: TEXT SECOND"
            raise DataError(self.place, f"found {self.text[:40]!r}", wanted)
        return TypedText(self.place, *columns)


def typed_texts(
    verb: str, words: Sequence[str], file: str, stream: IO[bytes], *, pairs: bool = False
) -> list[TypedText] | Iterator[TypedText]:
    """Return the texts, or pairs of texts, to ask a model about; empty lines are skipped.

    A word that names a file is replaced by the file's lines. `-`, or neither words nor `file`, means standard input,
    whose lines are returned one by one as they arrive. A line is a text, or text<TAB>text; two words are one pair.
    """
    if words and file:
        raise RecipeError(verb, "found --file next to a text", "TEXT..., or --file FILE")
    checked = TypedText.pair if pairs else TypedText.alone
    if file not in ("", "-"):
        return [checked(text) for path in read.files(file) for text in _lines_of(path)]
    if not words or list(words) == ["-"]:
        return map(checked, _lines_of_stream(verb, stream))
    if pairs and len(words) == 2 and not any(map(is_file, words)):
        first, second = (_text_of(verb, word).text for word in words)
        return [TypedText(verb, first, second)]
    return [checked(text) for word in words for text in _texts_of(verb, word)]


def _lines_of_stream(verb: str, stream: IO[bytes]) -> Iterator[TypedText]:
    if stream.isatty():
        say(f"{verb}: type one text per line; Ctrl-D ends")
    empty = True
    for number, line in enumerate(lines(stream), 1):
        if line.strip():
            empty = False
            yield TypedText(f"{INPUT}:{number}", line.lstrip("\ufeff"))
    if empty:
        raise DataError(INPUT, "is empty", "a text a line")


def _texts_of(verb: str, word: str) -> list[TypedText]:
    """Return the lines of the file of this name, or the word itself."""
    return _lines_of(Path(word)) if is_file(word) else [_text_of(verb, word)]


def _text_of(verb: str, word: str) -> TypedText:
    if LIKE_A_FILE.fullmatch(word):
        say(f"{word}: no such file, so it is read as a text")
    if not word.strip():
        raise RecipeError(verb, "found an empty text", "a text")
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(verb, f"invalid UTF-8 ({error.reason})", "UTF-8 text") from None
    return TypedText(verb, word)


def _lines_of(path: Path) -> list[TypedText]:
    texts = [TypedText(f"{path}:{at}", line) for at, line in enumerate(read.lines(path), 1) if line.strip()]
    if not texts:
        raise DataError(path, "is empty", "a text a line")
    say(f"{path}: {many(len(texts), 'text')}")
    return texts


def is_file(name: str) -> bool:
    """Return whether a word names a file; a long text is not a valid name."""
    with contextlib.suppress(OSError, ValueError):
        return bool(name) and Path(name).is_file()
    return False


def blocks(entries: Iterable[T]) -> Iterator[list[T]]:
    """Yield a list in batches, but entries that arrive one by one as batches of one."""
    size, remaining = AT_ONCE if isinstance(entries, list) else 1, iter(entries)
    while block := list(itertools.islice(remaining, size)):
        yield block


def one_line(text: str) -> str:
    """Return a text with each run of white space as one space."""
    return re.sub(r"\s+", " ", text)

"""Read CoNLL files as sentences of tagged words, and write them back with predicted tags.

    1 \\t One \\t one \\t NUM ...   (CoNLL-U)    -> words, tags, and the offset of each tag in the file
    One  CD  B-NP  O            (columns)    <- the same file with only its tags changed

Ranges such as 1-2, empty nodes such as 1.1, comments and -DOCSTART- rows are not words, and are kept in the file. In
files of columns a line that begins with `#` is a comment if it is before a sentence and does not have the columns of a
row.
"""

from __future__ import annotations

import contextlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.text.read import Errors, blocks, decoded, files, replacements_told

NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
TAGS = ("upos", "xpos", "feats", "deprel", "lemma")  # columns that can be predicted
WORD_NAMES = ("words", "tokens", "form")  # names that data sets often give to the column of words
TAG_NAMES = ("tags", "ner_tags", "pos_tags", "upos", "labels")  # and to the column of tags
WANTED = "a word and its tag per line, a blank line between sentences (CoNLL)"
FORM, FEATS = NAMES.index("form"), NAMES.index("feats")
LONG = 500  # words; a longer sentence is probably two, with the blank line between them missing
BOM = "\ufeff"
_LINE, _END = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)"), re.compile(r"\r\n|\r|\n")
_NUMBER = re.compile(r"([0-9]+)(?:-([0-9]+)|\.[0-9]+)?\Z")
_SENTENCE = re.compile(r"#\s*sent_id\b")
_TABBED, _SPACED = re.compile(r"(?<![^\t])[^\t]*"), re.compile(r"[^ \t]+")


@dataclass(frozen=True)
class Column:
    """The column of the tags."""

    named_as: str
    index: int  # 0 is the first, -1 the last
    key: str = ""  # the tag is the value of this key in `key=value` pairs

    @staticmethod
    def of(column: str | int) -> Column:
        """Parse `lemma`, `upos`, `xpos`, `feats`, `deprel`, `feats:KEY`, `misc:KEY`, or a number from 1."""
        column = str(column)
        if re.fullmatch(r"-?[1-9][0-9]*", column):
            return Column(column, int(column) - (column[0] != "-"))
        if named := re.fullmatch(r"(lemma|upos|xpos|feats|deprel)|(feats|misc):(.+)", column, re.IGNORECASE):
            return Column(column, NAMES.index((named[1] or named[2]).lower()), named[3] or "")
        raise ValueError(
            f"column: found {column!r}; wanted lemma, upos, xpos, feats, deprel, feats:KEY, misc:KEY, "
            "or a number: 1 is the first column, -1 the last"
        )

    @property
    def named(self) -> bool:
        return not self.named_as.lstrip("-").isdigit()

    def among(self, width: int) -> int | None:
        return self.index % width if -width <= self.index < width else None


@dataclass(frozen=True)
class TaggedFile:
    """The text of a file, and the offsets of its tags."""

    path: Path
    text: str
    key: str = ""
    features: bool = False  # the column feats: "_" is a tag too, and keys are sorted
    gap: str = ""  # separator before the tag of a row that has no column for it yet
    spots: array[int] = field(default_factory=lambda: array("q"))  # start, end, start, end, ... of the tags

    @property
    def width(self) -> int:
        line = _begin(self.text)[2]
        return len(_parted(line).findall(line))

    def tag(self, written: str) -> str | None:
        """Return the tag that is written in a cell, or None if the cell holds none."""
        if self.key:
            written = next((p.partition("=")[2] for p in written.split("|") if p.partition("=")[0] == self.key), "")
        return written if written not in ("", "_") else "_" if self.features else None

    def pieces(self, tags: Iterator[str]) -> Iterator[str]:
        """Yield the text with these tags in place of its own."""
        at = 0
        for start, end in zip(self.spots[::2], self.spots[1::2], strict=True):
            tag = next(tags)
            yield self.text[at:start] + self.gap
            yield self._with(self.text[start:end], tag) if self.key else tag
            at = end
        yield self.text[at:]

    def _with(self, written: str, tag: str) -> str:
        """Return pairs such as `Case=Nom|Number=Sing` with the key set to the tag, or without the key for `_`."""
        pairs = [] if written in ("", "_") else written.split("|")
        keys = [pair.partition("=")[0] for pair in pairs]
        if self.key in keys:
            at = keys.index(self.key)
            del pairs[at]
        else:
            after = (n for n, key in enumerate(keys) if self.features and key.lower() > self.key.lower())
            at = next(after, len(pairs))
        if tag != "_":
            pairs.insert(at, f"{self.key}={tag}")
        return "|".join(pairs) or "_"


@dataclass(frozen=True)
class TaggedSentences:
    """Lists of words and tags of each sentence. A word without a tag has None; a sentence may be empty."""

    words: list[list[str]] = field(default_factory=list)
    tags: list[list[str | None]] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)  # file and line at which each begins
    sources: list[TaggedFile] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.words)

    def place(self, sentence: int, word: int) -> str:
        """Return file and line of a word, or of its sentence if the files are not kept."""
        number = sum(map(len, self.words[:sentence])) + word
        for source in self.sources:
            if 2 * number < len(source.spots):
                return f"{source.path}:{1 + len(_END.findall(source.text[: source.spots[2 * number]]))}"
            number -= len(source.spots) // 2
        return self.starts[sentence]

    def to_learn(self) -> TaggedSentences:
        """Return the sentences that have a tag, for training. Their files are not kept."""
        tagged = [n for n, tags in enumerate(self.tags) if any(tag is not None for tag in tags)]
        if len(tagged) < len(self):
            say(f"{self.sources[0].path}: {len(self) - len(tagged):,} of {len(self):,} sentences have no tag: left out")
        words, tags = [self.words[n] for n in tagged], [self.tags[n] for n in tagged]
        return TaggedSentences(words, tags, [self.starts[n] for n in tagged])


class _TokenLine(NamedTuple):
    number: int  # line number
    word: str
    start: int  # offset of the tag in the text
    written: str  # text of the tag's cell


def read(
    paths: str | Sequence[str], column: str | int, *, word: int = 1, tagged: bool = True, errors: Errors = "strict"
) -> TaggedSentences:
    """Read the sentences of CoNLL-U files, or of files in columns with the words in column `word`.

    If they need not be `tagged`, the column of tags may be missing in files of columns; it is written as the last one.
    """
    wanted, words, sentences = Column.of(column), Column.of(word), TaggedSentences()
    for path in files(paths):
        data = b"".join(blocks(path))
        _refuse_others(path, data)
        with replacements_told(path):
            text = BOM * data.startswith(BOM.encode()) + decoded(data, ["utf-8"], errors, path)[0]
        begin = _begin(text)
        line = begin[2]
        if ".conllu" in path.suffixes or (line.count("\t") == 9 and _NUMBER.match(line.partition("\t")[0])):
            at = wanted.among(10)
            if at is None:
                raise DataError(path, "10 columns of CoNLL-U", f"column {wanted.named_as}, that of the tags")
            source, rows = TaggedFile(path, text, wanted.key, features=at == FEATS), _conllu_rows(path, text, at)
        else:
            source, rows = _columns(path, text, wanted, words, tagged, begin)
        _gather(source, rows, sentences, wanted.named_as if tagged else "")
    return sentences


def texts(sentences: TaggedSentences, predictions: Sequence[Sequence[str]]) -> list[str]:
    """Return the text of each file that was read, with these tags in place of its own."""
    if [len(tags) for tags in predictions] != [len(words) for words in sentences.words]:
        raise ValueError("predictions: found other numbers of tags than of words; wanted one for each word")
    tags = chain.from_iterable(predictions)
    return ["".join(source.pieces(tags)) for source in sentences.sources]


def refuse_pairs(source: TaggedFile) -> None:
    """Raise DataError if the last column of CoNLL-U, MISC, is requested for tags but has pairs such as SpaceAfter=No.

    Naming the column 10 skips this check.
    """
    rows = [line.split("\t") for _, _, line in _lines(source.text) if line.count("\t") == 9]
    rows = [row for row in rows if _NUMBER.match(row[0])]
    keys = Counter(pair.partition("=")[0] for row in rows for pair in row[-1].split("|") if "=" in pair)
    if not keys:
        return
    predictable = [name for name in TAGS if any(row[NAMES.index(name)] != "_" for row in rows)]
    predictable += [f"misc:{key}" for key, _ in keys.most_common(5)]
    problem = "CoNLL-U, whose last column is MISC: pairs, not tags"
    raise DataError(
        source.path, problem, f"one of {', '.join(predictable)}", f"name it, as in `task.column={predictable[0]}`"
    )


def cells(line: str, location: str) -> tuple[list[str], re.Match[str]]:
    """Return the ten columns of a CoNLL-U line, and the match of its number: first word, last word of a range."""
    fields = line.split("\t")
    if len(fields) != 10:
        problem = many(len(fields), "column")
        raise DataError(location, problem, "ten of CoNLL-U, with tabs between them", "fix or remove the line")
    if not (number := _NUMBER.match(fields[0])):
        raise DataError(
            location, f"a word numbered {fields[0][:20]!r}", "a number such as 1, a range such as 1-2, or 1.1"
        )
    return fields, number


def _refuse_others(path: Path, data: bytes) -> None:
    if ".csv" in path.suffixes:
        raise DataError(path, "commas between its columns, by its name", WANTED)
    begin = data.removeprefix(BOM.encode()).lstrip()
    if begin[:1] in (b"{", b"[") and any(map(_is_object, (begin, begin.split(b"\n", 1)[0]))):
        raise DataError(path, "JSON", WANTED, "`squad` reads questions, `classify` tables")


def _is_object(data: bytes) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(data)
        return isinstance(value[0] if isinstance(value, list) and value else value, dict)
    return False


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    for number, match in enumerate(_LINE.finditer(text, text.startswith(BOM)), 1):
        yield number, match.start(), match[1]


def _begin(text: str) -> tuple[int, int, str]:
    return next((row for row in _lines(text) if not _apart(row[2]) and row[2][0] != "#"), (1, 0, ""))


def _parted(line: str) -> re.Pattern[str]:
    return _TABBED if "\t" in line else _SPACED


def _apart(line: str) -> bool:
    return not line or line.isspace() or line.startswith("-DOCSTART-")


def _conllu_rows(path: Path, text: str, at: int) -> Iterator[_TokenLine | None]:
    inside, split = False, []
    for number, start, line in _lines(text):
        if _apart(line):
            inside = False
            yield None
            continue
        if line[0] == "#":
            begins, row = bool(_SENTENCE.match(line)), None
        else:
            row, numbered = cells(line, f"{path}:{number}")
            begins = numbered[1] == "1" and "." not in row[0]
        if begins and inside:
            split.append(number)
            inside = False
            yield None
        if row and row[0].isdigit():
            inside = True
            yield _TokenLine(number, row[FORM], start + sum(map(len, row[:at])) + at, row[at])
    if split:
        count = many(len(split), "sentence", "begins", "begin")
        say(f"{path}: {count} without a blank line before them, the first in line {split[0]:,}")


def _columns(
    path: Path, text: str, column: Column, words: Column, tagged: bool, begin: tuple[int, int, str]
) -> tuple[TaggedFile, Iterator[_TokenLine | None]]:
    number, _, line = begin
    location, pattern = f"{path}:{number}", _parted(line)
    width = len(pattern.findall(line)) if line else 0
    if not width:
        return TaggedFile(path, text), iter(())
    word, tag = words.among(width), None if column.named else column.among(width)
    if word is None:
        raise DataError(location, many(width, "column"), f"column {words.named_as}, that of the words")
    if not tagged and (column.named or tag == word or column.index == width):
        if width > 1:
            say(f"{path}: {many(width, 'column')}, none of them {column.named_as}: the correct tags are unknown")
        gap = " " if pattern is _SPACED and width > 1 else "\t"
        return TaggedFile(path, text, gap=gap), _column_rows(path, text, pattern, number, width, word, None)
    if column.named:
        remedy = "or name a column by its number"
        raise DataError(location, many(width, "column"), f"CoNLL-U for {column.named_as}", remedy)
    if tag is None or tag == word:
        problem = f"{many(width, 'column')}, the words in column {words.named_as}"
        raise DataError(location, problem, f"column {column.named_as}, that of the tags, next to it")
    return TaggedFile(path, text), _column_rows(path, text, pattern, number, width, word, tag)


def _column_rows(
    path: Path, text: str, pattern: re.Pattern[str], first: int, width: int, word: int, tag: int | None
) -> Iterator[_TokenLine | None]:
    """Yield the words, and None where a sentence ends. Each row must have as many columns as line `first`."""
    length, longest, comments = 0, (0, 0), 0
    for number, start, line in _lines(text):
        if _apart(line):
            length = 0
            yield None
            continue
        fields = list(pattern.finditer(line))
        if len(fields) != width and line[0] == "#" and not length:
            comments += 1
            continue
        if len(fields) != width:
            wanted = f"{width} as in line {first}"
            raise DataError(f"{path}:{number}", many(len(fields), "column"), wanted, "fix or remove the line")
        length += 1
        longest = max(longest, (length, number))
        begin, end = (len(line), len(line)) if tag is None else fields[tag].span()
        yield _TokenLine(number, fields[word][0], start + begin, line[begin:end])
    if comments:
        say(f"{path}: {many(comments, 'line')} beginning with # taken for comments")
    if longest[0] > LONG:
        say(f"{path}: a sentence of {longest[0]:,} words ends in line {longest[1]:,}; are blank lines missing there?")


def _gather(source: TaggedFile, rows: Iterator[_TokenLine | None], sentences: TaggedSentences, wanted: str) -> None:
    """Add the rows of a file to `sentences`. `wanted`: the column where tags must be, or "" if they may be missing."""
    known: dict[str, str | None] = {}
    words: list[str] = []
    tags: list[str | None] = []
    previous_words = len(sentences.words)
    for row in chain(rows, [None]):
        if row:
            if not words:
                sentences.starts.append(f"{source.path}:{row.number}")
            if row.written not in known:
                known[row.written] = source.tag(row.written)
            words.append(row.word)
            tags.append(known[row.written])
            source.spots.extend((row.start, row.start + len(row.written)))
        elif words:
            sentences.words.append(words)
            sentences.tags.append(tags)
            words, tags = [], []
    sentences.sources.append(source)
    total, empty = len(source.spots) // 2, sum(sentence.count("") for sentence in sentences.words[previous_words:])
    bare = sum(sentence.count(None) for sentence in sentences.tags[previous_words:])
    if not total:
        raise DataError(source.path, "no words", "sentences of words with their tags, one word per line")
    several = [word for sentence in sentences.words[previous_words:] for word in sentence if " " in word]
    if len(several) > total / 2:
        problem = f"{len(several):,} of {total:,} words are several words, as `{several[0][:40]}`"
        raise DataError(source.path, problem, WANTED, "`classify` reads tables of texts")
    if wanted and bare == total:
        raise DataError(source.path, f"no word has a tag in column {wanted}", "tags", "name their column")
    if wanted and bare:
        say(f"{source.path}: {bare:,} of {total:,} words have no tag in column {wanted}")
    if empty:
        say(f"{source.path}: {empty:,} of {total:,} words are empty")


def of_columns(location: str, columns: Mapping[str, Sequence[Any]], column: str) -> str:
    """Return a data set with a column of words and one of tags as the text of a file with two columns.

    Args:
        location: what error messages name.
        columns: a list of words, or of tags, for each sentence.
        column: the name of the tags; if there is none, the usual names are tried.
    """
    names = [next((name for name in usual if name in columns), "") for usual in (WORD_NAMES, (column, *TAG_NAMES))]
    if not all(names):
        wanted = f"one of {', '.join(WORD_NAMES)}, and one of {', '.join(TAG_NAMES)}"
        raise RecipeError(location, f"found the columns {', '.join(columns)}", wanted)
    sentences = []
    for number, row in enumerate(zip(*(columns[name] for name in names), strict=True), 1):
        if not all(isinstance(cells, list | tuple) for cells in row) or len(row[0]) != len(row[1]):
            raise RecipeError(
                f"{location}: row {number}", f"found {str(row)[:60]}", "a list of words, and as many tags"
            )
        rows = [(str(word), "_" if tag in (None, "") else str(tag)) for word, tag in zip(*row, strict=True)]
        if wrong := next((cell for pair in rows for cell in pair if not cell or re.search(r"[\t\r\n]", cell)), None):
            raise RecipeError(
                f"{location}: row {number}", f"found {wrong!r}", "words and tags without tabs and line ends"
            )
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in rows))
    return "\n".join(sentences)

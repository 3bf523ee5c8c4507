"""The input texts of `make`: files sorted by the source that reads them, and a sample used to plan the training.

my-texts/a.txt, b.epub, c.html, d.doc  ->  [[source]] tables of a corpus: text, books, web; left out: 1 .doc
                                       ->  about 0.5 million words, nb 96 %, 1,200 documents; share dropped by cleaning
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ordsmed.base import menu, settings
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.keys import text_number
from ordsmed.base.run import Run
from ordsmed.base.say import many, size
from ordsmed.corpus.folder import documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.corpus.sources import is_refined
from ordsmed.maker.runner import cpu_seconds
from ordsmed.text import encodings, language, read
from ordsmed.text.markup import line_wrapping, pdf
from ordsmed.text.source import Piece

SAMPLE = 4_000_000  # characters of the sample, over all files
OF_A_FILE = 200_000  # most characters of each file
SECONDS = 6.0  # seconds for the sample
LOOKED_AT = 2_000  # files that are opened to find their kind; later files go by their suffix, if known
LISTED = 50  # files that a recipe names one by one; more are named by patterns if possible
PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)\Z", re.IGNORECASE)
SUFFIXES = {  # of files, by the source that reads them; others are plain text
    "books": "epub",
    "web": "html htm xhtml warc wet",
    "jsonl": "jsonl ndjson json",
    "csv": "csv tsv",
    "parquet": "parquet arrow",
    "conllu": "conllu",
    "tar": "tar tgz zip",
    "wikipedia": "xml",
    "office": "docx docm odt pdf",
}
BY_SUFFIX = {suffix: kind for kind, suffixes in SUFFIXES.items() for suffix in suffixes.split()}
WHOLE = {  # sources that check by themselves which files they can read
    "books": {"broken": "skip", "errors": "replace"},
    "web": {},
    "tar": {"errors": "replace"},
    "conllu": {},
    "office": {},
}
REMEDIES = {"doc": "catdoc", "rtf": "pandoc", "mobi": "Calibre"}
UNREADABLE, EMPTY = "unreadable file", "empty file"
NAMED = 5  # files left out that the plan names, with the reason
TEXT_KEYS = ("text", "content", "body", "article", "document", "raw_content", "sentence", "review")
LONG_LINE = 250  # characters: if lines without blank lines between them are longer, each is a document
CERTAIN = 0.75  # share of the text of known language above which its language is certain
RARE = 1e-4  # share of a text's characters that need no pieces
FEWEST_WORDS = 2_000  # least words to train on
CLEAN: tuple[dict[str, Any], ...] = ({"kind": "unicode"}, {"kind": "ratios"})
CLEAN_WEB: tuple[dict[str, Any], ...] = ({"kind": "boilerplate"},)


@dataclass(frozen=True)
class InputTexts:
    """The files to read, by source, and the files left out."""

    sources: tuple[dict[str, Any], ...]  # tables of a corpus recipe
    files: int
    bytes: int
    left_out: dict[str, int] = field(default_factory=dict)  # reason -> number of files
    unreadable: tuple[str, ...] = ()  # names of unreadable files among them
    skipped: tuple[str, ...] = ()  # the first files left out, each with the reason
    corpus: str = ""  # the folder of a finished corpus, if that was named

    @property
    def marked_up(self) -> bool:
        recipe = settings.decode(Corpus, {"source": list(self.sources)}, "make")
        return any(map(is_refined, recipe.sources))

    @property
    def web(self) -> bool:
        """Whether there are web pages, whose boilerplate must be removed."""
        return any(source["kind"] == "web" for source in self.sources)

    @property
    def clean(self) -> list[dict[str, Any]]:
        return [*(CLEAN_WEB if self.web else ()), *CLEAN]


@dataclass(frozen=True)
class TextSurvey:
    """Statistics of all input texts, estimated from a sample."""

    characters: float
    words: float
    documents: float
    languages: dict[str, float]  # share of the sample's characters, the largest first
    encodings: dict[str, int]  # files of the sample that are not in UTF-8
    dropped: dict[str, float]  # share of the sample's characters that cleaning drops, by rule
    alphabet: int  # distinct characters that make up all but one in ten thousand
    sampled: int  # characters
    seconds: float  # seconds of one core for reading and cleaning a million characters
    broken: tuple[str, ...] = ()  # files of the sample that cannot be read, each with the reason

    @property
    def language(self) -> str:
        """The language of the texts; empty if it is uncertain."""
        known = {code: share for code, share in self.languages.items() if code != language.UNKNOWN}
        if not known:
            return ""
        first = next(iter(known))
        kin = next((codes for codes in language.FAMILIES.values() if first in codes), (first,))  # often confused
        share = sum(known.get(code, 0.0) for code in kin)
        return first if share >= max(CERTAIN * sum(known.values()), 0.5) else ""


def input_texts(names: Sequence[str], out: str = "") -> InputTexts:
    """Return the texts of files, folders, patterns or the folder of a corpus, without files in the folder `out`."""
    if len(names) == 1 and names[0] == "stdlib":
        return InputTexts(({"kind": "stdlib"},), 0, menu.load("corpora", "stdlib")().size())
    if any(kind_of_folder(name) is FolderKind.CORPUS for name in names):
        return _corpus(names)
    target = Path(out).resolve() if out else None
    inside = target is not None and any(target.is_relative_to(Path(name).resolve()) for name in names)
    paths = [path for path in read.files(names) if not (inside and path.resolve().is_relative_to(target or ""))]
    groups, left_out, unreadable, skipped = _grouped(paths)
    if not groups:
        problem = f"holds no text that can be read ({_counted(dict(left_out.most_common()))})"
        raise DataError(", ".join(names), problem, "text files, books, pages, tables or a dump", _remedy(left_out))
    whole = len(groups) == 1 and not left_out and not inside
    sources = tuple(
        {**json.loads(key), "path": _paths(names, files, paths, whole)} for key, files in sorted(groups.items())
    )
    used = [path for files in groups.values() for path in files]
    counts = dict(left_out.most_common())
    return InputTexts(sources, len(used), read.size(used), counts, tuple(unreadable), tuple(skipped))


def _corpus(names: Sequence[str]) -> InputTexts:
    if len(names) > 1:
        raise RecipeError(names[0], "is a corpus, named with other texts", "one corpus, or texts alone")
    if Run(Path(names[0])).status.get("state") != "done":
        remedy = "run the command that started it again"
        raise RecipeError(names[0], "is a corpus that is not finished", "a finished one", remedy)
    return InputTexts((), 0, read.size(read.files(names[0])), corpus=names[0])


def _grouped(paths: Sequence[Path]) -> tuple[dict[str, list[Path]], Counter[str], list[str], list[str]]:
    """Group files by the table of their source, as JSON; also return the facts about files left out.

    These are the count of each reason, the names of unreadable files, and the first files left out with their reasons.
    """
    groups, left_out, unreadable = defaultdict[str, list[Path]](list), Counter[str](), list[str]()
    skipped = list[str]()
    usual = defaultdict[str, Counter[str]](Counter)  # by suffix: the kinds of its files
    for number, path in enumerate(paths):
        suffix = suffix_of(path)
        if number >= LOOKED_AT and usual[suffix]:
            key = usual[suffix].most_common(1)[0][0]
        else:
            key = json.dumps(_source_of(path, suffix))
            usual[suffix][key] += 1
        table = json.loads(key)
        if isinstance(table, str):
            left_out[table] += 1
            unreadable += [path.name] if table == UNREADABLE else []
            skipped += [f"{path.name}: {_reason(table)}"] if len(skipped) < NAMED else []
        else:
            groups[key].append(path)
    return groups, left_out, unreadable, skipped


def _reason(kind: str) -> str:
    noun, _, hint = kind.partition("|")
    tool = REMEDIES.get(noun.removesuffix(" file").removeprefix("."))
    known = {EMPTY: "is empty", UNREADABLE: "cannot be read"}
    return hint or known.get(noun) or ("is not text" + (f"; {tool} makes text of it" if tool else ""))


def suffix_of(path: Path) -> str:
    """Return a file's suffix in lower case, without that of its compression."""
    name = PACKED.sub("", path.name).lstrip(".")
    return name.rpartition(".")[2].lower() if "." in name else ""


def _paths(names: Sequence[str], files: Sequence[Path], paths: Sequence[Path], whole: bool) -> str | list[str]:
    """Return the names if they mean exactly these files, or patterns if those do, else every file."""
    if not whole and len(files) > LISTED:
        endings = {"".join(path.suffixes) for path in files}
        if all(endings) and sum("".join(path.suffixes) in endings for path in paths) == len(files):
            folders = [name for name in names if Path(name).is_dir()]
            return [f"{folder}/**/*{ending}" for folder in folders for ending in sorted(endings)]
    every = list(names) if whole else list(map(str, files))
    return every[0] if len(every) == 1 else every


def _counted(left_out: Mapping[str, int]) -> str:
    reasons = [(count, *reason.partition("|")) for reason, count in islice(left_out.items(), 5)]
    return ", ".join(many(count, noun) + (f" ({hint})" if hint else "") for count, noun, _, hint in reasons)


def _remedy(left_out: Counter[str]) -> str:
    for reason, _ in left_out.most_common():
        if tool := REMEDIES.get(reason.removesuffix(" file").removeprefix(".")):
            return f"{tool} makes text of {reason}s"
    return "name other files"


def _source_of(path: Path, suffix: str) -> dict[str, Any] | str:
    """Return the table of a source that reads this file, without its path; or the reason for leaving it out."""
    kind = BY_SUFFIX.get(suffix, "text")
    if kind == "web" and not find_spec("trafilatura"):
        return "HTML page|pip install 'ordsmed[corpora]' reads them"
    if kind == "parquet" and not find_spec("pyarrow"):
        return "Parquet file|pip install 'ordsmed[parquet]' reads them"
    if suffix == "pdf" and not pdf.is_installed():
        return f"PDF file|{pdf.NO_PYPDF} reads them"
    if kind in WHOLE:
        return _readable(path) or {"kind": kind, **WHOLE[kind]}
    try:
        sample = next(read.blocks(path), b"")[: encodings.SAMPLE]
    except (DataError, OSError):
        return f".{suffix} file" if path.name.lower().endswith(read.ARCHIVES) else UNREADABLE
    if not sample:
        return EMPTY
    if kind == "parquet":
        return _table(kind, _parquet_columns(path))
    if kind == "wikipedia" or sample.startswith(b"<mediawiki"):  # parts of large dumps are named .xml-p1p41242.bz2
        return {"kind": "wikipedia", "errors": "replace", "cut": "take"} if b"<mediawiki" in sample else ".xml file"
    if not _is_text(sample):
        return f".{suffix} file" if suffix else "file without text"
    text = read.decoded(sample, [encodings.guess(sample, False) or "utf-8"], "replace", path)[0]
    if kind in ("jsonl", "csv"):
        return _table(kind, _columns(kind, suffix, text))
    return _prose(text)


def _readable(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return "" if file.read(1) else EMPTY
    except OSError:
        return UNREADABLE


def _is_text(sample: bytes) -> bool:
    """Return whether a sample has no zero bytes, except in UTF-16 and UTF-32."""
    return b"\0" not in sample or encodings.marked(sample) is not None


def _prose(text: str) -> dict[str, Any]:
    """Return the source of plain text by how it separates documents; short wrapped lines mean a book."""
    lines = text.splitlines()[:-1] or [text]
    if len(lines) > 20 and len(line_wrapping.joined(lines)) < 0.7 * sum(map(bool, lines)):
        return {"kind": "books", "broken": "skip", "errors": "replace"}
    blocks = [block.count("\n") + 1 for block in re.split(r"\n\s*\n", text.strip())]
    if len(blocks) > 1:
        apart = "blank" if median(blocks) >= 2 else "file"
    else:
        apart = "line" if len(lines) > 1 and fmean(map(len, lines)) > LONG_LINE else "file"
    return {"kind": "text", "apart": apart, "errors": "replace", "encoding": "auto"}


def _table(kind: str, columns: Sequence[str]) -> dict[str, Any] | str:
    """Return the source of files with columns or keys, with the one that holds the text."""
    names = {"jsonl": "JSON file", "csv": "table", "parquet": "Parquet file"}
    if not columns:
        return f"{names[kind]}|without a column of text"
    key = next((name for name in TEXT_KEYS if name in columns), columns[0])
    return {"kind": kind, "text_key": key, "errors": "replace"}


def _columns(kind: str, suffix: str, text: str) -> list[str]:
    """Return the keys of text values in the first record, the longest text first."""
    first: Any = None
    if kind == "jsonl":
        try:
            first = json.loads(text.split("\n", 1)[0])
        except ValueError:
            return []
    else:
        rows = list(islice(csv.reader(text.splitlines()[:50], delimiter="\t" if suffix == "tsv" else ","), 40))
        if len(rows) > 1:
            lengths = [sum(len(row[n]) for row in rows[1:] if n < len(row)) for n in range(len(rows[0]))]
            first = {name: "x" * length for name, length in zip(rows[0], lengths, strict=True)}
    if not isinstance(first, dict):
        return []
    texts = {name: value for name, value in first.items() if isinstance(value, str) and value}
    return sorted(texts, key=lambda name: -len(texts[name]))


def _parquet_columns(path: Path) -> list[str]:
    import pyarrow as arrow
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path) if path.suffix.lower() == ".parquet" else arrow.ipc.open_stream(path).schema
    except (arrow.ArrowException, OSError):
        return []
    return [
        column.name
        for column in schema
        if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)
    ]


# --- the sample


def survey(texts: InputTexts) -> TextSurvey:
    """Return figures of the texts, estimated from a sample from all over them."""
    if texts.corpus:
        return _of_corpus(texts)
    began, kept, words, documents = cpu_seconds(), 0, 0, 0
    dropped, languages, characters = Counter[str](), Counter[str](), Counter[str]()
    sample = _Sample(texts)
    with read.tallied() as tally:
        for text in sample:
            documents += 1
            cleaned = _cleaned(text, sample.recipe.clean, tally, dropped)
            kept, words = kept + len(cleaned), words + count_words(cleaned)
            languages[_language(cleaned) if cleaned else ""] += len(cleaned)
            characters.update(cleaned)
    if not kept:
        problem = "holds no prose" + (f": cleaning drops all of it ({', '.join(dropped)})" if dropped else "")
        raise DataError(_names(texts), "; ".join([problem, *sample.broken[:NAMED]]), "running text")
    share = min(1.0, sample.bytes / max(texts.bytes, 1))
    seconds = (cpu_seconds() - began) / sample.characters * 1e6
    if words / share < FEWEST_WORDS:
        problem, wanted = f"holds about {words / share:,.0f} words", f"{FEWEST_WORDS:,} or more, and better a million"
        raise DataError(_names(texts), problem, wanted, "from so few a model learns nothing")
    return TextSurvey(
        kept / share,
        words / share,
        documents / share,
        {code: count / kept for code, count in languages.most_common() if code and count},
        dict(tally.encodings),
        {reason: count / sample.characters for reason, count in dropped.most_common()},
        _alphabet(characters),
        sample.characters,
        seconds,
        tuple(sample.broken),
    )


def _alphabet(characters: Counter[str]) -> int:
    """Return the number of most frequent characters that cover all but a share of `RARE` of the text."""
    wanted, seen = (1 - RARE) * characters.total(), 0
    for number, (_, count) in enumerate(characters.most_common(), 1):
        seen += count
        if seen >= wanted:
            return number
    return len(characters)


def _names(texts: InputTexts) -> str:
    return ", ".join(str(source.get("path", source["kind"])) for source in texts.sources)[:200]


def _cleaned(text: str, cleaners: Sequence[Any], tally: read.Tally, dropped: Counter[str]) -> str:
    """Return the cleaned text; empty if a step drops it, which is counted in `dropped`."""
    for cleaner in cleaners:
        before = tally.left_out.copy()
        cleaned: str | None = cleaner.clean(text, {})
        if cleaned is None:
            dropped[next(iter(tally.left_out - before), menu.kind_of(cleaner))] += len(text)
            return ""
        text = cleaned
    return text


def count_words(text: str) -> int:
    """Count words between white space; in a script without spaces, two characters count as a word."""
    words = len(text.split())
    return words if len(text) < 20 * words else max(words, len(text) // 2)


def _language(text: str) -> str:
    try:
        sample = language.sample(text, 1000)
        return next(iter(language.weigh(sample))) if language.evidence(sample) >= 20 else language.UNKNOWN
    except RecipeError:  # py3langid is not installed, which `lines` reports
        return ""


class _Sample:
    """Documents from files all over the sources, until there are enough or the time is over; counts the bytes read."""

    def __init__(self, texts: InputTexts) -> None:
        self.texts, self.bytes, self.characters = texts, 0, 0
        self.broken: list[str] = []
        self.recipe = settings.decode(Corpus, {"source": list(texts.sources), "clean": texts.clean}, "make")
        self.until, self.until_wall = cpu_seconds() + SECONDS, time.monotonic() + 5 * SECONDS

    def __iter__(self) -> Iterator[str]:
        for source in self.recipe.sources:
            pieces: list[Any] = list(source.pieces()) if hasattr(source, "pieces") else [None]
            pieces.sort(key=lambda piece: text_number(str(piece)))
            before = self.characters
            for piece in pieces:
                try:
                    yield from self._of_piece(source, piece)
                except (OrdsmedError, OSError) as error:
                    self.broken.append(_in_short(piece, error))
                if self._is_enough(before):
                    break

    def _is_enough(self, before: int) -> bool:
        over = cpu_seconds() > self.until or time.monotonic() > self.until_wall
        return over or self.characters - before > SAMPLE / len(self.texts.sources)

    def _of_piece(self, source: Any, piece: Any) -> Iterator[str]:
        """Yield documents of a file, up to the end of a block, because only complete blocks are counted in bytes."""
        start, tally = self.characters, read.tally()
        begins = seen = tally.bytes
        for raw in source.read(piece) if piece else source.documents():
            if tally.bytes != seen and self.characters - start > (OF_A_FILE if piece else SAMPLE):
                self.bytes += seen - begins
                return
            seen = tally.bytes
            document = source.refine(raw) if piece and hasattr(source, "refine") else raw
            if document is not None and document.text:
                self.characters += len(document.text)
                yield document.text
        self.bytes += (tally.bytes - begins) or self.texts.bytes


def _in_short(piece: Piece | None, error: Exception) -> str:
    """Return a file's name without its folder, with the error and its remedy."""
    reason = str(error)
    if isinstance(error, OrdsmedError):
        reason = "; ".join(filter(None, (error.found, error.remedy)))
    return f"{piece.path.name}: {reason}" if piece else reason


def excerpt(texts: InputTexts, characters: int) -> str:
    """Return about `characters` characters of the text, from all over the files."""
    if texts.corpus:
        split = (document.text for path in parts(Path(texts.corpus), "train") for document in documents(path))
        return "\n".join(islice(split, 1000))[:characters]
    taken, length = list[str](), 0
    with read.tallied():
        for text in _Sample(texts):
            taken.append(text[:20_000])
            length += len(taken[-1])
            if length > characters:
                break
    return "\n".join(taken)[:characters]


def _of_corpus(texts: InputTexts) -> TextSurvey:
    status = Run(Path(texts.corpus)).status
    counts = status["train"]
    code = status.get("language") or ""
    alphabet = _alphabet(Counter(excerpt(texts, SAMPLE)))
    return TextSurvey(
        counts.get("characters", 6.0 * counts["words"]),
        counts["words"],
        counts["documents"],
        {code: 1.0} if code else {},
        {},
        {},
        alphabet,
        0,
        0.0,
    )


def lines(texts: InputTexts, of: TextSurvey) -> list[str]:
    where = f"{many(texts.files, 'file')}, {size(texts.bytes)}" if texts.files else f"{size(texts.bytes)}"
    many_words = f"about {of.words / 1e6:,.2f} million words" if of.words >= 1e5 else f"about {of.words:,.0f} words"
    if texts.corpus:
        many_words = many_words.removeprefix("about ")
    most = {code.replace(language.UNKNOWN, "unknown"): share for code, share in islice(of.languages.items(), 5)}
    written = ", ".join(f"{code} {share:.0%}" for code, share in most.items() if share >= 0.005)
    if not written and texts.files:
        written = "language unknown: `pip install 'ordsmed[corpora]'` detects it"
    rest = f"; not in UTF-8: {', '.join(f'{n} in {code}' for code, n in of.encodings.items())}" if of.encodings else ""
    result = [f"{where}; {many_words}{f'; {written}' if written else ''}{rest}"]
    broken = {"broken file": len(of.broken)} if of.broken else {}
    if left_out := texts.left_out | broken:
        result.append(f"left out: {_counted(left_out)}")
        names = [*of.broken, *texts.skipped][:NAMED]
        more = sum(left_out.values()) - len(names)
        result += [f"  {name}" for name in [*names, *([f"and {more:,} more"] if more else [])]]
    if of.dropped:
        losses = ", ".join(f"{reason} {share:.1%}" for reason, share in islice(of.dropped.items(), 3))
        result.append(f"cleaning drops about {sum(of.dropped.values()):.1%}: {losses}")
    return result

"""The verb `encode`: a corpus folder and a tokenizer -> a store of ids for each split.

    train/00000.jsonl -> blocks of lines -> sentences -> ids, lengths, sequences per document -> train.bin, train.idx
                         (in this process, in several, or on a Dask cluster; written in order by this process)

With a vocabulary of words, ids are those of a lexicon, which also holds the words outside the vocabulary.
"""

from __future__ import annotations

import contextlib
import functools
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ordsmed.base import files, run, settings
from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError
from ordsmed.base.folder import RECIPE
from ordsmed.base.machine.host import cores
from ordsmed.base.run import Run, fingerprint
from ordsmed.base.say import Progress, many, say
from ordsmed.base.workers import worker_pool
from ordsmed.corpus.folder import SPLITS, check, documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.lexicon import KEPT as STRANGERS
from ordsmed.data.lexicon import Lexicon, LexiconWriter
from ordsmed.data.record_rows import GIVEN, beside
from ordsmed.data.records import store_records, store_tokens
from ordsmed.data.store import Ids, Ints, Store, StoreWriter, dtype_for
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.data.unknown import MOST, TOLD, UnknownTokens, check_share, is_limited
from ordsmed.data.words import WholeWords, Words
from ordsmed.text import counting, read
from ordsmed.text.document import Document
from ordsmed.text.tokenizer import Tokenizer

BLOCK = 2_000_000  # bytes of lines in a block
EVERY = 5.0  # seconds between checkpoints; a killed run loses no more
VERSION = 2  # of the checkpoints
KEPT = "encode.kept"
EARLY = 20_000_000  # number of tokens after which encoding is stopped if the share of unknown tokens is too high
SHARE = 8_000_000  # bytes of corpus per process


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Settings of `encode`: from a corpus, or records of examples, and a tokenizer to stores of ids."""

    verb: ClassVar[str] = "encode"
    HOW: ClassVar[tuple[str, ...]] = ("processes", "engine", "max_unknown")
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("records", "validation_records")

    corpus: str = ""
    "folder or recipe of a corpus"
    tokenizer: str
    'folder, file or recipe of a tokenizer; a recipe with corpus = "folder" is trained on `corpus`'
    sentences: bool = True
    "store each sentence as a sequence; false: each document"
    max_unknown: float = MOST
    "largest accepted share of unknown tokens; not checked for a vocabulary of words"
    processes: int | None = None
    "number of processes; default: one per core, fewer for a small corpus"
    engine: str | None = None
    "address or file of a Dask scheduler, used instead of processes; its workers must see this folder and the corpus"
    records: str | list[str] = ""
    "instead of a corpus: files or patterns of TFRecords (BERT's or ELECTRA's examples) or ids (nanoGPT's .bin)"
    validation_records: str | list[str] = ""
    "the files of the validation split, in the same formats"
    out: str | None = None
    "output folder; default: work/encode/ and the recipe's name"

    def __post_init__(self) -> None:
        if bool(self.corpus) == bool(self.records):
            problem = f"found {self.corpus} together with records" if self.corpus else "missing"
            raise ValueError(f"corpus: {problem}; wanted a corpus, or `records` of examples")
        at_least(self, processes=1)
        check_share("max_unknown", self.max_unknown)

    def stamp(self) -> object:
        """Return what the result depends on: fingerprints of corpus and tokenizer, or stamps of record files."""
        if self.records:
            made_of = read.stamp(self._records("train") + self._records("validation"))
        else:
            made_of = Run(run.obtain(Corpus, self.corpus)).status["fingerprint"]
        return [made_of, read_tokenizer(self.tokenizer, self.corpus).fingerprint]

    def check_inputs(self) -> None:
        if self.records:
            read.files(self.records)
        else:
            run.check_if_made(lambda: run.obtain(Corpus, self.corpus))
        run.check_if_made(lambda: read_tokenizer(self.tokenizer, self.corpus))

    def perform(self, run: Run) -> dict[str, Any]:
        if self.records:
            return self._examples(run)
        corpus, tokenizer = _corpus(self.corpus), read_tokenizer(self.tokenizer, self.corpus)
        tokenizer.save(run.path / "tokenizer")
        facts = tokenizer.facts
        options = How(run.path / "tokenizer", tokenizer.fingerprint, self.sentences)
        with _lexicon(run.path, tokenizer) as lexicon:
            kept = EncodingState(run.path, f"{VERSION} {fingerprint(self)}", lexicon)
            for split in SPLITS:
                if paths := parts(corpus, split):
                    facts[split] = kept.splits.get(split) or self._split(
                        paths, run.path / split, tokenizer, options, kept
                    )
                    kept.done(split, facts[split])
                    say(_describe(split, facts[split]))
                    self._check_unknown(paths, split, tokenizer, facts[split])
        if lexicon:
            written = Lexicon.open(run.path)
            facts |= {"words": len(written), "long": written.long}
        if not facts.get("train", {}).get("tokens"):
            raise DataError(corpus, "has no tokens to train on", "text that the tokenizer knows", "check the corpus")
        stores = [run.path / f"{split}{end}" for split in SPLITS if split in facts for end in (".bin", ".idx")]
        facts["checksums"] = {path.name: files.checksum(path) for path in stores}
        status = Run(corpus).status
        for split in SPLITS:
            if split in facts and "words" in status.get(split, {}):
                facts[split] = {**facts[split], "words": status[split]["words"]}
        handed_on = ("language", "licence", "title", "lacks", "dropped", "left_out")
        return {**facts, **{key: status[key] for key in handed_on if status.get(key) is not None}}

    def _records(self, split: str) -> list[Path]:
        named = self.records if split == "train" else self.validation_records
        return read.files(named) if named else []

    def _examples(self, run: Run) -> dict[str, Any]:
        tokenizer = read_tokenizer(self.tokenizer, self.corpus)
        tokenizer.save(run.path / "tokenizer")
        splits = {split: paths for split in ("train", "validation") if (paths := self._records(split))}
        raw = all(path.suffix == ".bin" for paths in splits.values() for path in paths)
        taken, ends = (store_tokens, (".bin", ".idx")) if raw else (store_records, (".bin", ".idx", GIVEN))
        facts = {split: taken(paths, run.path / split, tokenizer) for split, paths in splits.items()}
        stores = [run.path / f"{split}{end}" for split in facts for end in ends]
        for split, fact in facts.items():
            self._check_unknown([], split, tokenizer, fact)
        return {**tokenizer.facts, **facts, "checksums": {path.name: files.checksum(path) for path in stores}}

    def _check_unknown(self, paths: list[Path], split: str, tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
        """Report a high share of unknown tokens with examples; in the training split, refuse too many."""
        if is_limited(tokenizer) and facts.get("unknown", 0) > TOLD:
            unknown = UnknownTokens(facts["tokens"], round(facts["unknown"] * facts["tokens"]))
            unknown.look((document.text for path in paths for document in documents(path)), tokenizer)
            unknown.check(f"{self.corpus or 'records'}: {split}", self.max_unknown if split == "train" else 1.0)

    def tidy(self, run: Run) -> None:
        for name in (KEPT, STRANGERS):
            (run.path / name).unlink(missing_ok=True)

    def _split(
        self, paths: list[Path], prefix: Path, tokenizer: Tokenizer, options: How, kept: EncodingState
    ) -> dict[str, Any]:
        size, lexicon = sum(path.stat().st_size for path in paths), kept.lexicon
        processes = min(self.processes or cores(), max(1, size // SHARE) if not self.processes else size)
        unknown_word = lexicon.unknown if lexicon else None
        with (
            StoreWriter(prefix, tokenizer.vocabulary, unknown_word, key=kept.key, words=True) as store,
            worker_pool(processes, self.engine) as map_in_order,
        ):
            total, at = kept.since(store), LinePosition.of(store.note.get("at", {}))
            passed = sum(path.stat().st_size for path in paths[: _index(paths, at)]) + at.byte
            with Progress(prefix.name, size / 1e6, "MB", done=passed / 1e6) as shown:
                for encoded in map_in_order(_encode, ((options, block) for block in _blocks(paths, at))):
                    ids = lexicon.number(encoded.ids, encoded.strangers) if lexicon else encoded.ids
                    store.extend(ids, encoded.lengths, encoded.sequences, encoded.words)
                    total += encoded.text
                    share = store.unknown_share(tokenizer.unknown)
                    if store.token_count > EARLY and share > self.max_unknown:
                        self._check_unknown(paths, prefix.name, tokenizer, {**store.facts(), "unknown": share})
                    kept.save_periodically(store, encoded.end, total)
                    shown.add(encoded.bytes / 1e6, notes=[f"(kept every {EVERY:.0f} s)"])
        stored = sum(prefix.with_name(prefix.name + end).stat().st_size for end in (".bin", ".idx"))
        tokens = max(store.token_count, 1)
        per_token = {"bytes_a_token": round(total / tokens, 4), "stored_a_token": round(stored / tokens, 4)}
        return {**store.facts(), **per_token, "unknown": store.unknown_share(tokenizer.unknown)}


@dataclass(frozen=True)
class How:
    tokenizer: Path
    fingerprint: str
    sentences: bool


@dataclass(frozen=True)
class LinePosition:
    file: str = ""
    byte: int = 0

    @staticmethod
    def of(note: Mapping[str, Any]) -> LinePosition:
        """Read the position from a note; older versions also stored the line number."""
        return LinePosition(note.get("file", ""), note.get("byte", 0))


class EncodingState:
    """The state of an interrupted encoding: finished splits, and the position within the current split."""

    def __init__(self, folder: Path, key: str, lexicon: LexiconWriter | None) -> None:
        self.path, self.key, self.lexicon, self.last = folder / KEPT, key, lexicon, time.monotonic()
        index = files.read_json(self.path) if self.path.exists() else {}
        whole = index.get("key") == key and all((folder / f"{split}.idx").exists() for split in index["splits"])
        self.splits: dict[str, Any] = index["splits"] if whole and self._words(index["words"]) else {}

    def since(self, store: StoreWriter) -> int:
        """Restore the words of a resumed store and return the number of bytes of text that it holds."""
        if store.note and not self._words(store.note["words"]):
            raise DataError(
                self.path.parent / STRANGERS, "words are missing", "those of the store", "encode with --anew"
            )
        return int(store.note.get("text", 0))

    def save_periodically(self, store: StoreWriter, at: LinePosition, text: int) -> None:
        if time.monotonic() - self.last > EVERY:
            words = self.lexicon.keep() if self.lexicon else 0
            store.keep(at=asdict(at), text=text, words=words)
            self.last = time.monotonic()

    def done(self, split: str, facts: dict[str, Any]) -> None:
        self.splits[split] = facts
        words = self.lexicon.keep() if self.lexicon else 0
        files.write_json(self.path, {"key": self.key, "splits": self.splits, "words": words})

    def _words(self, count: int) -> bool:
        return not self.lexicon or self.lexicon.restore(count)


class Encoded:
    """The folder of a finished `encode`, the input of pretraining."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.facts = folder, Run(folder).status

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.folder / "tokenizer")
        if tokenizer.fingerprint != self.facts["tokenizer"]:
            wanted = f"{self.facts['tokenizer']}, the store's"
            raise DataError(self.folder / "tokenizer", f"tokenizer {tokenizer.fingerprint}", wanted, "encode again")
        return tokenizer

    @functools.cached_property
    def train(self) -> Store:
        return self._open("train")

    @functools.cached_property
    def validation(self) -> Store | None:
        return self._open("validation") if self.facts.get("validation", {}).get("tokens") else None

    def check_unknown(self, most: float) -> None:
        """Report unknown tokens, or raise an error if they exceed `most` and the limit of the encoding."""
        train, recipe = self.facts.get("train", {}), self.folder / RECIPE
        if is_limited(self.tokenizer) and "unknown" in train:
            allowed = settings.read(recipe).get("max_unknown", 0.0) if recipe.exists() else 0.0
            unknown = UnknownTokens(train["tokens"], round(train["unknown"] * train["tokens"]))
            unknown.check(self.folder, max(most, allowed))

    def check(self) -> None:
        for name, wanted in self.facts.get("checksums", {}).items():
            files.check(self.folder / name, wanted, "copy it again, or encode it again with --anew")

    def _open(self, split: str) -> Store:
        prefix = self.folder / split
        store = Store.open(prefix, vocabulary=self.facts["vocabulary"], fingerprint=self.facts["tokenizer"])
        if shape := self.facts.get(split, {}).get("given"):
            store.row_length, store.given = shape[1], beside(prefix, shape[0], store.document_count)
        return store


def read_store(name: str) -> Encoded:
    """Return the encoded folder of a name: a folder, or a recipe that is run once while others wait."""
    return Encoded(run.obtain(Encoding, name))


@dataclass(frozen=True)
class PartLines:
    """Some lines of a part file, read by the process that encodes them."""

    path: Path
    start: int  # byte
    end: int
    checked: bool  # check the file's checksum first

    def read(self) -> list[bytes]:
        if self.checked:
            check(self.path)
        with self.path.open("rb") as file:
            file.seek(self.start)
            return io.BytesIO(file.read(self.end - self.start)).readlines()

    def place(self, number: int) -> str:
        """Return the file and line of a document number: `train/00000.jsonl:12`."""
        with self.path.open("rb") as file:
            before = file.read(self.start).count(b"\n")
        return f"{self.path}:{before + number + 1}"


@dataclass(frozen=True)
class EncodedLines:
    ids: Ids
    strangers: list[str]  # words outside the vocabulary of whole words; id (vocabulary size + n) is strangers[n]
    lengths: Ints
    sequences: Ints
    words: Ints  # number of words in each sequence
    text: int  # bytes of text
    bytes: int  # bytes of lines
    end: LinePosition


class LineEncoder:
    def __init__(self, tokenizer: Tokenizer, sentences: bool) -> None:
        import msgspec

        self.words = (
            WholeWords(tokenizer) if tokenizer.whole_words else Words(tokenizer, dtype_for(tokenizer.vocabulary))
        )
        self.sentences = sentences
        self.decode = msgspec.json.Decoder(Document).decode

    def __call__(self, block: PartLines) -> EncodedLines:
        documents = [self._document(block, number, line) for number, line in enumerate(block.read())]
        pieces = [d.sentences() if self.sentences else [d.text] for d in documents]
        ids, lengths = self.words.encode([sentence for piece in pieces for sentence in piece])
        ids, strangers = self.words.strangers(ids)
        sequences = np.fromiter(map(len, pieces), np.int64, len(pieces))
        text = sum(len(d.text) if d.text.isascii() else len(d.text.encode()) for d in documents)
        end = LinePosition(block.path.name, block.end)
        words = np.concatenate([self._words(document) for document in documents])
        return EncodedLines(ids, strangers, lengths, sequences, words, text, block.end - block.start, end)

    def _words(self, document: Document) -> Ints:
        begins = counting.words(document.text)
        if not (self.sentences and document.ends):
            return np.asarray([len(begins)])
        return np.diff(np.searchsorted(begins, document.ends), prepend=0)

    def _document(self, block: PartLines, number: int, line: bytes) -> Document:
        import msgspec

        try:
            document: Document = self.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(block.place(number), str(error), "one document per line", "make the corpus again") from None
        return document


@functools.lru_cache(1)
def _encoder(folder: Path, fingerprint: str, sentences: bool) -> LineEncoder:
    return LineEncoder(Tokenizer.load(folder), sentences)


def _encode(options: How, block: PartLines) -> EncodedLines:
    return _encoder(options.tokenizer, options.fingerprint, options.sentences)(block)


def _index(paths: list[Path], at: LinePosition) -> int:
    return [path.name for path in paths].index(at.file) if at.file else 0


def _blocks(paths: list[Path], at: LinePosition) -> Iterator[PartLines]:
    for path in paths[_index(paths, at) :]:
        begin = start = at.byte if path.name == at.file else 0
        size = path.stat().st_size
        with path.open("rb") as file:
            while start < size:
                file.seek(start + BLOCK)
                file.readline()
                end = min(file.tell(), size)
                yield PartLines(path, start, end, checked=start == begin)
                start = end


def _lexicon(folder: Path, tokenizer: Tokenizer) -> contextlib.AbstractContextManager[LexiconWriter | None]:
    if not tokenizer.whole_words:
        return contextlib.nullcontext()
    assert tokenizer.unknown is not None
    return LexiconWriter(folder, [tokenizer.piece(number) for number in range(tokenizer.vocabulary)], tokenizer.unknown)


def _corpus(name: str) -> Path:
    return run.obtain(Corpus, name)


def _describe(split: str, facts: dict[str, Any]) -> str:
    return (
        f"{split}: {', '.join(many(facts[f'{noun}s'], noun) for noun in ('document', 'sequence', 'token'))}, "
        f"{facts['bytes_a_token']:.2f} bytes of text per token, {facts['unknown']:.3%} unknown"
    )

"""Statistics of a finished corpus: amounts, lengths, languages, and what was left out.

    train/*.jsonl ... -> blocks of documents -> word counts -> lines, stats.json, stats.svg
    status.json       -> sources, cleaning steps, duplicates -> more lines

Words are counted by `counting.py`; bytes are those of the texts in UTF-8, as in `report.md`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.corpus import histogram
from ordsmed.corpus.corpus_reader import corpus_folder, read_documents
from ordsmed.corpus.folder import SPLITS, Count, parts
from ordsmed.corpus.report import PUBLISHED
from ordsmed.data.tokenizer_training import read_tokenizer
from ordsmed.text import language
from ordsmed.text.counting import words
from ordsmed.text.document import Document
from ordsmed.text.tokenizer import Tokenizer

BLOCK = 1 << 20  # characters per block
SAMPLED = 400  # maximum number of documents whose language is guessed
LOOKED_AT = 600  # characters per sample
TOP = 10  # languages and groups of duplicates that are shown


@dataclass
class SplitCounts(Count):
    tokens: int = 0
    a_document: histogram.Counts = field(default_factory=lambda: np.zeros(histogram.BINS, np.int64))
    a_sentence: histogram.Counts = field(default_factory=lambda: np.zeros(histogram.BINS, np.int64))


@dataclass
class Languages:
    """Known languages of documents, and evenly spread samples of documents without one."""

    known: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)
    others: int = 0
    step: int = 1

    def add(self, document: Document) -> None:
        named = document.meta.get("language")
        if isinstance(named, str):
            self.known[named] += 1
            return
        if self.others % self.step == 0:
            self.samples.append(language.sample(document.text, LOOKED_AT))
            if len(self.samples) > SAMPLED:
                self.samples, self.step = self.samples[::2], 2 * self.step
        self.others += 1


def stats(folder: str, *, tokenizer: str | None = None, wide: int = 0) -> list[str]:
    """Count a corpus, write stats.json and stats.svg into its folder, and return lines of at most `wide` columns (0:
    any).
    """
    location, counting = corpus_folder(folder), read_tokenizer(tokenizer) if tokenizer else None
    languages = Languages()
    splits = {name: _counted(name, paths, languages, counting) for name in SPLITS if (paths := parts(location, name))}
    facts_of = {name: _facts(split, counting) for name, split in splits.items()}
    shares, note = _language_shares(languages)
    panels = {
        "words a document": {name: split.a_document for name, split in splits.items()},
        "words a sentence": {name: split.a_sentence for name, split in splits.items()},
    }
    facts = {**facts_of, "languages": shares, "tokenizer": tokenizer}
    return [
        *_amounts(facts_of, tokenizer),
        *_published_sizes(sum(split.words for split in splits.values())),
        *_bars(panels, wide),
        *_section("languages (all splits)", [f"{name}: {share:.1%}" for name, share in [*shares.items()][:TOP]] + note),
        *_history(Run(location).status),
        "",
        _write_stats(location, facts, histogram.svg(panels)),
    ]


def _write_stats(path: Path, facts: Mapping[str, Any], picture: str) -> str:
    try:
        files.write_json(path / "stats.json", facts)
        files.write_text(path / "stats.svg", picture)
    except RunError as error:
        return f"stats.json and stats.svg were not written: {error.place}: {error.found}"
    return f"{path}/stats.svg, {path}/stats.json"


def _counted(name: str, sources: list[Path], languages: Languages, tokenizer: Tokenizer | None) -> SplitCounts:
    split = SplitCounts()
    for block in _blocks(read_documents(name, sources)):
        _count(split, block)
        for document in block:
            languages.add(document)
        if tokenizer:
            sentences = [sentence for document in block for sentence in document.sentences()]
            split.tokens += sum(map(len, tokenizer.encode_batch(sentences)))
    return split


def _blocks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    block, size = list[Document](), 0
    for document in documents:
        block.append(document)
        size += len(document.text)
        if size > BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _count(split: SplitCounts, block: list[Document]) -> None:
    text = "\n".join(document.text for document in block)
    ends = [[0, *(document.ends or [len(document.text)])] for document in block]
    borders = np.fromiter(itertools.chain.from_iterable(ends), np.int64)  # sentence ends, from 0 in each document
    sizes, lengths = np.fromiter(map(len, ends), np.int64), np.array([len(document.text) + 1 for document in block])
    borders += np.repeat(np.cumsum(lengths) - lengths, sizes)
    words_before = np.searchsorted(words(text), borders)  # words that start before each border
    last = np.cumsum(sizes) - 1
    a_document = words_before[last] - words_before[last - sizes + 1]
    a_sentence = np.delete(np.diff(words_before), last[:-1])
    split.documents += len(block)
    split.sentences += len(a_sentence)
    split.words += int(a_document.sum())
    split.characters += len(text) - len(block) + 1
    split.bytes += (len(text) if text.isascii() else len(text.encode())) - len(block) + 1
    split.a_document += histogram.count(a_document)
    split.a_sentence += histogram.count(a_sentence)


def _facts(split: SplitCounts, tokenizer: Tokenizer | None) -> dict[str, Any]:
    names = ("documents", "sentences", "words", "characters", "bytes", *(["tokens"] if tokenizer else []))
    lengths = {"words_a_document": split.a_document, "words_a_sentence": split.a_sentence}
    named = {name: histogram.named(counts) for name, counts in lengths.items()}
    return {**{name: getattr(split, name) for name in names}, **named}


def _language_shares(languages: Languages) -> tuple[dict[str, float], list[str]]:
    """Return the shares of languages, and a note on how many documents were guessed from samples."""
    shares, note = Counter[str](languages.known), list[str]()
    if languages.samples:
        try:
            guessed = Counter(next(iter(language.weigh(sample))) for sample in languages.samples)
        except RecipeError as error:
            return {}, [str(error)]
        for name, count in guessed.items():
            shares[name] += count * languages.others / len(languages.samples)  # type: ignore[assignment]
        note = [f"guessed from {len(languages.samples):,} of {many(languages.others, 'document')} without a language"]
    total = sum(shares.values())
    return {name: round(count / total, 4) for name, count in shares.most_common()}, note


def _amounts(splits: Mapping[str, Mapping[str, Any]], tokenizer: str | None) -> list[str]:
    lines = []
    for name, facts in splits.items():
        counts = ", ".join(
            many(value, unit.removesuffix("s")) for unit, value in facts.items() if isinstance(value, int)
        )
        lines.append(f"{name}: {counts}")
    return lines if tokenizer else [*lines, "tokens: not counted; `--tokenizer NAME` counts them"]


def _published_sizes(count: int) -> list[str]:
    shares = (f"{count / size:.2%} of {name} ({size / 1e6:,.0f} M)" for name, size in PUBLISHED.items())
    return [f"all splits: {many(count, 'word')}: {', '.join(shares)}"]


def _history(status: Mapping[str, Any]) -> list[str]:
    steps = [
        f"{step['name']}: {many(step['documents'], 'document')}, {step['changed']:,} changed, {step['dropped']:,} "
        "dropped"
        for step in status.get("steps", ())
    ]
    sources = [
        f"{s['kind']}: {s['read']:,} read, {many(s['documents'], 'document')}" for s in status.get("sources", ())
    ]
    excluded = {**status.get("dropped", {}), **status.get("left_out", {})}
    duplicates = status.get("duplicates", {})
    lines = [f"{kind}: {duplicates[kind]:,}" for kind in ("exact", "near") if duplicates.get(kind)]
    for group in sorted(duplicates.get("groups", ()), key=lambda group: -group["size"])[:TOP]:
        lines.append(f"{group['size']:,} like {group['kept']}: {group['excerpt']}")
    return [
        *_section("sources", sources),
        *_section("cleaning", steps),
        *_section("left out", [f"{reason}: {count:,}" for reason, count in excluded.items() if count]),
        *_section("duplicates", lines),
    ]


def _bars(panels: Mapping[str, Mapping[str, histogram.Counts]], wide: int) -> Iterator[str]:
    for title, splits in panels.items():
        yield from ("", f"train: {title}", *histogram.lines(splits["train"], wide))


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []

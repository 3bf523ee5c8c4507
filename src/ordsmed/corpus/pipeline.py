"""The command `corpus`: documents -> cleaned, deduplicated, split into sentences -> splits in JSON lines, and a report.

    read    sources -> chunks: every document cleaned by itself, its sentences found (`chunks.py`)
    match   hashes and signatures of all chunks -> duplicates (`dedup.py`, `near.py`)
    write   chunks without duplicates -> train/00000.jsonl, ..., validation/..., test/... (`write.py`)

The files of the steps are in `steps/`. A killed step is resumed, and they are removed when all is written. The split of
a document depends only on a hash of its words and the seed, so equal texts are in the same split.
"""

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from ordsmed.base import files, menu, run, settings
from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.keys import value_key
from ordsmed.base.machine.host import cores
from ordsmed.base.menu import Menu
from ordsmed.base.run import STEPS, Run
from ordsmed.base.say import many, say
from ordsmed.base.screen import command, command_lines
from ordsmed.base.workers import MapInOrder, worker_pool
from ordsmed.corpus import report
from ordsmed.corpus.chunks import Chunk, Reading
from ordsmed.corpus.cleaning import Work
from ordsmed.corpus.decontamination import Decontaminate
from ordsmed.corpus.dedup import Matched, match
from ordsmed.corpus.fitting import changes, fitted
from ordsmed.corpus.signatures import Near
from ordsmed.corpus.sources import CorpusSource, is_refined
from ordsmed.corpus.splits import Shares
from ordsmed.corpus.write import write
from ordsmed.text import read
from ordsmed.text.clean import Form
from ordsmed.text.source import Source

SHARE = 1_000_000  # least bytes of source, possibly packed, per process


def workers_for(size: int) -> int:
    return max(1, min(cores(), size // SHARE))


@dataclass(frozen=True)
class GivenSplits:
    """Texts that are used as validation and test data; nothing else is held out for a split that is given."""

    validation: Annotated[Any, Menu("corpora")] | None = None
    "a source of validation documents"
    test: Annotated[Any, Menu("corpora")] | None = None
    "a source of test documents"


@dataclass(frozen=True)
class Corpus:
    """Settings for building a corpus: a folder of clean documents with sentences, and a validation split."""

    verb: ClassVar[str] = "corpus"
    HOW: ClassVar[tuple[str, ...]] = ("processes", "engine", "keep_steps")
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("portion", "longest", "broken", "max_words")

    source: Annotated[Any, Menu("corpora", many=True)]
    "source of the documents, or a list of sources"
    clean: Annotated[Any, Menu("cleaners", many=True)] = ()
    'cleaning steps in order, such as ["mojibake", {kind = "language", keep = ["en"]}]'
    normalise: Form = "NFC"
    "Unicode normal form of the text"
    shortest: int = 1
    "characters; shorter documents are dropped"
    sentences: str = "rules"
    "how sentences are split: rules, lines, presplit, given (by the source), none, blingfire, or module:function"
    duplicates: Literal["drop", "keep"] = "drop"
    "documents with the same words: keep the first, or all"
    near: Near | None = None
    "a table: also drop near duplicates"
    against: tuple[str, ...] = ()
    "folders of other corpora, whose documents and (near) duplicates of them are dropped here"
    held_out: Decontaminate | None = None
    "evaluation data: documents that contain some of them are dropped"
    validation: float = 0.01
    "share of the documents held out for validation; at least one document if there are two"
    test: float = 0.0
    "share of the documents held out for a test"
    split: str | float | None = None
    'instead of these two: proportions of train, validation and test, such as "949,50,1"'
    exact: bool = False
    "hold out exactly this share; else a document stays in its split when others are added"
    given: GivenSplits = GivenSplits()
    "separate validation or test documents"
    portion: float = 1.0
    "share of the sources that is read: the beginning of files above 1 MB, and the same share of the smaller files"
    max_words: int = 0
    """largest number of words of training text, with held-out text in proportion: documents are chosen by a hash of
    their words and written in its order; the rest is left out and counted; 0: all, in the order of the sources"""
    longest: int = 0
    "characters; a longer document is cut into several at line ends, each with its own split; 0: no limit"
    broken: Literal["refuse", "skip"] = "refuse"
    "a file that cannot be read: stop with an error; or report and count it, and skip the rest of it"
    seed: int = 0
    "decides which documents are held out"
    language: str | None = None
    "for the model card, such as en or nb"
    licence: str | None = None
    "for the model card; default: the licenses of the sources"
    title: str | None = None
    "for the model card"
    shard: int = 64_000_000
    "bytes of a part file"
    keep_steps: bool = False
    "keep the folder `steps`: another threshold or split is then fast, but the corpus is on disk twice"
    processes: int | None = None
    "number of processes; default: one per core, fewer for a small corpus"
    engine: str | None = None
    "address (or file) of a Dask scheduler whose workers share this folder, instead of local processes"
    out: str | None = None
    "folder of the result; default: work/corpus/ and the recipe's name"

    def __post_init__(self) -> None:
        at_least(self, shortest=0, shard=1, processes=1, longest=0, max_words=0)
        if not 0 < self.portion <= 1:
            raise ValueError(f"portion: found {self.portion}; wanted above 0, to 1")
        if not isinstance(self.clean, tuple):  # `clean = "length"` is one step
            object.__setattr__(self, "clean", (self.clean,))
        if self.longest and (marked := next(filter(is_refined, self.sources), None)):
            raise ValueError(f"longest: found with {menu.kind_of(marked)}, which splits its markup itself; wanted 0")
        if self.duplicates == "keep" and (self.near or self.against):
            raise ValueError('duplicates: found "keep"; wanted "drop" with `near` or `against`')
        if self.near and self.near.sources > max(len(self.sources), 1):
            problem = f"near.sources: found {self.near.sources}, so that nothing is kept"
            raise ValueError(f"{problem}; wanted at most {len(self.sources)}, the number of sources")
        if not self.sources:
            raise ValueError("source: found an empty list; wanted at least one table")
        _ = self.shares

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return the sources as a tuple, with names of an alias file resolved."""
        several = (source.sources() if hasattr(source, "sources") else [source] for source in self._notes())
        return tuple(chain.from_iterable(several))

    @property
    def shares(self) -> Shares:
        if self.split is not None:
            shares = Shares.read(str(self.split), self.exact)
        else:
            shares = Shares(self.validation, self.test, self.exact)
        return shares.without(validation=self.given.validation is not None, test=self.given.test is not None)

    def stamp(self) -> object:
        """Return what the result depends on in addition to the recipe."""
        stamps = [source.stamp() for source in self._notes()]
        splits = [source.stamp() for source in (self.given.validation, self.given.test) if source]
        corpora = [run.Run(folder).status["fingerprint"] for folder in self._others()]
        held_out = read.stamp(read.files(self.held_out.paths)) if self.held_out else []
        stamped = [step.stamp() for step in self.clean if hasattr(step, "stamp")]
        more = [part for part in (splits, corpora, held_out, stamped) if part]
        return [*stamps, *more] if more or len(stamps) > 1 else stamps[0]

    def check_inputs(self) -> None:
        for step in self.clean:
            if hasattr(step, "check_inputs"):
                step.check_inputs()
        self.stamp()

    def perform(self, run: Run) -> dict[str, Any]:
        """Read, match and write the corpus. Return the counts."""
        sources = self._sources()
        with worker_pool(self._workers(), self.engine) as map_in_order:
            reading = self.read(run, map_in_order)
            chunks = reading.chunks()
            if not any(chunk.facts.read for chunk in chunks if not sources[chunk.source].purpose):
                left_out = sum((chunk.facts.left_out for chunk in chunks), Counter[str]())
                source = ", ".join(f"{count:,} {reason}" for reason, count in report.largest_first(left_out))
                problem = "no documents at all" + (f"; left out: {source}" if source else "")
                raise DataError(self._named(), problem, "at least one text", "check `source`")
            matched = self.match(reading, chunks, map_in_order)
            noted = (self.near.into, matched.agreeing) if self.near and matched.agreeing is not None else None
            options = (self.shares, self.shard, map_in_order, self.max_words, noted)
            writers, sample = write(run.path, chunks, sources, matched.dropped, *options)
        facts = report.facts(reading.work, chunks, sources, matched, writers)
        if sample is not None:
            facts["beyond"] = {"documents": sample.documents, "words": sample.words}
            facts["left_out"] |= {"beyond max_words": sample.documents} if sample.documents else {}
        facts |= {"set": changes(self.clean, reading.work.clean)}
        if not writers["train"].count.documents:
            problem = f"none of {many(facts['read'], 'document')} is left"
            raise DataError(self._named(), problem, "documents that no step drops", report.dropped_phrase(facts))
        report.print_summary(facts)
        if self.shares.validation and not writers["validation"].count.documents:
            say("validation: empty, because there is only one document")
            facts["lacks"] = ["validation"]
        licences = dict.fromkeys(
            source["licence"] for source in facts["sources"] if source["licence"] and not source["purpose"]
        )
        known = {"language": self.language, "licence": self.licence or "; ".join(licences) or None, "title": self.title}
        report.write(run.path, self.title or run.path.name, {**facts, **known})
        return {**facts, **known}

    def tidy(self, run: Run) -> None:
        if not self.keep_steps:
            shutil.rmtree(run.path / STEPS, ignore_errors=True)

    def read(self, run: Run, map_in_order: MapInOrder, part: tuple[int, int] = (0, 1)) -> Reading:
        sources = self._sources()
        for source in sources:
            if hasattr(source.settings, "prepare"):
                source.settings.prepare()
        grams = self._grams(run.path / STEPS) if self.held_out else None
        clean = fitted(run.path / STEPS, self.clean, sources)
        work = Work(clean, self.normalise, self.shortest, self.sentences, self.seed, self.near, grams)
        reading = Reading(run.path / STEPS, sources, work)
        reading.run(map_in_order, self._workers(), part)
        return reading

    def match(self, reading: Reading, chunks: Sequence[Chunk], map_in_order: MapInOrder) -> Matched:
        if self.duplicates == "keep":
            return Matched()
        return match(reading.folder, chunks, reading.sources, self.near, map_in_order)

    def _grams(self, steps: Path) -> str:
        assert self.held_out
        stamp = [settings.plain(self.held_out), read.stamp(read.files(self.held_out.paths))]
        path = steps / f"held-out-{value_key(stamp, 12)}.npy"
        if not path.exists():
            grams = self.held_out.grams()
            with files.survive_disk(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            grams.save(path)
        return str(path)

    def _sources(self) -> list[CorpusSource]:
        """Return all sources. Given texts and other corpora, whose documents are never dropped, come first."""
        splits = {"validation": self.given.validation, "test": self.given.test}
        first = [CorpusSource(settings, purpose) for purpose, settings in splits.items() if settings]
        corpora = menu.load("corpora", "corpus")
        against = [CorpusSource(corpora(str(folder)), "against") for folder in self._others()]
        skips = self.broken == "skip"
        return [*first, *against, *(CorpusSource(s, "", self.portion, self.longest, skips) for s in self.sources)]

    def _others(self) -> list[Path]:
        return [run.obtain(Corpus, name) for name in self.against]

    def _workers(self) -> int:
        if self.processes:
            return self.processes
        size = sum(source.settings.size() for source in self._sources())
        return workers_for(size)

    def _notes(self) -> tuple[Any, ...]:
        return self.source if isinstance(self.source, tuple) else (self.source,)

    def _named(self) -> str:
        return ", ".join(f"{menu.kind_of(source)} {_place(source)}".strip() for source in self.sources)


def _place(source: Source) -> object:
    return next((location for name in ("path", "urls", "name") if (location := getattr(source, name, None))), "")


def partly(name: str, overrides: Sequence[str], *, part: str | None, until: str | None) -> list[str]:
    """Do a part of the work: one part of a job array, or the steps up to `until`."""
    if until not in (None, "read", "match"):
        raise RecipeError("--until", f"found {until}", "read or match")
    if part and until == "match":
        raise RecipeError("--until", "match, with --part", "--part alone: the chunks of all parts are matched together")
    share = run.parse_part(part)
    recipe, title = run.load(Corpus, name, overrides)
    recipe.check_inputs()
    folder = run.output_folder(recipe, title)
    location = run.Run(folder)
    with contextlib.ExitStack() as alone:
        alone.enter_context(run.locked(folder))
        fits = run.fits(location, recipe)
        if run.finished(folder, "corpus"):
            if not fits:
                raise run.mismatch(folder, recipe, name, overrides)
            return [f"{folder}: exists"]
        if not fits:
            if location.status:
                run.clear(folder)
            location.begin(recipe, began=time.time())
        if part:
            alone.close()  # parts are read side by side
        with worker_pool(recipe._workers(), recipe.engine) as map_in_order:
            reading = recipe.read(location, map_in_order, share)
            chunks = reading.chunks()
            if until == "match":
                recipe.match(reading, chunks, map_in_order)
    count = sum(chunk.facts.documents for chunk in chunks)
    return [
        f"{folder}: {many(len(chunks), 'chunk')} with {many(count, 'document')} are finished",
        *command_lines("next", command("corpus", name, *overrides)),
    ]

"""The verb `tokenizer`: learn a vocabulary from a corpus, or import the one its settings name, and measure it.

corpus/train/*.jsonl -> every k-th document -> Settings.train(texts) -> tokenizer.json, vocab.txt ... + measurements
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ordsmed.base import hub, run, settings
from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.keys import bytes_key
from ordsmed.base.machine.memory import check_fits_memory
from ordsmed.base.menu import Menu
from ordsmed.base.run import Run
from ordsmed.base.say import Progress, many, say
from ordsmed.corpus.folder import documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.mix import Mix, Names, listed
from ordsmed.text.tokenizer import Tokenizer

MEASURED = 2_000_000  # characters of held-out text for measuring the tokenizer

MOST = 1_000_000_000  # default limit of training characters; a distinct word takes about 1 kB
PIECE = 256  # minimum bytes per vocabulary entry during training
OWN_TEXTS = "folder"  # value of `corpus` in recipes that learn from the user's corpus


@dataclass(frozen=True)
class TokenizerTraining:
    """Settings of `tokenizer`: from a corpus to a tokenizer."""

    verb: ClassVar[str] = "tokenizer"
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("mix",)

    tokenizer: Annotated[Any, Menu("tokenizers")]
    "kind of tokenizer, and its settings"
    corpus: Names | None = None
    "folder or recipe of a corpus, a list of them, or a table with weights; not needed if the settings name a file"
    mix: Mix | None = None
    "shares of several corpora by their sizes, as in a pretraining: { temperature = 0.5 } or { unimax = 4 }"
    sample: int | None = None
    "most characters to train on, from documents spread evenly over the corpus; default: all, up to 1e9"
    out: str | None = None
    "output folder; default: work/tokenizer/ and the recipe's name"

    def __post_init__(self) -> None:
        at_least(self, sample=1)
        if self.corpus is None and not getattr(self.tokenizer, "file", None):
            problem = "corpus: missing; wanted a folder or recipe to train on, or a `file` in [tokenizer]"
            raise ValueError(problem)
        listed(self.corpus or OWN_TEXTS, self.mix)
        if self.mix and isinstance(self.corpus, str | None):
            raise ValueError("mix: found with a single corpus; wanted a list of corpora")

    @property
    def corpora(self) -> dict[str, float]:
        return listed(self.corpus) if self.corpus else {}

    def stamp(self) -> object:
        """Return what the result depends on: fingerprints of corpora, and hashes of vocabulary files."""
        marks = [run.Run(run.obtain(Corpus, name)).status["fingerprint"] for name in self.corpora]
        corpus = marks if marks[1:] else next(iter(marks), None)
        settings = [self.tokenizer.stamp()] if hasattr(self.tokenizer, "stamp") else []
        # a hash of every vocabulary file that settings name
        named = getattr(self.tokenizer, "file", None)
        paths = [Path(p) for p in ([named] if isinstance(named, str) else named or [])]
        inside = [f for p in paths for f in (sorted(p.iterdir()) if p.is_dir() else [p]) if f.is_file()]
        kinds = (".json", ".txt", ".bpe", ".gz", ".tsv")
        return [corpus, [bytes_key(f.read_bytes(), 16) for f in inside if f.suffix in kinds], *settings]

    def check_inputs(self) -> None:
        for name in self.corpora:
            run.check_if_made(functools.partial(run.obtain, Corpus, name))
        self.tokenizer.load()

    def perform(self, run: Run) -> dict[str, Any]:
        folders = {name: _corpus(name) for name in self.corpora}
        tokenizer = self.tokenizer.load() or self._train(folders)
        tokenizer.save(run.path)
        names = " and ".join(folders)
        learned = f", trained on {names}" if names and not getattr(self.tokenizer, "file", None) else ""
        say(f"tokenizer: {tokenizer.kind}, {many(tokenizer.vocabulary, 'piece')}{learned}")
        wanted = getattr(self.tokenizer, "size", tokenizer.vocabulary)
        if not getattr(self.tokenizer, "file", None) and tokenizer.vocabulary < wanted:
            say(f"the corpus has no more; {wanted:,} were requested")
        if len(folders) > 1:
            by_corpus = {name: measure(tokenizer, folder, name) for name, folder in folders.items()}
            return {**tokenizer.facts, "by_corpus": by_corpus}
        return {**tokenizer.facts, **(measure(tokenizer, folders[names]) if folders else {})}

    def _train(self, folders: Mapping[str, Path]) -> Tokenizer:
        check_fits_memory("tokenizer.size", getattr(self.tokenizer, "size", 0), PIECE)
        every = {name: TrainingTexts(folder, self.sample) for name, folder in folders.items()}
        size = sum(texts.bytes for texts in every.values())
        texts: TrainingTexts | MixedTexts = next(iter(every.values()))
        if not self.sample and size > MOST:
            texts = TrainingTexts(next(iter(folders.values())), MOST)
            say(f"training on {many(MOST, 'character')} of {size:,} bytes; `sample` changes this")
        if every.keys() - {next(iter(every))}:
            texts = self._mixed(every, min(self.sample or MOST, size))
        learned: Tokenizer = self.tokenizer.train(texts)
        return learned

    def _mixed(self, every: Mapping[str, TrainingTexts], most: int) -> MixedTexts:
        weights = self.corpora
        if self.mix:
            weights = dict(zip(every, self.mix.shares([texts.bytes for texts in every.values()], most), strict=True))
        unit = most / sum(weights.values())
        mixed = MixedTexts({name: (texts, max(1, round(unit * weights[name]))) for name, texts in every.items()})
        for line in mixed.lines():
            say(line)
        return mixed


class TrainingTexts:
    """Documents of a corpus's training split, every k-th if a sample is enough; can be iterated repeatedly."""

    def __init__(self, folder: Path, sample: int | None) -> None:
        self.folder, self.files, self.sample = folder, parts(folder, "train"), sample
        self.bytes = sum(path.stat().st_size for path in self.files)
        if not self.bytes:
            raise DataError(folder, "has no training documents", "train/00000.jsonl, ...", "make the corpus again")
        self.step = max(1, self.bytes // sample) if sample else 1  # a character has at least one byte

    def __iter__(self) -> Iterator[str]:
        left = self.sample or self.bytes
        with Progress("read", left / 1e6, "million characters") as shown:
            for number, text in enumerate(_texts(self.files)):
                if number % self.step == 0 and left > 0:
                    yield text[:left]
                    left -= len(text)
                    shown.add(len(text) / 1e6)


class MixedTexts:
    """Documents of several corpora with a number of characters of each: a sample, or repeated texts."""

    def __init__(self, parts: Mapping[str, tuple[TrainingTexts, int]]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[str]:
        for texts, wanted in self.parts.values():
            whole, rest = divmod(wanted, texts.bytes)
            for _ in range(whole):
                yield from TrainingTexts(texts.folder, None)
            if rest:
                yield from TrainingTexts(texts.folder, rest)

    def lines(self) -> list[str]:
        size = sum(wanted for _, wanted in self.parts.values())
        return [
            f"{name}: {wanted / size:.3g} of the training text, {wanted / texts.bytes:.3g} times its text"
            for name, (texts, wanted) in self.parts.items()
        ]


def measure(tokenizer: Tokenizer, folder: Path, name: str = "the corpus") -> dict[str, Any]:
    """Return tokens per word, bytes per token and the share of unknown tokens on held-out (else training) text."""
    words = size = pieces = unknown = left = 0
    left = MEASURED
    split = "validation" if parts(folder, "validation") else "train"
    for text in _texts(parts(folder, split)):
        ids = tokenizer.encode_batch([text[:left]])[0]
        words, size, pieces = words + len(text[:left].split()), size + len(text[:left].encode()), pieces + len(ids)
        unknown += int((ids == tokenizer.unknown).sum()) if tokenizer.unknown is not None else 0
        left -= len(text)
        if left <= 0:
            break
    facts = {
        "fertility": round(pieces / max(words, 1), 4),
        "bytes_a_piece": round(size / max(pieces, 1), 4),
        "unknown": round(unknown / max(pieces, 1), 6),
    }
    form = "{fertility:.2f} tokens per word, {bytes_a_piece:.2f} bytes per token, {unknown:.3%} unknown".format(**facts)
    say(f"{form} (on {name}'s {split} documents)")
    return facts


def is_tokenizer(name: str) -> bool:
    name = _hub_folder(name)
    kind = kind_of_folder(name)
    if kind in (FolderKind.ABSENT, FolderKind.FILE):
        return kind is FolderKind.FILE and not name.endswith(".toml")
    return bool(Run(Path(name)).status.get("state", "done") == "done")


def read_tokenizer(name: str, corpus: str = "") -> Tokenizer:
    """Load a tokenizer from a folder or file of any origin, or from a recipe that is run once while others wait.

    `corpus`: the corpus of the store that the tokenizer is for. A recipe with `corpus = "folder"` learns from it.
    """
    name = _hub_folder(name)
    path = Path(name)
    kind = kind_of_folder(path)
    if kind.made and (path / "tokenizer").is_dir():  # the folder of a store or of a run
        return Tokenizer.load(path / "tokenizer")
    if path.suffix != ".toml" if kind is FolderKind.FILE else path.is_dir() and not kind.made:
        return Tokenizer.load(path)
    if "/" in name and kind is FolderKind.ABSENT and path.suffix in (".json", ".txt", ".bpe", ".gz"):
        raise RecipeError(name, "no such file", "a tokenizer's folder, file or recipe")
    return Tokenizer.load(run.obtain(TokenizerTraining, name, learned_from(name, corpus)))


def learned_from(name: str, corpus: str) -> list[str]:
    """Return the arguments for a recipe that learns from the user's texts: the corpus, and a separate output folder.

    Two corpora therefore never share a tokenizer that was learned from one of them.
    """
    if corpus in ("", OWN_TEXTS) or kind_of_folder(name).made:
        return []
    recipe, title = run.load(TokenizerTraining, name)
    if recipe.corpus != OWN_TEXTS:
        return []
    folder, path = run.output_folder(recipe, title), Path(os.path.abspath(corpus))
    is_folder = path.is_dir()
    below = is_folder and path.is_relative_to(Path.cwd())
    called = str(path.relative_to(Path.cwd()) if below else path) if is_folder else corpus  # one spelling per path
    out = folder.with_name(f"{folder.name}-{path.name if is_folder else run.title(corpus)}")
    return [f"corpus={called if '/' in called else settings.literal(called)}", f"out={out}"]


def _hub_folder(name: str) -> str:
    """Return the folder of a published vocabulary or model; other names are returned unchanged."""
    return name if name in run.recipe_names("tokenizer") else str(hub.folder(name))


def _corpus(name: str) -> Path:
    return run.obtain(Corpus, name)


def _texts(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from (document.text for document in documents(path))

"""Synthetic data for measurements: a tokenizer with the pieces w0, w1, ..., texts, and examples of tasks."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import bytes_key
from ordsmed.base.run import Run

if TYPE_CHECKING:
    from ordsmed.text.tokenizer import Tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>")
EXAMPLES = 4_096

Ints = NDArray[np.int64]


def tokenizer(vocabulary: int, pad: int = 0) -> Tokenizer:
    """Return a tokenizer of the pieces w0, w1, ... after the special tokens, with `pad` as the number of padding."""
    from ordsmed.text.tokenizer import Tokenizer

    if vocabulary <= len(SPECIAL):
        raise RecipeError("vocabulary", f"found {vocabulary}", f"more than {len(SPECIAL)}")
    with tempfile.TemporaryDirectory() as folder:
        special = [*SPECIAL[1 : pad + 1], SPECIAL[0], *SPECIAL[pad + 1 :]]
        words = [*special, *(f"w{n}" for n in range(vocabulary - len(SPECIAL)))]
        (Path(folder) / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        return Tokenizer.load(Path(folder) / "vocab.txt")


def examples(task: Any, sizes: Sequence[tuple[int, int]], vocabulary: int) -> tuple[Path, Path]:
    """Return a tokenizer and a file of synthetic examples of a task; written once, to work/bench."""
    if not (name := getattr(task, "MADE_UP", "")):
        raise RecipeError("task.train", f"missing, and there are no synthetic examples for {task.role}", "files")
    described = json.dumps([vocabulary, sizes, task.length])
    folder = Path(f"work/bench/{Path(name).stem}-{bytes_key(described.encode(), 8)}")
    with run.locked(folder):
        if not run.finished(folder, "bench"):
            folder.mkdir(parents=True, exist_ok=True)
            tokenizer(vocabulary).save(folder / "tokenizer")
            chance = np.random.default_rng(0)
            lengths = np.minimum(drawn(sizes, EXAMPLES, chance), task.length)
            files.write_text(folder / name, task.synthetic(lengths, functools.partial(_words, chance, vocabulary)))
            Run(folder).set(verb="bench", state="done", fingerprint=described)
    return folder / "tokenizer", folder / name


def drawn(sizes: Sequence[tuple[int, int]], count: int, chance: np.random.Generator) -> Ints:
    """Sample the lengths of `count` examples, interpolated between the pairs of the table."""
    shares, tokens = zip(*sizes, strict=True)
    return np.interp(100 * chance.random(count), shares, tokens).round().astype(np.int64)


def _words(chance: np.random.Generator, vocabulary: int, count: int) -> str:
    return " ".join(f"w{number}" for number in chance.integers(0, vocabulary - len(SPECIAL), count))


def random_store(vocabulary: int, tokens: int, pad: int = 0) -> Path:
    """Return an encoded folder of synthetic text: documents of 20 to 2,000 tokens; written once, to work/bench."""
    from ordsmed.data.store import StoreWriter

    name = f"random-{vocabulary}-{tokens}" + (f"-pad-{pad}" if pad else "")
    folder = Path("work/bench") / name
    with run.locked(folder):
        if not run.finished(folder, "encode"):
            pieces = tokenizer(vocabulary, pad)
            folder.mkdir(parents=True, exist_ok=True)
            pieces.save(folder / "tokenizer")
            with StoreWriter(folder / "train", vocabulary) as writer:
                for document in _random_documents(vocabulary, tokens):
                    writer.add([document])
            facts = {"tokenizer": pieces.fingerprint, "vocabulary": vocabulary}
            Run(folder).set(verb="encode", state="done", fingerprint=name, **facts)
    return folder


def word_store(vocabulary: int, words: int) -> Path:
    """Return an encoded folder of synthetic words in sentences of 5 to 45; frequent words are short.

    Frequencies fall as rank^-1.2, so that a step has as many distinct words as in English novels.
    """
    from ordsmed.data.lexicon import LexiconWriter
    from ordsmed.data.store import StoreWriter
    from ordsmed.text.tokenizer import Tokenizer

    folder = Path(f"work/bench/words-{vocabulary}-{words}")
    with run.locked(folder):
        if not run.finished(folder, "encode"):
            generator = np.random.default_rng(0)
            spelled = list(dict.fromkeys(("<S>", "</S>", "<UNK>", *_made_up_words(vocabulary, generator))))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "vocab.txt").write_text("\n".join(spelled) + "\n")
            known = Tokenizer.load(folder / "vocab.txt")
            known.save(folder / "tokenizer")
            shares = np.cumsum((np.arange(len(spelled) - 3) + 2.7) ** -1.2)
            with LexiconWriter(folder, spelled, 2), StoreWriter(folder / "train", len(spelled), 2) as writer:
                lengths = generator.integers(5, 46, words // 25)
                ids = 3 + np.searchsorted(shares, generator.random(int(lengths.sum())) * shares[-1])
                writer.extend(ids, lengths, np.ones_like(lengths))
            facts = {"tokenizer": known.fingerprint, "vocabulary": len(spelled)}
            Run(folder).set(verb="encode", state="done", fingerprint=f"words-{vocabulary}-{words}", **facts)
    return folder


def _made_up_words(count: int, generator: np.random.Generator) -> Iterator[str]:
    alphabet = np.frombuffer(b"eeeeeettttaaaooiinnsshhrrddllcummwfgypbvk", "u1")
    for rank in range(count):
        size = int(np.clip(generator.normal(1.5 + 0.55 * np.log(rank + 2), 1.5), 1, 24))
        yield generator.choice(alphabet, size).tobytes().decode()


def _random_documents(vocabulary: int, tokens: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    while tokens > 0:
        length = int(generator.integers(20, 2_000))
        tokens -= length
        yield generator.integers(len(SPECIAL), vocabulary, length)

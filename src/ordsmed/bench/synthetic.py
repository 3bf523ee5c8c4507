"""Made up: what measurements run on where nothing real is named: a tokenizer of w0, w1, ..., and examples of tasks."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import bytes_key
from ordsmed.base.run import Run

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>")
EXAMPLES = 4_096

Ints = NDArray[np.int64]


def tokenizer(vocabulary: int) -> Any:
    """Pieces w0, w1, ... behind the signs."""
    from ordsmed.text.tokenizer import Tokenizer

    if vocabulary <= len(SPECIAL):
        raise RecipeError("vocabulary", f"found {vocabulary}", f"more than {len(SPECIAL)}")
    with tempfile.TemporaryDirectory() as folder:
        words = [*SPECIAL, *(f"w{n}" for n in range(vocabulary - len(SPECIAL)))]
        (Path(folder) / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        return Tokenizer.load(Path(folder) / "vocab.txt")


def examples(task: Any, sizes: Sequence[tuple[int, int]], vocabulary: int) -> tuple[Path, Path]:
    """A tokenizer, and a file of examples as the task makes them up; made once, in work/bench."""
    if not (name := getattr(task, "MADE_UP", "")):
        raise RecipeError("task.train", f"missing, and no examples are made up for {task.role}", "files")
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
    """Lengths of so many examples: evenly between each pair of the table and the next."""
    shares, tokens = zip(*sizes, strict=True)
    return np.interp(100 * chance.random(count), shares, tokens).round().astype(np.int64)


def _words(chance: np.random.Generator, vocabulary: int, count: int) -> str:
    return " ".join(f"w{number}" for number in chance.integers(0, vocabulary - len(SPECIAL), count))

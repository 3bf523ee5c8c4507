"""A small encoded folder of text made from a seed, and recipes over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ordsmed.base.run import Run
from ordsmed.data.store import StoreWriter
from ordsmed.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
WORDS = 120


def make_store(folder: Path, seed: int = 0, documents: int = 60) -> Path:
    """Documents in which every word has a favourite follower, so that there is something to learn."""
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(WORDS))]) + "\n")
    tokenizer = Tokenizer.load(vocabulary)
    tokenizer.save(folder / "tokenizer")
    chance = np.random.default_rng(seed)
    follower = chance.permutation(WORDS)
    for split, count in (("train", documents), ("validation", 8)):
        with StoreWriter(folder / split, tokenizer.vocabulary) as writer:
            for _ in range(count):
                word, text = int(chance.integers(WORDS)), []
                for _ in range(int(chance.integers(5, 120))):
                    text.append(word + len(SPECIAL))
                    word = int(follower[word]) if chance.random() < 0.8 else int(chance.integers(WORDS))
                writer.add([np.asarray(text)])
    facts = {"vocabulary": tokenizer.vocabulary, "train": {"tokens": 1}, "validation": {"tokens": 1}}
    Run(folder).set(verb="encode", state="done", fingerprint=f"seed {seed}", tokenizer=tokenizer.fingerprint, **facts)
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture
def recipe(store: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a recipe file; keywords change its text."""

    def write(
        name: str = "run", kind: str = "bert", objective: str = "mlm", steps: int = 12, extra: str = "", **top: object
    ) -> Path:
        top = {"data": str(store), "out": str(tmp_path / name), "save": 4, "validate": 6, "validation_rows": 8, **top}
        lines = [f"{key} = {value!r}".replace("'", '"') for key, value in top.items()]
        lines += ["[layout]", 'device = "cpu"', "threads = 1"]
        lines += ["[model]", f'kind = "{kind}"', "width = 32", "layers = 2", "heads = 2", "positions = 64"]
        lines += ["[objective]", f'kind = "{objective}"']
        lines += ["[[phase]]", f"steps = {steps}", "length = 32", "batch = 8", "rate = 2e-3", "warmup = 2", extra]
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write

"""What several rooms' tests make: a small encoded folder of text drawn from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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

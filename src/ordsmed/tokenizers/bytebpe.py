"""Byte-level BPE, GPT-2's: bytes joined pair by pair; every text can be written and read back exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Settings:
    """How a byte-level vocabulary is learned, or where it lies."""

    size: int = 50_257
    "256 bytes, the joined pairs, and the special tokens at the end"
    least: int = 2
    "a pair seen less often is not joined"
    prefix_space: bool = False
    "put a space before every text, so that its first word is written as any other"
    special: tuple[str, ...] = ()
    "more special tokens, beside <|endoftext|>"
    file: str | list[str] | None = None
    "vocab.json and merges.txt (or encoder.json and vocab.bpe), a tokenizer.json, or a folder: read, not learned"

    def __post_init__(self) -> None:
        least = 257 + len(self.special)
        if self.size < least:
            raise ValueError(
                f"size: found {self.size}; wanted at least {least}: every byte, every special token; raise it"
            )
        if self.least < 1:
            raise ValueError(f"least: found {self.least}; wanted at least 1; raise it")
        if len({vocabulary.END, *self.special}) != 1 + len(self.special):
            raise ValueError(
                f"special: found {list(self.special)}; wanted each once, without {vocabulary.END}; strike one"
            )

    def load(self) -> Tokenizer | None:
        """What the user has, if `file` names it."""
        return Tokenizer.load(self.file) if self.file else None

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Learn from texts."""
        from tokenizers import Tokenizer as Pipeline
        from tokenizers import models, pre_tokenizers, trainers

        special = [*self.special, vocabulary.END]
        learner = Pipeline(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=self.prefix_space)
        trainer = trainers.BpeTrainer(
            vocab_size=self.size - len(special), min_frequency=self.least, show_progress=False, special_tokens=[],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )  # fmt: skip
        learner.train_from_iterator(texts, trainer)
        model = json.loads(learner.to_str())["model"]
        merges = [(left, right) for left, right in model["merges"]]
        pieces = model["vocab"] | {name: len(model["vocab"]) + i for i, name in enumerate(special)}
        return Tokenizer(vocabulary.byte_level(pieces, merges, prefix_space=self.prefix_space, special=special))

"""Byte-level BPE, as of GPT-2: bytes merged pair by pair; every text is encoded and decoded exactly.

gpt2      bytes and merged pairs, more special tokens, <|endoftext|>
roberta   <s> <pad> </s> <unk>, bytes and merged pairs, more special tokens, <mask>
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ByteBpe(Choice):
    """Settings for training a byte-level BPE tokenizer, or for reading one."""

    size: int = 50_257
    "number of entries: 256 bytes, the merged pairs, and all special tokens; elsewhere vocab_size"
    order: Literal["gpt2", "roberta"] = "gpt2"
    "special tokens and their order: <|endoftext|> last, or <s> <pad> </s> <unk> first and <mask> last"
    least: int = 2
    "a pair with a smaller count is not merged; elsewhere min_frequency"
    prefix_space: bool = False
    "put a space before every text, so that its first word gets the same pieces as inside a text"
    special: tuple[str, ...] = ()
    "more special tokens, before the last"
    file: str | list[str] | None = None
    "vocab.json and merges.txt (or encoder.json and vocab.bpe), a tokenizer.json, or a folder: read, not learned"

    learns: ClassVar[str] = "bpe"  # the kind of the trained tokenizer

    def __post_init__(self) -> None:
        fixed = self.special_tokens()
        if len({*fixed, *self.special}) != len(fixed) + len(self.special):
            problem = f"special: found {list(self.special)}"
            raise ValueError(f"{problem}; wanted each once, without {' '.join(fixed)}; remove one")
        at_least(self, size=256 + len(fixed) + len(self.special), least=1)  # every byte, every special token
        if self.prefix_space and self.order == "roberta":
            raise ValueError('prefix_space: found true; wanted false with order = "roberta"')

    @property
    def pad(self) -> int:
        """Return the id of the padding token, or 0 if there is none."""
        return int(self.order == "roberta")

    def special_tokens(self) -> tuple[str, ...]:
        return (vocabulary.END,) if self.order == "gpt2" else (*vocabulary.ROBERTA, "<mask>")

    def load(self) -> Tokenizer | None:
        return Tokenizer.load(self.file) if self.file else None

    def train(self, texts: Iterable[str]) -> Tokenizer:
        from tokenizers import AddedToken, models, pre_tokenizers, trainers
        from tokenizers import Tokenizer as Pipeline

        learner = Pipeline(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=self.prefix_space)
        size, alphabet = self.size - len(self.special_tokens()) - len(self.special), pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=self.least, show_progress=False, initial_alphabet=sorted(alphabet)
        )
        learner.train_from_iterator(texts, trainer)
        model = json.loads(learner.to_str())["model"]
        merges = [(left, right) for left, right in model["merges"]]
        learned = sorted(model["vocab"], key=model["vocab"].__getitem__)
        *first, last = self.special_tokens()
        pieces = {name: number for number, name in enumerate([*first, *learned, *self.special, last])}
        if self.order == "gpt2":
            special = [*self.special, last]
            return Tokenizer(vocabulary.byte_level(pieces, merges, prefix_space=self.prefix_space, special=special))
        pipeline = vocabulary.roberta(pieces, merges)
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in self.special])
        return Tokenizer(pipeline)

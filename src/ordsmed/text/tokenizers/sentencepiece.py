"""SentencePiece's unigram and BPE: pieces of unsplit text; a piece that begins a word is marked by U+2581.

bert      [PAD] [UNK] [CLS] [SEP] [MASK], pieces
roberta   <s> <pad> </s> <unk> <mask>, pieces
gpt2      <unk> <|endoftext|>, pieces
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.text import sentencepiece_model, sentencepiece_training, vocabulary
from ordsmed.text.tokenizer import Tokenizer

ROLES = {  # SentencePiece's names of the special tokens, in the order of their ids
    "bert": ("pad", "unk", "bos", "eos"),
    "roberta": ("bos", "pad", "eos", "unk"),
    "gpt2": ("unk", "eos"),
}


@dataclass(frozen=True)
class SentencePiece(Choice):
    """Settings for training a SentencePiece tokenizer, or for reading a .model."""

    model: Literal["unigram", "bpe", None] = None
    "the most probable way to cut a text, or characters merged pair by pair; default: unigram, or the type of the file"
    size: int = 32_000
    "number of pieces, including special tokens; elsewhere vocab_size"
    order: Literal["bert", "roberta", "gpt2"] = "bert"
    "which special tokens come before the pieces"
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"] = "nmt_nfkc"
    "SentencePiece's name of the normalization; _cf: lowercase; elsewhere normalization_rule_name"
    coverage: float = 0.9995
    "share of the characters of the texts that the alphabet covers; elsewhere character_coverage"
    byte_fallback: bool = False
    "add 256 pieces for bytes, and cut characters without a piece into bytes"
    digits: bool = False
    "make every digit a piece; elsewhere split_digits"
    own: tuple[str, ...] = ()
    "texts that always are one piece; elsewhere user_defined_symbols"
    prefix: bool = True
    "put a space before every text, so that its first word gets the same pieces as others; elsewhere add_dummy_prefix"
    remove_extra_whitespaces: bool = True
    "drop spaces at both ends and repeated spaces; elsewhere remove_extra_whitespaces"
    special: tuple[str, ...] = ()
    "more special tokens, after those of the order or after the pieces of a file"
    file: str | None = None
    "a SentencePiece .model (or the .vocab next to it), a tokenizer.json, or a folder with one: read, not learned"

    def __post_init__(self) -> None:
        names = (*self.special_tokens(), *self.special, *self.own)
        if (twice := [name for name in names if names.count(name) > 1 or not name]) and not self.file:
            problem = f"special, own: found {twice[0]!r}; wanted each once, without {' '.join(self.special_tokens())}"
            raise ValueError(problem)
        at_least(self, size=len(names) + 256 * self.byte_fallback + 1)
        if not 0.98 <= self.coverage <= 1.0:
            raise ValueError(f"coverage: found {self.coverage}; wanted 0.98 to 1.0, as SentencePiece does")

    @property
    def learns(self) -> str:
        return self.model or "unigram"

    @property
    def pad(self) -> int:
        """Return the id of the padding token, or 0 if there is none."""
        return int(self.order == "roberta")

    def special_tokens(self) -> tuple[str, ...]:
        roberta, gpt2 = (*vocabulary.ROBERTA, "<mask>"), ("<unk>", vocabulary.END)
        return {"bert": vocabulary.BERT, "roberta": roberta, "gpt2": gpt2}[self.order]

    def load(self) -> Tokenizer | None:
        if not self.file:
            return None
        tokenizer = Tokenizer.load(self.file, special=self.special)
        if not tokenizer.sentencepiece:
            raise DataError(self.file, f"is a {tokenizer.kind} tokenizer", sentencepiece_model.WANTED)
        if self.model and self.model != tokenizer.kind:
            remedy = f'leave `model` out, or set it to "{tokenizer.kind}"'
            raise DataError(self.file, f"is a {tokenizer.kind} model", self.model, remedy)
        return tokenizer

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Train on word counts of the texts with SentencePiece's library."""
        ids: dict[str, Any] = {f"{role}_id": -1 for role in ("pad", "unk", "bos", "eos")}
        roles = ROLES[self.order]
        ids |= {f"{role}_id": number for number, role in enumerate(roles)}
        ids |= {f"{role}_piece": name for role, name in zip(roles, self.special_tokens(), strict=False)}
        data = sentencepiece_training.train(
            texts,
            model_type=self.model or "unigram",
            vocab_size=self.size,
            character_coverage=self.coverage,
            normalization_rule_name=self.normalization,
            byte_fallback=self.byte_fallback,
            split_digits=self.digits,
            user_defined_symbols=list(self.own),
            add_dummy_prefix=self.prefix,
            remove_extra_whitespaces=self.remove_extra_whitespaces,
            control_symbols=[*self.special_tokens()[len(roles) :], *self.special],
            **ids,
        )
        return Tokenizer(sentencepiece_model.pipeline(sentencepiece_model.parsed(data, "tokenizer")), source=data)

"""WordPiece, as of BERT: words cut into pieces; pieces inside a word begin with ##."""

import functools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer

BLOCK = 1 << 22  # characters counted at once, or one longer text


@dataclass(frozen=True)
class WordPiece(Choice):
    """Settings for training a WordPiece tokenizer, or for reading one."""

    size: int = 30_000
    "number of pieces, including special tokens and unused entries; elsewhere vocab_size"
    lowercase: bool | None = None
    "lowercase the text; default: yes if trained, as the pieces are if read from a file; elsewhere do_lower_case"
    strip_accents: bool | None = None
    "remove accents; default: the value of `lowercase`"
    least: int = 2
    "a pair with a smaller count is not merged"
    alphabet: int = 1000
    "most different characters; the most frequent are kept"
    unused: int = 0
    "number of entries [unused0], [unused1]... reserved after the special tokens"
    file: str | None = None
    "a vocab.txt, a tokenizer.json, or a folder with one: read, not learned"

    learns: ClassVar[str] = "wordpiece"  # the kind of the trained tokenizer

    def __post_init__(self) -> None:
        at_least(self, size=len(vocabulary.BERT) + 1 + self.unused, least=1, alphabet=1, unused=0)

    def load(self) -> Tokenizer | None:
        return (
            Tokenizer.load(self.file, lowercase=self.lowercase, strip_accents=self.strip_accents) if self.file else None
        )

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Train on texts, which are read twice, the alphabet first. An iterator is kept in memory in between."""
        from tokenizers import trainers

        texts = list(texts) if iter(texts) is texts else texts
        lowercase = True if self.lowercase is None else self.lowercase
        special = {name: number for number, name in enumerate(vocabulary.BERT)}
        pipeline = vocabulary.wordpiece(special, lowercase=lowercase, strip_accents=self.strip_accents)
        alphabet, inner = _alphabet(texts, pipeline.normalizer, self.alphabet)
        names = [*vocabulary.BERT, *(f"[unused{i}]" for i in range(self.unused))]
        # The library numbers ##x in hash table order, and ids break ties: fixed entries make this reproducible.
        fixed = [*names, *alphabet, *(f"##{character}" for character in inner)][: self.size]
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.size,
            min_frequency=self.least,
            show_progress=False,
            special_tokens=fixed,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
        )
        pipeline.train_from_iterator(texts, trainer)
        order = sorted(pipeline.get_vocab(with_added_tokens=False).items(), key=lambda entry: entry[1])
        pieces = {piece: number for number, (piece, _) in enumerate(order[: self.size])}
        return Tokenizer(vocabulary.wordpiece(pieces, lowercase=lowercase, strip_accents=self.strip_accents))


def _alphabet(texts: Iterable[str], normalizer: object, limit: int) -> tuple[list[str], list[str]]:
    """Return the most frequent normalized characters, and those of them that occur inside words, in code order."""
    able = _able()
    seen, inside = np.zeros(0x110000, np.int64), np.zeros(0x110000, np.int64)
    for text in _blocks(texts):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        seen += np.bincount(codes, minlength=len(seen))
        joined = codes[1:][able[codes[1:]] & able[codes[:-1]]]
        inside += np.bincount(joined, minlength=len(inside))
    counts, inner = _normalized(seen, normalizer), _normalized(inside, normalizer)
    frequent = sorted(sorted(counts, key=lambda character: (-counts[character], character))[:limit])
    return frequent, [character for character in frequent if inner.get(character)]


def _blocks(texts: Iterable[str]) -> Iterator[str]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > BLOCK:
            yield "\n".join(batch)
            batch, size = [], 0
    yield "\n".join(batch)


def _normalized(counts: NDArray[np.int64], normalizer: object) -> Mapping[str, int]:
    counts_of: dict[str, int] = {}
    for code in np.flatnonzero(counts).tolist():
        for letter in normalizer.normalize_str(chr(code)).replace(" ", ""):  # type: ignore[attr-defined]
            counts_of[letter] = counts_of.get(letter, 0) + int(counts[code])
    return counts_of


@functools.cache
def _able() -> NDArray[np.bool_]:
    """Return whether each code point can be next to others in a word. Punctuation, spaces and CJK characters cannot."""
    able = np.zeros(0x110000, np.bool_)
    able[[code for code in range(0x110000) if unicodedata.category(chr(code))[0] in "LMN"]] = True
    for first, last in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2FA1F), (0xF900, 0xFAFF)):
        able[first : last + 1] = False
    return able

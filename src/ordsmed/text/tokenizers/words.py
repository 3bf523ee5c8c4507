"""Words, ELMo's: every entry a whole word, the most frequent first.

<S> </S> <UNK> the , of and ...
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.text.word_counts import WordCounts

CHUNKS = 8_000_000  # different ones that are counted, at most: the rarer half goes when there are more


@dataclass(frozen=True)
class WordList(Choice):
    """How a word vocabulary is learned, or where it lies."""

    size: int = 793_471
    "words at most, the signs <S>, </S> and <UNK> included; elsewhere vocab_size"
    least: int = 3
    "a word seen less often is left out"
    split: Literal["words", "spaces", None] = None
    "at white space (spaces), signs cut off too but inside words (words: don't, 3.5); not said: words if learned"
    lowercase: bool = False
    "are capitals lost? beside a tokenizer.json only what that does"
    file: str | None = None
    "a vocab.txt (.gz), perhaps with counts, a tokenizer.json, cut as that says, or a folder: read, not learned"

    learns: ClassVar[str] = "wordlevel"  # the kind of its tokenizer, before it is made

    def __post_init__(self) -> None:
        at_least(self, size=len(vocabulary.SIGNS) + 1, least=1)

    def load(self) -> Tokenizer | None:
        if not self.file:
            return None
        tokenizer = Tokenizer.load(self.file, lowercase=self.lowercase or None, split=self.split or "spaces")
        if not tokenizer.whole_words:
            raise DataError(self.file, f"is a {tokenizer.kind} tokenizer", "whole words with <S>, </S> and <UNK>")
        return tokenizer

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Count the words of texts; those left out are counted at <UNK>."""
        special = {name: number for number, name in enumerate(vocabulary.SIGNS)}
        cutter = Tokenizer(vocabulary.words(special, split=self.split or "words", lowercase=self.lowercase))
        chunks = WordCounts(CHUNKS)  # what stands between spaces: cut once each
        for text in texts:
            chunks.add(text.replace("\n", " ").split(" "))
        counts: Counter[str] = Counter()
        for chunk, count in chunks.counts.items():
            for word in cutter.words(chunk):
                counts[word] += count
        frequent = [word for word, count in counts.items() if count >= self.least and word not in special]
        frequent.sort(key=lambda word: (-counts[word], word))
        del frequent[self.size - len(special) :]
        seen = [counts[word] for word in frequent]
        entries = {word: number for number, word in enumerate([*special, *frequent])}
        pipeline = vocabulary.words(entries, split=self.split or "words", lowercase=self.lowercase)
        return Tokenizer(pipeline, counts=[0, 0, counts.total() - sum(seen) + chunks.dropped, *seen])

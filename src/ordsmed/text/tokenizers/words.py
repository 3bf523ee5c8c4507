"""Words, as of ELMo: every entry is a whole word, the most frequent first.

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

CHUNKS = (
    8_000_000  # most different space-separated words that are counted; the rarer half is dropped when there are more
)


@dataclass(frozen=True)
class WordList(Choice):
    """Settings for collecting a vocabulary of words, or for reading one."""

    size: int = 793_471
    "most words, including <S>, </S> and <UNK>; elsewhere vocab_size"
    least: int = 3
    "a word with a smaller count is left out"
    split: Literal["words", "spaces", None] = None
    "spaces: split at white space; words: also at punctuation, but not in don't or 3.5; default: words if learned"
    lowercase: bool = False
    "lowercase the text; must agree with a tokenizer.json"
    file: str | None = None
    "a vocab.txt (.gz), optionally with counts, a tokenizer.json, or a folder with one: read, not learned"

    learns: ClassVar[str] = "wordlevel"  # the kind of the trained tokenizer

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
        """Count the words of the texts. The words left out are counted as <UNK>."""
        special = {name: number for number, name in enumerate(vocabulary.SIGNS)}
        cutter = Tokenizer(vocabulary.words(special, split=self.split or "words", lowercase=self.lowercase))
        chunks = WordCounts(CHUNKS)  # space-separated strings, so that each is cut once
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

"""Word counts in bounded memory: when the table is full, the rarer half of the words is dropped."""

from collections import Counter
from collections.abc import Iterable

LETTERS = 32  # most characters per word that the table holds, on average


class WordCounts:
    """Counts of at most `most` words. They are exact until the table is full for the first time.

    A word that is dropped and seen again is counted from then on.
    """

    def __init__(self, most: int) -> None:
        self.most, self.counts = most, Counter[str]()
        self.dropped = 0  # sum of the counts of dropped words
        self._letters = 0  # upper bound of the characters in the table

    def add(self, words: Iterable[str]) -> None:
        words = list(words)
        self.counts.update(words)
        self._letters += sum(map(len, words))
        if self._letters > LETTERS * self.most:
            self._letters = sum(map(len, self.counts))
        if len(self.counts) > self.most or self._letters > LETTERS * self.most:
            # keep the most frequent half; among equal counts, the words seen first
            total, frequent = self.counts.total(), self.counts.most_common(len(self.counts) // 2)
            self.counts = Counter(dict(frequent))
            self.dropped += total - self.counts.total()
            self._letters = sum(map(len, self.counts))

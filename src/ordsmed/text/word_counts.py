"""How often each word was seen, in a table of a stated size: when it is full, the rarer half is dropped."""

from collections import Counter
from collections.abc import Iterable

LETTERS = 32  # for each word of the table, on average at most


class WordCounts:
    """Exact until the table was full once; what was dropped and comes again is counted from then on."""

    def __init__(self, most: int) -> None:
        self.most, self.counts = most, Counter[str]()
        self.dropped = 0  # how often words were seen that are left out now
        self._letters = 0  # in words added, an upper bound

    def add(self, words: Iterable[str]) -> None:
        """Count the words of a text."""
        words = list(words)
        self.counts.update(words)
        self._letters += sum(map(len, words))
        if self._letters > LETTERS * self.most:
            self._letters = sum(map(len, self.counts))
        if len(self.counts) > self.most or self._letters > LETTERS * self.most:
            # keep the most frequent half; of those seen equally often, the first
            total, kept = self.counts.total(), self.counts.most_common(len(self.counts) // 2)
            self.counts = Counter(dict(kept))
            self.dropped += total - self.counts.total()
            self._letters = sum(map(len, self.counts))

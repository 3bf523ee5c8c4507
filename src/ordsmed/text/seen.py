"""Which texts were seen already: 64-bit hashes in a growing open-addressing table, about 16 bytes a text.

A false "seen" needs two texts with one hash: among ten million texts the chance of any such pair is 3 in a million.
"""

import numpy as np


class Seen:
    """A set of 64-bit numbers."""

    def __init__(self, room: int = 1 << 12) -> None:
        self.table = np.zeros(room, np.uint64)  # 0 marks an empty place
        self.view = (
            memoryview(self.table.data).cast("B").cast("Q")
        )  # plain ints in and out: five times as fast as numpy's
        self.count = 0

    def add(self, number: int) -> bool:
        """Remember a number; was it new?"""
        number = number or 1
        mask = len(self.view) - 1
        place = number & mask
        while (there := self.view[place]) and there != number:
            place = (place + 1) & mask
        if there:
            return False
        self.view[place] = number
        self.count += 1
        if self.count * 3 > len(self.view) * 2:
            self._grow()
        return True

    def _grow(self) -> None:
        """Twice the room: every number is laid down again, all at once."""
        numbers = self.table[self.table != 0]
        self.__init__(2 * len(self.table))  # type: ignore[misc]
        mask = np.uint64(len(self.table) - 1)
        numbers = numbers[np.argsort(numbers & mask, kind="stable")]
        home = (numbers & mask).astype(np.int64)
        order = np.arange(len(numbers))
        place = (
            np.maximum.accumulate(home - order) + order
        )  # linear probing, all at once: behind one's home and one's fore-runner
        fits = place < len(self.table)
        self.table[place[fits]] = numbers[fits]
        self.count = int(fits.sum())
        for number in numbers[~fits].tolist():  # the few that run over the end begin again at the front
            self.add(number)

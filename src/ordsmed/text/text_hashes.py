"""A set of 64-bit text hashes: a growing open-addressing table that takes about 16 bytes per text.

Two texts with the same hash are taken for duplicates. Among ten million texts the chance of one such pair is 3 in a
million.
"""

import numpy as np


class SeenTexts:
    """A set of 64-bit integers. 0 is stored as 1."""

    def __init__(self, room: int = 1 << 12) -> None:
        self.table = np.zeros(room, np.uint64)  # 0 marks an empty slot
        # a memoryview reads and writes plain ints, five times as fast as indexing the array
        self.view = memoryview(self.table.data).cast("B").cast("Q")
        self.count = 0

    def add(self, number: int) -> bool:
        """Add a number and return whether it is new."""
        number = number or 1
        mask = len(self.view) - 1
        slot = number & mask
        while (stored := self.view[slot]) and stored != number:
            slot = (slot + 1) & mask
        if stored:
            return False
        self.view[slot] = number
        self.count += 1
        if self.count * 3 > len(self.view) * 2:
            self._grow()
        return True

    def _grow(self) -> None:
        """Double the table and reinsert all numbers with vectorized linear probing."""
        numbers = self.table[self.table != 0]
        self.__init__(2 * len(self.table))  # type: ignore[misc]
        mask = np.uint64(len(self.table) - 1)
        numbers = numbers[np.argsort(numbers & mask, kind="stable")]
        home = (numbers & mask).astype(np.int64)
        order = np.arange(len(numbers))
        # a number goes to its home slot, or to the slot after that of the number before it, whichever is later
        slot = np.maximum.accumulate(home - order) + order
        fits = slot < len(self.table)
        self.table[slot[fits]] = numbers[fits]
        self.count = int(fits.sum())
        for number in numbers[~fits].tolist():  # the few that run past the end wrap around to the start
            self.add(number)

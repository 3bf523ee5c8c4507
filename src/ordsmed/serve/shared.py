"""Shared: memory that the processes of one server have in common: a row for each worker, in which it alone writes.

    stop  reload | pid  waiting  connections  reloaded ... | metrics | problem |  pid  waiting ...

Numbers are read and written whole; a text has a version, odd while it is written, so that nobody reads half of it.
"""

from __future__ import annotations

import mmap
import time

# a row's
NUMBERS = ("pid", "ready", "ticked", "waiting", "computing", "connections", "reloading", "reloaded", "starts")
TEXTS = {"metrics": 60 << 10, "problem": 2 << 10}  # bytes of each at most
HEAD = ("stop", "reload")  # is the server asked to stop? how often were its models to be opened again?
ROW = 64 << 10
TRIES = 1_000  # of reading a text that is being written


class SharedPart:
    """Some numbers, and texts behind them."""

    def __init__(self, memory: mmap.mmap, at: int, names: tuple[str, ...], texts: dict[str, int]) -> None:
        self._memory, self._names = memory, {name: at // 8 + place for place, name in enumerate(names)}
        self._numbers = memoryview(memory).cast("q")
        self._texts = dict[str, int]()
        at += 8 * len(names)
        for name, size in texts.items():
            self._texts[name], at = at, at + 16 + size

    def __getitem__(self, name: str) -> int:
        return self._numbers[self._names[name]]

    def __setitem__(self, name: str, value: int) -> None:
        self._numbers[self._names[name]] = value

    def write(self, name: str, text: bytes) -> None:
        """In place of what stands there; what is too long for it is left out, and what stood there stays."""
        if len(text) > TEXTS[name]:
            return
        at = self._texts[name]
        self._numbers[at // 8] += 1
        self._numbers[at // 8 + 1] = len(text)
        self._memory[at + 16 : at + 16 + len(text)] = text
        self._numbers[at // 8] += 1

    def read(self, name: str) -> bytes:
        """As it was last written whole; empty where its writer was ended within."""
        at = self._texts[name]
        for _ in range(TRIES):
            version, size = self._numbers[at // 8], self._numbers[at // 8 + 1]
            text = self._memory[at + 16 : at + 16 + size]
            if version % 2 == 0 and version == self._numbers[at // 8]:
                return text
            time.sleep(1e-5)
        return b""

    def mend(self) -> None:
        """After its writer was ended: a text that it had half written is empty."""
        for at in self._texts.values():
            if self._numbers[at // 8] % 2:
                self._numbers[at // 8 + 1] = 0
                self._numbers[at // 8] += 1


class SharedMemory(SharedPart):
    """Of so many workers; made before they are forked."""

    def __init__(self, workers: int) -> None:
        memory = mmap.mmap(-1, ROW * (workers + 1))
        super().__init__(memory, 0, HEAD, {})
        self.rows = [SharedPart(memory, ROW * (number + 1), NUMBERS, TEXTS) for number in range(workers)]

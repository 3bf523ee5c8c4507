"""Memory that the processes of a server share: a row for each worker, which only that worker writes.

    stop  reload | pid  waiting  connections  reloaded ... | metrics | problem |  pid  waiting ...

Numbers are read and written atomically. A text has a version, which is odd during a write, so that readers recognize a
text that is only partly written.
"""

from __future__ import annotations

import mmap
import time

# the contents of a row
NUMBERS = ("pid", "ready", "ticked", "waiting", "computing", "connections", "reloading", "reloaded", "starts")
TEXTS = {"metrics": 60 << 10, "problem": 2 << 10}  # maximum size in bytes
HEAD = ("stop", "reload")  # 1 if the server is stopping, and the number of requested reloads
ROW = 64 << 10
TRIES = 1_000  # attempts to read a text while it is written


class SharedPart:
    def __init__(self, memory: mmap.mmap, at: int, names: tuple[str, ...], texts: dict[str, int]) -> None:
        self._memory, self._names = memory, {name: at // 8 + position for position, name in enumerate(names)}
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
        """Replace a text. Ignore a text that is too long."""
        if len(text) > TEXTS[name]:
            return
        at = self._texts[name]
        self._numbers[at // 8] += 1
        self._numbers[at // 8 + 1] = len(text)
        self._memory[at + 16 : at + 16 + len(text)] = text
        self._numbers[at // 8] += 1

    def read(self, name: str) -> bytes:
        """Return the last completely written text; empty if its writer died while writing."""
        at = self._texts[name]
        for _ in range(TRIES):
            version, size = self._numbers[at // 8], self._numbers[at // 8 + 1]
            text = self._memory[at + 16 : at + 16 + size]
            if version % 2 == 0 and version == self._numbers[at // 8]:
                return text
            time.sleep(1e-5)
        return b""

    def repair(self) -> None:
        """Clear texts whose writer died while writing."""
        for at in self._texts.values():
            if self._numbers[at // 8] % 2:
                self._numbers[at // 8 + 1] = 0
                self._numbers[at // 8] += 1


class SharedMemory(SharedPart):
    def __init__(self, workers: int) -> None:
        memory = mmap.mmap(-1, ROW * (workers + 1))
        super().__init__(memory, 0, HEAD, {})
        self.rows = [SharedPart(memory, ROW * (number + 1), NUMBERS, TEXTS) for number in range(workers)]

"""Print a running training's metrics in the log format of another code.

Tools that watch the original's output find the same lines on standard output.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]
ScreenLines = Callable[[Line], list[str]]  # returns the original's lines for a step or validation; often none
PAUSE = 5.0  # seconds between checks of the file


class NewLines:
    """Read the new lines of a metrics file. A run that rewinds or restarts may truncate the file."""

    def __init__(self, path: Path, tell: ScreenLines) -> None:
        self.path, self.tell = path, tell
        self.known = array("q")  # hashes of the lines read, since the file may be truncated and grow between two checks
        self.last, self.read = b"", 0
        self._new()

    def look(self) -> None:
        new = self._new()
        try:
            for line in new:
                for text in self.tell(json.loads(line)):
                    print(text, flush=True)
        except BrokenPipeError:  # no reader: the training itself handles that
            self.tell = lambda line: []
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _new(self) -> list[bytes]:
        if not self.path.exists():
            self.known, self.last, self.read = array("q"), b"", 0
            return []
        with self.path.open("rb") as file:
            file.seek(self.read - len(self.last))
            if file.read(len(self.last)) != self.last:
                # find the first line that differs from the one that was read
                file.seek(0)
                same = itertools.takewhile(lambda pair: hash(pair[0]) == pair[1], zip(file, self.known, strict=False))
                kept = [len(line) for line, _ in same]
                del self.known[len(kept) :]
                self.last, self.read = b"", sum(kept)
            file.seek(self.read)
            new = [line for line in file if line.endswith(b"\n")]
        self.known.extend(map(hash, new))
        self.read += sum(map(len, new))
        self.last = new[-1] if new else self.last
        return new


@contextlib.contextmanager
def followed(path: Path, tell: ScreenLines) -> Iterator[None]:
    """Print new lines while the context is active, and the remaining ones at its end."""
    lines, over = NewLines(path, tell), threading.Event()

    def go_on() -> None:
        while not over.wait(PAUSE):
            lines.look()

    thread = threading.Thread(target=go_on, name="follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        lines.look()

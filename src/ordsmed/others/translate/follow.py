"""Print the metrics of a training while it runs, in the log format of another code, for tools that parse its output."""

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
LogLines = Callable[[Line], list[str]]  # returns the original's log lines for a line of metrics; often none
PAUSE = 5.0  # seconds between checks of the file


class NewLines:
    """Print the new lines of a metrics file, which a run that rewinds or restarts may truncate."""

    def __init__(self, path: Path, log_lines: LogLines) -> None:
        self.path, self.log_lines = path, log_lines
        self.known = array("q")  # hashes of the lines read: the file may be truncated and grow between two checks
        self.last, self.read = b"", 0
        self._new()

    def look(self) -> None:
        new = self._new()
        try:
            for line in new:
                for text in self.log_lines(json.loads(line)):
                    print(text, flush=True)
        except BrokenPipeError:  # standard output was closed: stop printing, the training continues
            self.log_lines = lambda line: []
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _new(self) -> list[bytes]:
        if not self.path.exists():
            self.known, self.last, self.read = array("q"), b"", 0
            return []
        with self.path.open("rb") as file:
            file.seek(self.read - len(self.last))
            if file.read(len(self.last)) != self.last:
                # the file was truncated: find the first line that differs from the one that was read
                file.seek(0)
                pairs = zip(file, self.known, strict=False)
                lengths = [len(line) for line, _ in itertools.takewhile(lambda pair: hash(pair[0]) == pair[1], pairs)]
                del self.known[len(lengths) :]
                self.last, self.read = b"", sum(lengths)
            file.seek(self.read)
            new = [line for line in file if line.endswith(b"\n")]
        self.known.extend(map(hash, new))
        self.read += sum(map(len, new))
        self.last = new[-1] if new else self.last
        return new


@contextlib.contextmanager
def followed(path: Path, log_lines: LogLines) -> Iterator[None]:
    """Print the new lines of `path` while the context is active, and the remaining ones at its end."""
    lines, end = NewLines(path, log_lines), threading.Event()

    def print_until_end() -> None:
        while not end.wait(PAUSE):
            lines.look()

    thread = threading.Thread(target=print_until_end, name="follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        lines.look()

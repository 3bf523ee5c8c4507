"""A training told in another code's words while it goes on: lines of its metrics.jsonl, as they come.

Whoever watches a log, or has a script that does, finds the lines where theirs prints them: on standard output.
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
Teller = Callable[[Line], list[str]]  # what theirs prints of a step or a validation; nothing of most
PAUSE = 5.0  # seconds between two looks


class NewLines:
    """What a file of lines got since the last look; a run that goes back a little cuts it, one that begins anew too."""

    def __init__(self, path: Path, tell: Teller) -> None:
        self.path, self.tell = path, tell
        self.known = array("q")  # of each line that was read a hash: between two looks a file may be cut and grow again
        self.last, self.read = b"", 0
        self._new()

    def look(self) -> None:
        """Print what the new lines mean; a line that is not whole yet waits."""
        new = self._new()
        try:
            for line in new:
                for text in self.tell(json.loads(line)):
                    print(text, flush=True)
        except BrokenPipeError:  # nobody reads: the training itself sees to what follows
            self.tell = lambda line: []
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _new(self) -> list[bytes]:
        if not self.path.exists():
            self.known, self.last, self.read = array("q"), b"", 0
            return []
        with self.path.open("rb") as file:
            file.seek(self.read - len(self.last))
            if file.read(len(self.last)) != self.last:
                # to the first line that is not the one that was read
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
def followed(path: Path, tell: Teller) -> Iterator[None]:
    """Tell what comes while something is done in here, and after it what is left."""
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

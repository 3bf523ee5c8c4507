"""A training told in another code's words while it goes on: lines of its metrics.jsonl, as they come.

Whoever watches a log, or has a script that does, finds the lines where theirs prints them: on standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
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
        self.read = path.stat().st_size if path.exists() else 0

    def look(self) -> None:
        """Print what the new lines mean; a line that is not whole yet waits."""
        if not self.path.exists():
            self.read = 0
            return
        with self.path.open("rb") as file:
            self.read = min(self.read, self.path.stat().st_size)
            file.seek(self.read)
            whole, end, _ = file.read().rpartition(b"\n")
        self.read += len(whole) + len(end)
        try:
            for line in whole.splitlines():
                for text in self.tell(json.loads(line)):
                    print(text, flush=True)
        except BrokenPipeError:  # nobody reads: the training itself sees to what follows
            self.tell = lambda line: []
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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

"""Time used for a folder over all sessions, including sessions that were killed."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.run import Run
from ordsmed.base.say import duration, say

BEAT = 5.0  # seconds between notes of the time used: a kill loses no more
NOTE = ".seconds.json"  # the file of those notes; other code writes the status


@dataclass(frozen=True)
class NamedFolder:
    """A folder's name, with the interface of a recipe for checks of names."""

    out: str
    verb: str

    def stamp(self) -> object:
        return None


class Clock:
    """Counts wall-clock and CPU seconds of this process, of its finished children and of earlier sessions.

    `since` is when this process started, by `time.time`; None: its time counts from now.
    """

    def __init__(self, place: Run, since: float | None = None) -> None:
        known = [place.status, _noted(place)]
        self.before, self.cpu_before = (
            max(float(of.get(name, 0.0)) for of in known) for name in ("seconds", "cpu_seconds")
        )
        self.place, self.began = place, time.monotonic()
        if since is None:
            self.cpu_before -= cpu_seconds()
        else:
            self.began -= time.time() - since

    @property
    def used(self) -> float:
        return self.before + time.monotonic() - self.began

    @property
    def cpu(self) -> float:
        return self.cpu_before + cpu_seconds()

    @property
    def facts(self) -> dict[str, float]:
        return {"seconds": round(self.used, 1), "cpu_seconds": round(self.cpu, 1)}

    def keep(self) -> None:
        self.place.set(**self.facts)

    def note(self) -> None:
        """Write the time used to a separate file, for the case that the process is killed."""
        if self.place.status:
            files.write_json(self.place.path / NOTE, self.facts)

    def stage(self, name: str) -> None:
        self.keep()
        say(f"== {name} (after {duration(self.used)})")


@contextmanager
def timed(run_folder: Run, since: float | None = None) -> Iterator[Clock]:
    """Count the time used for a folder; it is saved however the process ends."""
    clock, over = Clock(run_folder, since), threading.Event()

    def beat() -> None:
        while not over.wait(BEAT):
            with suppress(OrdsmedError, OSError):  # a full disk must not stop the work here
                clock.note()

    thread = threading.Thread(target=beat, name="seconds", daemon=True)
    thread.start()
    try:
        yield clock
    finally:
        over.set()
        thread.join()
        with suppress(OrdsmedError):  # a full disk was reported already
            if run_folder.status:
                clock.keep()
                (run_folder.path / NOTE).unlink(missing_ok=True)


def _noted(run_folder: Run) -> dict[str, Any]:
    path = run_folder.path / NOTE
    with suppress(OrdsmedError):
        return files.read_table(path) if path.exists() else {}
    return {}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)

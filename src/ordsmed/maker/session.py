"""Seconds that were used for what a folder holds, over all sessions, those that were killed included."""

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

BEAT = 5.0  # seconds between two notes of the time that was used: a kill loses no more
NOTE = ".seconds.json"  # the file of those notes, apart from the status, which others write


@dataclass(frozen=True)
class NamedFolder:
    """A folder's name, as those of recipes are checked."""

    out: str
    verb: str

    def stamp(self) -> object:
        return None


class Clock:
    """Seconds that were used, and those of processors, of this process and the ones that it waited for.

    `since`: when this process began, on the clock of `time.time`; None: its time counts from now.
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
        """Write down what was used until now."""
        self.place.set(**self.facts)

    def note(self) -> None:
        """Write it down where a process that is killed leaves it."""
        if self.place.status:
            files.write_json(self.place.path / NOTE, self.facts)

    def stage(self, name: str) -> None:
        """Say what is next, and keep the time that was used."""
        self.keep()
        say(f"== {name} (after {duration(self.used)})")


@contextmanager
def timed(place: Run, since: float | None = None) -> Iterator[Clock]:
    """Count the time that is used for a folder; it is kept whatever ends the process."""
    clock, over = Clock(place, since), threading.Event()

    def beat() -> None:
        while not over.wait(BEAT):
            with suppress(OrdsmedError, OSError):  # a full disk stops no work by this
                clock.note()

    thread = threading.Thread(target=beat, name="seconds", daemon=True)
    thread.start()
    try:
        yield clock
    finally:
        over.set()
        thread.join()
        with suppress(OrdsmedError):  # a full disk, which what failed has told of
            if place.status:
                clock.keep()
                (place.path / NOTE).unlink(missing_ok=True)


def _noted(place: Run) -> dict[str, Any]:
    """Return the last note of a process that was killed, or an empty table."""
    path = place.path / NOTE
    with suppress(OrdsmedError):
        return files.read_table(path) if path.exists() else {}
    return {}


def cpu_seconds() -> float:
    """Return the seconds of processors that this process has used, and those of the children that it waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)

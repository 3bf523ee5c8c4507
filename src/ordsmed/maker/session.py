"""Seconds that were used for what a folder holds, over all sessions; a kill loses those since the last stage."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ordsmed.base.errors import OrdsmedError
from ordsmed.base.run import Run
from ordsmed.base.say import duration, say


@dataclass(frozen=True)
class NamedFolder:
    """A folder's name, as those of recipes are checked."""

    out: str
    verb: str

    def stamp(self) -> object:
        return None


class Clock:
    """Seconds that were used, and those of processors, of this process and the ones that it waited for."""

    def __init__(self, place: Run) -> None:
        status = place.status
        self.place, self.before, self.began = place, float(status.get("seconds", 0.0)), time.monotonic()
        self.cpu_before = float(status.get("cpu_seconds", 0.0)) - cpu_seconds()

    @property
    def used(self) -> float:
        return self.before + time.monotonic() - self.began

    @property
    def cpu(self) -> float:
        return self.cpu_before + cpu_seconds()

    def keep(self) -> None:
        """Write down what was used until now."""
        self.place.set(seconds=round(self.used, 1), cpu_seconds=round(self.cpu, 1))

    def stage(self, name: str) -> None:
        """Say what is next, and keep the time that was used: a kill leaves no other."""
        self.keep()
        say(f"== {name} (after {duration(self.used)})")


@contextmanager
def timed(place: Run) -> Iterator[Clock]:
    """Whatever ends it, the time is kept."""
    clock = Clock(place)
    try:
        yield clock
    finally:
        with suppress(OrdsmedError):  # a full disk, which what failed has told of
            if place.status:
                clock.keep()


def cpu_seconds() -> float:
    """Return the seconds of processors that this process has used, and those of the children that it waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)

"""Several runs side by side, a process each: where they run, how they are begun and ended, why one failed.

runs that are not done -> places (GPUs, shares of the cores) -> `ordsmed pretrain|finetune` each -> ends, as they come
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from ordsmed.base import files, run, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.launch.local import end_with_parent
from ordsmed.base.machine.host import cores
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.run import Run
from ordsmed.base.say import Progress, say
from ordsmed.base.screen import command
from ordsmed.train import checkpoint
from ordsmed.train.loop import asked_to_stop
from ordsmed.train.training import Training

LOOK = 0.1  # seconds
UNDONE = "stopped before its end (ORDSMED_STOP_AT); the same command goes on"


@dataclass(frozen=True)
class PlannedRun:
    """One run among several; its recipe stands beside its folder."""

    name: str
    recipe: Training

    @property
    def folder(self) -> Path:
        """Its run's."""
        return Path(str(self.recipe.out))

    @property
    def path(self) -> Path:
        """Its recipe's; what it says before it has a log of its own stands beside that."""
        return self.folder.with_name(f"{self.name}.toml")

    @property
    def said(self) -> Path:
        """What it says, until it is done."""
        return self.folder.with_name(f"{self.name}.said")

    @property
    def done(self) -> bool:
        """Is there nothing left to do?"""
        return Run(self.folder).status.get("state") == "done"


R = TypeVar("R", bound=PlannedRun)


@dataclass(frozen=True)
class Gathering:
    """What several runs are called, and which verb goes on with their folder."""

    folder: Path
    verb: str
    noun: str


@dataclass(frozen=True)
class Places:
    """Where runs go on side by side: the environment of each, and how many devices each has."""

    environments: tuple[dict[str, str], ...]
    devices: int = 0
    """processes of a run, started by `--devices`; 0: it is one process"""


def write(one: PlannedRun, what: str) -> None:
    """The recipe of a run; what stands under its name has to be the same."""
    check(one, what)
    files.write_text(one.path, settings.write(one.recipe))


def check(one: PlannedRun, what: str) -> None:
    """Refuse what stands under a run's name and is another."""
    if one.path.exists() and kind_of_folder(one.folder).made:
        stands = settings.decode(type(one.recipe), settings.read(one.path), str(one.path))
        if run.essence(stands) != run.essence(one.recipe):
            problem = f"is a {what} of other settings"
            raise RecipeError(one.folder, problem, "", "name another `out=`, or add --anew")


def make(of: Gathering, runs: Sequence[R], places: Places, finished: Callable[[R, str], None]) -> dict[str, str]:
    """Make those that are not done, some at a time; returns those that failed, and why.

    `finished` is called with each that is done, and how long the rest may take.
    """
    waiting, count = deque(one for one in runs if not one.done), len(runs)
    stand = count - len(waiting)
    if waiting:
        course = f"{waiting[0].folder.parent}/*/log.txt"
        together = f"{len(places.environments)} at a time; each tells its course in {course}"
        say(f"{stand} of {count} {of.noun}s stand; {together}")
    failed: dict[str, str] = {}
    with asked_to_stop() as stopped, Progress(f"{of.noun}s", count, f"{of.noun}s", done=stand, every=math.inf) as shown:
        with contextlib.closing(side_by_side(waiting, places, stopped)) as ends:
            for one, status in ends:
                if why := why_failed(one, status) or ("" if one.done else UNDONE):
                    known = any(why.replace(one.name, other) == before for other, before in failed.items())
                    failed[one.name] = why
                    say(f"{one.name} failed likewise" if known else f"{one.name} failed: {why}")
                else:
                    shown.add(1)
                    finished(one, shown.left())
        if stopped():
            done = sum(one.done for one in runs)
            Run(of.folder).set(state="stopped")
            say(f"{done} of {count} {of.noun}s are done; go on with: {command(of.verb, of.folder)}")
            raise Stopped(done, stopped())
    return failed


def side_by_side(waiting: deque[R], places: Places, stopped: Callable[[], int]) -> Generator[tuple[R, int], None, None]:
    """Start as many runs as there are places; yields each with its exit status when it ends."""
    free = list(places.environments)
    threads = threads_of(local_world=max(1, len(free) * (places.devices or 1)))
    running: dict[subprocess.Popen[bytes], tuple[R, dict[str, str]]] = {}
    try:
        while (running or waiting) and not stopped():
            while waiting and free:
                one, place = waiting.popleft(), free.pop(0)
                running[start(one, place, threads, places.devices)] = one, place
            time.sleep(LOOK)
            for process in [process for process in running if process.poll() is not None]:
                one, place = running.pop(process)
                free.append(place)
                yield one, process.returncode
    finally:
        end(list(running))


def places_of(device: str, jobs: int, most: int, devices: int = 0) -> Places:
    """As many as are asked for, else one for each GPU (or group of `devices`), on a CPU for each two cores."""
    each = devices or 1
    gpus = gpus_here() if device in ("auto", "cuda") else []
    groups = [",".join(gpus[n : n + each]) for n in range(0, len(gpus) - each + 1, each)]
    on_cpu = max(1, cores() // max(2, each)) if not device.startswith("cuda") else 1
    count = min(jobs or len(groups) or on_cpu, most)
    return Places(
        tuple({"CUDA_VISIBLE_DEVICES": groups[n % len(groups)]} if groups else {} for n in range(count)), devices
    )


def gpus_here() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


def start(one: PlannedRun, environment: Mapping[str, str], threads: int, devices: int = 0) -> subprocess.Popen[bytes]:
    """A process that makes this run; should this one be killed, that one saves and stops."""
    words = [sys.executable, "-m", "ordsmed", one.recipe.verb, str(one.path)]
    if not one.recipe.layout.threads:
        words.append(f"layout.threads={checkpoint.threads_kept(one.folder) or threads}")  # it keeps its bits
    if devices:
        words += ["--devices", str(devices)]
    with one.said.open("w") as log:  # a session of its own: Ctrl-C reaches this process alone, which passes it on
        return subprocess.Popen(words, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True,
                                preexec_fn=end_with_parent)  # fmt: skip


def end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Runs that are not done save and end; asked for once more, at once."""
    for process in running:
        process.terminate()
    try:
        for process in running:
            process.wait()
    except KeyboardInterrupt:
        for process in running:
            process.kill()
        raise


def why_failed(one: PlannedRun, status: int) -> str:
    """A run's complaint, in its own words; empty where all went well."""
    if status == 0:
        one.said.unlink(missing_ok=True)
        return ""
    lines = one.said.read_text(encoding="utf-8", errors="replace").splitlines()
    if complaints := [line.removeprefix("ordsmed: ") for line in lines if line.startswith("ordsmed: ")]:
        return complaints[-1]
    ended = f"exit status {status}" if status > 0 else f"ended by {signal.Signals(-status).name}"
    return f"{ended}; {one.said} tells more"

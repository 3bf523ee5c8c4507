"""Several runs side by side, one process each: where they run, how they start and end, and why one failed.

unfinished runs -> places (GPUs, shares of the cores) -> `ordsmed pretrain|finetune` for each -> exit status of each
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch

from ordsmed.base import files, run, settings
from ordsmed.base.ending import STOP_SIGNALS, Stopped
from ordsmed.base.errors import Lost, OrdsmedError, RecipeError
from ordsmed.base.folder import EXAMPLES, RECIPE, kind_of_folder
from ordsmed.base.launch.local import end_with_parent
from ordsmed.base.machine.host import cores
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.run import Run
from ordsmed.base.say import Progress, buffered_log, log_to, say
from ordsmed.base.screen import command, command_lines
from ordsmed.train import checkpoint
from ordsmed.train.loop import catch_stop_signals
from ordsmed.train.plan import Plan
from ordsmed.train.precision_trial import fastest_precision
from ordsmed.train.training import Training

LOOK = 0.1  # seconds
RETRIES = 2  # restarts of a run whose process was killed
UNDONE = "stopped before its end (ORDSMED_STOP_AT); run the same command to resume"


@dataclass(frozen=True)
class PlannedRun:
    name: str
    recipe: Training
    yes: bool = field(default=False, kw_only=True)
    """the settings that all runs share"""

    @property
    def folder(self) -> Path:
        return Path(str(self.recipe.out))

    @property
    def path(self) -> Path:
        return self.folder.with_name(f"{self.name}.toml")

    @property
    def output_file(self) -> Path:
        return self.folder.with_name(f"{self.name}.said")

    @property
    def done(self) -> bool:
        return Run(self.folder).status.get("state") == "done"


R = TypeVar("R", bound=PlannedRun)
T = TypeVar("T", bound=Training)


@dataclass(frozen=True, kw_only=True)
class RunGroup(Generic[R]):
    """Several runs of one recipe in one folder."""

    folder: Path
    recipe: Training
    """what they share"""
    runs: tuple[R, ...]
    plan: type[Plan]
    """the kind of plan of the runs"""
    workers: int = 0
    """runs at a time; 0: one for each GPU, on a CPU one for every two cores"""
    devices: int = 0
    """processes of each run; 0: one, without a launcher"""

    noun: ClassVar[str]
    file: ClassVar[str] = RECIPE
    """name of the file in the folder with the shared settings"""
    remains: ClassVar[str]
    """pattern of files of trained runs, which must not be overwritten"""
    problem: ClassVar[str]
    wanted: ClassVar[str]

    @property
    def verb(self) -> str:
        return self.recipe.verb

    @property
    def mark(self) -> str:
        """The fingerprint that identifies the recipe and its data in the folder's status."""
        return run.fingerprint(self.recipe)

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    @property
    def exists(self) -> bool:
        return (self.folder / self.file).is_file()

    @contextlib.contextmanager
    def work(self, *, anew: bool) -> Iterator[Self | None]:
        """Lock the folder, start the group and open its log; yield None if all is done and read-only.

        Errors are recorded in the group's status.
        """
        run.check_free(self.folder)
        with run.locked(self.folder):
            if not anew and self.is_done_for_good():
                say(f"{self.folder}: is done and read-only, so nothing is changed")
                yield None
                return
            with buffered_log() as before:
                group = self.begin(anew=anew)
            with log_to(self.folder / "log.txt", before.getvalue()):
                try:
                    group.write_recipes()
                    yield group
                except (OrdsmedError, OSError, RuntimeError) as error:
                    with contextlib.suppress(OrdsmedError, OSError):  # if the disk fails, the first error is enough
                        if Run(self.folder).status.get("state") == "running":
                            Run(self.folder).set(state="failed", why=str(error))
                    raise

    def is_done_for_good(self) -> bool:
        status = Run(self.folder).status
        same = status.get("state") == "done" and status.get("fingerprint") == self.mark
        return same and not os.access(self.folder, os.W_OK) and all(member.done for member in self.runs)

    def check_folder(self, *, anew: bool) -> bool:
        """Return whether the folder has runs of this recipe to resume; raise if it has trained runs of another."""
        status, mark = Run(self.folder).status, self.mark  # computing the mark also checks that all files exist
        if not status:
            return False
        run.finished(self.folder, self.verb)
        differs = status.get("fingerprint") != mark
        if differs and not anew and any(self.folder.glob(self.remains)):
            raise RecipeError(self.folder, self.problem, self.wanted, "name another `out=`, or add --anew")
        return not (differs or anew)

    def begin(self, *, anew: bool) -> Self:
        """Write the group's folder, and return the group with the same precision in all runs."""
        run_folder = Run(self.folder)
        before = run_folder.status
        if not self.check_folder(anew=anew) and before:
            files.set_aside(self.folder, stay=EXAMPLES) if anew else run.clear(self.folder)
        group = self.with_precision(self._precision())
        began = before.get("began", time.time())
        run_folder.begin(
            group.recipe, **{"verb": self.verb, "fingerprint": self.mark, "why": None, "began": began, **self.facts}
        )
        if self.file != RECIPE:
            files.write_text(self.folder / self.file, settings.write(group.recipe))
        return group

    def _precision(self) -> str:
        layout = self.recipe.layout
        if self.exists:
            layout = layout.with_precision(run.read_recipe(type(self.recipe), self.folder, self.file).layout.precision)
        open_recipes = [member.recipe for member in self.runs if member.recipe.layout.precision == "auto"]
        if open_recipes and layout.precision == "auto":
            places = places_of(layout.device, self.workers, len(self.runs), self.devices)
            processes = len(places.environments) * max(1, self.devices)
            return fastest_precision(self.plan, open_recipes[0], processes)
        return layout.precision

    def with_precision(self, precision: str) -> Self:
        """Set the precision of all runs that name none, so that runs are comparable."""
        recipe = _with_precision(self.recipe, precision)
        runs = tuple(replace(member, recipe=_with_precision(member.recipe, precision)) for member in self.runs)
        return replace(self, recipe=recipe, runs=runs)

    def write_recipes(self) -> None:
        for member in self.runs:
            check(member, self.noun)
            member.path.parent.mkdir(exist_ok=True)
            files.write_text(member.path, settings.write(member.recipe))

    def make(self, finished: Callable[[R, str], None], runs: Sequence[R] | None = None) -> dict[str, str]:
        """Train all unfinished runs, several at a time; return the failed ones, each with the reason.

        `finished` is called with each finished run and the estimated time left.
        """
        runs = self.runs if runs is None else runs
        waiting, count = deque(member for member in runs if not member.done), len(runs)
        places = places_of(self.recipe.layout.device, self.workers, len(waiting), self.devices)
        done = count - len(waiting)
        if waiting:
            logs = f"{waiting[0].folder.parent}/*/log.txt"
            together = f"{len(places.environments)} at a time; their logs are {logs}"
            say(f"{done} of {count} {self.noun}s are done; {together}")
        failed: dict[str, str] = {}
        lost = Counter[str]()
        progress = Progress(f"{self.noun}s", count, f"{self.noun}s", done=done, every=math.inf)
        with (
            catch_stop_signals() as stopped,
            progress,
            contextlib.closing(side_by_side(waiting, places, stopped)) as ends,
        ):
            for member, status in ends:
                if _was_killed(status) and lost[member.name] < RETRIES:
                    lost[member.name] += 1
                    say(f"{member.name} was killed and is resumed (attempt {lost[member.name] + 1} of {RETRIES + 1})")
                    waiting.append(member)
                elif reason := failure_of(member, status) or ("" if member.done else UNDONE):
                    known = any(reason.replace(member.name, name) == before for name, before in failed.items())
                    failed[member.name] = reason
                    say(f"{member.name} failed for the same reason" if known else f"{member.name} failed: {reason}")
                else:
                    progress.add(1)
                    finished(member, progress.left())
            if stopped():
                done = sum(member.done for member in runs)
                Run(self.folder).set(state="stopped")
                title = f"{done} of {count} {self.noun}s are done; resume it with"
                say("\n".join(command_lines(title, command(self.verb, self.folder))))
                raise Stopped(done, stopped())
        return failed


def _with_precision(recipe: T, precision: str) -> T:
    return replace(recipe, layout=recipe.layout.with_precision(precision))


@dataclass(frozen=True)
class Places:
    environments: tuple[dict[str, str], ...]
    devices: int = 0
    """processes of a run, started by `--devices`; 0: it is one process"""


def check(member: PlannedRun, noun: str) -> None:
    if member.path.exists() and kind_of_folder(member.folder).made:
        before = settings.decode(type(member.recipe), settings.read(member.path), str(member.path))
        if run.essence(before) != run.essence(member.recipe):
            problem = f"is a {noun} with other settings"
            raise RecipeError(member.folder, problem, "", "name another `out=`, or add --anew")


def side_by_side(waiting: deque[R], places: Places, stopped: Callable[[], int]) -> Generator[tuple[R, int], None, None]:
    """Start as many runs as there are places; yield each with its exit status when it ends."""
    free = list(places.environments)
    threads = threads_of(local_world=max(1, len(free) * (places.devices or 1)))
    running: dict[subprocess.Popen[bytes], tuple[R, dict[str, str]]] = {}
    try:
        while (running or waiting) and not stopped():
            while waiting and free:
                member, location = waiting.popleft(), free.pop(0)
                running[start(member, location, threads, places.devices)] = member, location
            time.sleep(LOOK)
            for process in [process for process in running if process.poll() is not None]:
                member, location = running.pop(process)
                free.append(location)
                yield member, process.returncode
    finally:
        end(list(running))


def places_of(device: str, jobs: int, most: int, devices: int = 0) -> Places:
    """Return places for `jobs` runs; 0: one for each GPU or group of GPUs, or for every two CPU cores."""
    per_run = devices or 1
    gpus = gpus_here() if device in ("auto", "cuda") else []
    groups = [",".join(gpus[n : n + per_run]) for n in range(0, len(gpus) - per_run + 1, per_run)]
    on_cpu = max(1, cores() // max(2, per_run)) if not device.startswith("cuda") else 1
    count = min(jobs or len(groups) or on_cpu, most)
    return Places(
        tuple({"CUDA_VISIBLE_DEVICES": groups[n % len(groups)]} if groups else {} for n in range(count)), devices
    )


def gpus_here() -> list[str]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]


def start(
    member: PlannedRun, environment: Mapping[str, str], threads: int, devices: int = 0
) -> subprocess.Popen[bytes]:
    """Start a process that trains this run; it saves and stops if this process is killed."""
    words = [sys.executable, "-m", "ordsmed", member.recipe.verb, str(member.path)]
    words += ["--yes"] if member.yes else []
    if not member.recipe.layout.threads:
        words.append(f"layout.threads={checkpoint.threads_kept(member.folder) or threads}")  # for equal bits
    if devices:
        words += ["--devices", str(devices)]
    with member.output_file.open("w") as log:  # in a new session Ctrl-C reaches only this process, which forwards it
        return subprocess.Popen(
            words,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )


def end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    try:
        for process in running:
            process.wait()
    except KeyboardInterrupt:
        for process in running:
            process.kill()
        raise


def _was_killed(status: int) -> bool:
    """Return whether a run was killed, other than by a signal that asks to stop."""
    return status == Lost.status or (status < 0 and -status not in STOP_SIGNALS) or status == 128 + signal.SIGKILL


def failure_of(member: PlannedRun, status: int) -> str:
    if status == 0:
        member.output_file.unlink(missing_ok=True)
        return ""
    lines = member.output_file.read_text(encoding="utf-8", errors="replace").splitlines()
    if complaints := [line.removeprefix("ordsmed: ") for line in lines if line.startswith("ordsmed: ")]:
        return complaints[-1]
    ended = f"exit status {status}" if status > 0 else f"ended by {signal.Signals(-status).name}"
    return f"{ended}; see {member.output_file}"

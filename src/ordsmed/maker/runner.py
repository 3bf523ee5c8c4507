"""Jobs made of stages, in one folder: checked, planned, run one after the other, and resumed after a kill.

    request -> check of the folder -> plan (printed, written) -> stages -> state "done"

`make` and `speedrun` are jobs. `status.json` has the request, the plan, the seconds used over all sessions, and for
each finished stage its seconds and the key of its inputs.
"""

from __future__ import annotations

import resource
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from ordsmed.base import files, run, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.keys import value_key
from ordsmed.base.run import Run
from ordsmed.base.say import duration, say

BEAT = 5.0  # seconds between notes of the time used: a kill loses no more
NOTE = ".seconds.json"  # the file of those notes; other code writes the status
ASIDE = ".before"  # suffix of an output that a stage makes again; it is deleted when the job is done


class JobPlan(ABC):
    """What a job is going to do."""

    seconds: float  # expected, of the whole job

    @abstractmethod
    def rows(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Return titles, each with its lines."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the plan for `--dry-run --json`."""

    @abstractmethod
    def write(self, run_folder: Run) -> dict[str, Any]:
        """Write the plan as recipes; return facts for the status."""

    def lines(self) -> list[str]:
        return [f"  {'' if n else title:<10} {line}" for title, lines in self.rows() for n, line in enumerate(lines)]


@dataclass(frozen=True)
class Stage:
    """A step of a job: `run` makes `outputs` and returns facts for the status, or None."""

    name: str
    run: Callable[[], dict[str, Any] | None]
    outputs: Sequence[Path] = ()
    inputs: Sequence[object] | None = None
    """files and values that decide whether a finished stage is skipped; None: `run` decides this, as a training does"""

    @property
    def key(self) -> str | None:
        """The key of the inputs, files by their content."""
        if self.inputs is None:
            return None
        return value_key([files.checksum(known) if isinstance(known, Path) else known for known in self.inputs], 16)


class StagedJob(ABC):
    """A request (a dataclass with `texts` and `out`), its plan and its stages; `perform` runs it, `rehearse` plans."""

    changeable: ClassVar[tuple[str, ...]] = ()  # settings of the request that may change when a job is resumed

    def __init__(self, request: Any) -> None:
        self.request, self.folder = request, Path(request.out)

    @abstractmethod
    def plan(self, status: Mapping[str, Any], used: float) -> JobPlan | None:
        """Return the plan after `used` seconds; None if the plan in the folder stays as it is."""

    @abstractmethod
    def stages(self, clock: Clock) -> Iterator[Stage]:
        """Yield the stages. A stage is requested when the one before it is finished."""

    def finished(self, status: Mapping[str, Any]) -> str:
        """Return a line for the user if nothing is left to do, else an empty text."""
        return ""

    def mismatch(self, key: str, before: str, now: str, status: Mapping[str, Any]) -> RecipeError | None:
        """Return the error that a setting is not the one that the job was begun with; None if it may change."""
        remedy = "name another OUT, or add --anew: it moves this folder aside"
        return RecipeError(self.folder, f"was begun with {key} {before}; found {now}", "", remedy)

    def resume_lines(self) -> list[str]:
        """Return lines on how to resume a stopped job."""
        return [f"{self.folder}: the same `ordsmed {self.request.verb}` resumes all of it"]


def perform(job: StagedJob, *, anew: bool = False, began: float | None = None) -> None:
    """Run all stages, or resume where they stopped; time counts from `began`, the start of this process."""
    run.check_out(job.folder)
    with run.locked(job.folder):
        run_folder = Run(job.folder)
        _check(job, run_folder, anew=anew)
        if anew and job.folder.is_dir():
            files.set_aside(job.folder)
        if line := job.finished(run_folder.status):
            say(f"{job.folder}: {line}")
            return
        with timed(run_folder, began) as clock:
            _plan(job, run_folder, clock)
            outputs = list[Path]()
            try:
                for stage in job.stages(clock):
                    clock.run(stage)
                    outputs += stage.outputs
            except Stopped:
                say("\n".join(job.resume_lines()))
                raise
            run_folder.set(state="done")
            for path in outputs:
                shutil.rmtree(f"{path}{ASIDE}", ignore_errors=True)


def rehearse(job: StagedJob, *, anew: bool = False) -> JobPlan:
    """Return the plan and raise the errors of `perform`; nothing is written."""
    run_folder = Run(job.folder)
    _check(job, run_folder, anew=anew)
    plan = None if anew else job.plan(run_folder.status, Clock(run_folder).used)
    plan = plan or job.plan({}, 0.0)
    assert plan is not None
    return plan


def _plan(job: StagedJob, run_folder: Run, clock: Clock) -> None:
    if "planned" not in run_folder.status:
        say(f"looking at {' '.join(job.request.texts)}")
    facts: dict[str, Any] = {}
    if plan := job.plan(run_folder.status, clock.used):
        if not run_folder.status:
            with files.survive_disk(job.folder):
                job.folder.mkdir(parents=True, exist_ok=True)
            where = {"stood_in": str(Path.cwd()), "folder": str(job.folder)}
            run_folder.set(verb=job.request.verb, state="running", request=settings.plain(job.request), **where)
        for line in ["plan:", *plan.lines()]:
            say(line)
        facts = {"planned": {"seconds": plan.seconds, "lines": plan.lines()}, **plan.write(run_folder)}
    run_folder.set(state="running", request=settings.plain(job.request), **facts)


def _check(job: StagedJob, run_folder: Run, *, anew: bool) -> None:
    """Raise for a folder of something else, even with `anew`, and for another request in the folder of a job."""
    run_folder.check_place()
    status, now = run_folder.status, settings.plain(job.request)
    if status and status.get("verb") != job.request.verb:
        problem = f"is a folder of `{status.get('verb')}`"
        raise RecipeError(run_folder.path, problem, "a new or empty folder", "name another OUT")
    if status and not anew:
        usual = {field.name: field.default for field in fields(job.request) if field.default is not MISSING}
        before = settings.plain(usual) | status.get("request", {})  # a setting that was added since had its default
        for key in [key for key in now if key not in job.changeable and before.get(key) != now[key]]:
            if error := job.mismatch(key, _in_words(before.get(key)), _in_words(now[key]), status):
                raise error


def _in_words(value: object) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


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

    def run(self, stage: Stage) -> None:
        """Run a stage and record its time, unless it is finished and its inputs have not changed."""
        self.keep()
        began, known, key = self.used, self.place.status.get("stages", {}).get(stage.name, {}), stage.key
        if key and known.get("inputs") == key and all(path.exists() for path in stage.outputs):
            say(f"== {stage.name}: is finished")
            return
        say(f"== {stage.name} (after {duration(began)})")
        self._set_aside(stage)
        facts = stage.run() or {}
        finished = {"seconds": round(self.used - began, 1), **({"inputs": key} if key else {})}
        stages = {**self.place.status.get("stages", {}), stage.name: finished}
        self.place.set(**facts, **self.facts, stages=stages)

    def _set_aside(self, stage: Stage) -> None:
        """Rename outputs that are made again, as the status says in `replaces`; they stay until the job is done."""
        for path in stage.outputs:
            replaces = self.place.status.get("replaces", [])
            if path.name in replaces:
                if path.exists():
                    shutil.rmtree(f"{path}{ASIDE}", ignore_errors=True)
                    path.rename(f"{path}{ASIDE}")
                self.place.set(replaces=[name for name in replaces if name != path.name] or None)


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

"""Trials: several trainings of one recipe over settings and seeds, side by side, compared in a table.

    recipe -> grid x seeds -> a recipe each -> some `ordsmed pretrain|finetune` at a time -> table, picture, best

FOLDER/  trials.toml   the recipe with its seeds and grid; recipe.toml at the end is that of the best trial. The folder
                      then has its results: weights/, predictions/, scores.json
        trials.md  trials.json  trials.svg  log.txt
        trials/rate-3e-05,seed-1.toml, rate-3e-05,seed-1/    a run like any other

Weights, predictions and metrics of a finished trial are kept. Its checkpoints are deleted unless it is the best so far.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

from ordsmed.base import files, run, settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.folder import RECIPE, TRIALS, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.launch.site import absolute
from ordsmed.base.ranks import process_info
from ordsmed.base.run import Run
from ordsmed.base.say import log_to, many, say
from ordsmed.train import callbacks as hooks
from ordsmed.train import run_group, session
from ordsmed.train.callbacks import Callback
from ordsmed.train.grid import Trial, plan
from ordsmed.train.plan import Plan
from ordsmed.train.request import Request, SessionOptions, folder_of, read
from ordsmed.train.run_group import RunGroup
from ordsmed.train.training import ALONE, Training
from ordsmed.train.trial_results import best_of, compare, table

SHOWN = 3  # trials named in a printed line
WHOLE = (0, 1)  # all trials
COPIED = ("weights", "predictions")  # folders of the best trial that are copied


class Trials(RunGroup[Trial]):
    noun = "trial"
    file = TRIALS
    remains = f"**/{WEIGHTS}"
    problem = "holds trials of another recipe or other data, or one run"
    wanted = "only `seeds` and `grid` may change"
    plans: ClassVar[type[Plan]]
    lower_is_better: ClassVar[bool] = False

    @classmethod
    def of(cls, folder: Path, recipe: Training, name: str, *, yes: bool = False) -> Self:
        runs = tuple(replace(trial, yes=yes) for trial in plan(recipe, folder, name, cls.more_axes(recipe, name)))
        return cls(folder=folder, recipe=recipe, runs=runs, plan=cls.plans, workers=getattr(recipe, "jobs", 0))

    @classmethod
    def asked(
        cls,
        name: str,
        overrides: Sequence[str] = (),
        *,
        deadline: float | None = None,
        anew: bool = False,
        layout: str = "",
        site: str = "",
        devices: int = 0,
        yes: bool = False,
    ) -> Self | None:
        """Return the trials that the arguments describe, or None for a single run."""
        kind = kind_of_folder(name)
        is_group = kind is FolderKind.TRIALS
        if kind.made and not is_group:
            return None
        mesh = "" if layout == "auto" else layout
        recipe = read(cls.plans.recipes, name, overrides, site=site, layout=mesh, file=TRIALS if is_group else RECIPE)
        folder = folder_of(recipe, name)
        if not recipe.several:
            if kind_of_folder(folder) is FolderKind.TRIALS and not anew:
                raise RecipeError(folder, "holds several trials", "one run", "name another `out=`, or add --anew")
            return None
        if (processes := max(process_info(os.environ).world, devices)) > 1:
            problem = f"found {many(processes, 'process')}, with several trials"
            raise RecipeError("--devices", problem, "one: each trial has one device", "`jobs` trains several at a time")
        if deadline:
            raise RecipeError("--deadline", "found with several trials", "", "set `steps` or `epochs`")
        if layout == "auto":
            raise RecipeError("--layout", "found auto, with several trials", "1x1x1: each trial has one device")
        return cls.of(folder, recipe, name, yes=yes)

    @classmethod
    def more_axes(cls, recipe: Training, name: str) -> dict[str, Sequence[Any]]:
        """Return settings in which trials differ, in addition to the grid and the seeds."""
        return {}

    @property
    def mark(self) -> str:
        return run.fingerprint(replace(self.recipe, seed=0, **ALONE))

    @property
    def score(self) -> str:
        """The name of the score that compares trials."""
        raise NotImplementedError

    def prepare(self, *, anew: bool) -> None:
        """Make shared inputs and raise errors before any trial starts."""

    def perform(self, callbacks: Sequence[Callback] = (), *, anew: bool = False, part: tuple[int, int] = WHOLE) -> Path:
        """Train the unfinished trials, write their table, and copy the results of the best one to the folder."""
        if not self.is_done_for_good():
            self.prepare(anew=anew)
        if part != WHOLE:
            return self._perform_part(callbacks, part)
        with self.work(anew=anew) as group:
            if group:
                failed = group.make(group.note)
                result = compare(group.score, group.runs, failed, lower_is_better=group.lower_is_better)
                files.write_json(group.folder / "trials.json", result)
                lines = table(group.folder.name, result)
                files.write_text(group.folder / "trials.md", "\n".join(lines) + "\n")
                hooks.call(callbacks, "finished", group.folder)
                group.refuse_failed(failed, group.runs)
                best = next(trial for trial in group.runs if trial.name == result["best"])
                facts = _fill_from_best(group.folder, best)
                Run(group.folder).set(state="done", best=result["best"], **facts)
        return self.folder

    def rehearse(self, *, anew: bool = False) -> list[str]:
        """Return lines that describe what `perform` would do; raise the errors that it would raise at its start.

        Call it within `run.without_making()`, so that missing inputs are not made.
        """
        run.check_free(self.folder)
        with contextlib.suppress(run.NotMade):  # missing data have no fingerprint yet
            self.check_folder(anew=anew)
        left = self.runs if anew else [trial for trial in self.runs if not trial.done]
        for trial in [] if anew else self.runs:
            run_group.check(trial, self.noun)
        return [*describe(self.runs), *(self.dry_run(left, anew=anew).lines() if left else [])]

    def dry_run(self, trials: Sequence[Trial], *, anew: bool) -> Plan:
        """Return the plan of the first trial. Trials that are equal by `alike` share a plan."""
        plans: dict[str, Plan] = {}
        for trial in trials:
            key = self.plan_key(trial.recipe)
            if key in plans:
                self.check_plan(plans[key], trial.recipe)
            else:
                request = Request(trial.recipe, trial.folder, (str(trial.path),), anew=anew, yes=trial.yes)
                plans[key] = session.dry_run(self.plans, request)
        return next(iter(plans.values()))

    def plan_key(self, recipe: Training) -> str:
        """Return a key; trials with equal keys share one plan."""
        return repr(replace(recipe, seed=0, out=None))

    def check_plan(self, plan: Plan, recipe: Training) -> None:
        """Raise the errors of a recipe that shares `plan`."""

    def _perform_part(self, callbacks: Sequence[Callback], part: tuple[int, int]) -> Path:
        """Train every `part[1]`-th trial, as a job of an array; the last part to finish compares all trials."""
        run.check_free(self.folder)
        with run.locked(self.folder):
            if self.is_done_for_good():
                return self.folder
            group = self.begin(anew=False)
            group.write_recipes()
        mine = group.runs[part[0] :: part[1]]  # parts run side by side: each run has its own lock
        with log_to(self.folder / "log.txt"):
            group.refuse_failed(group.make(group.note, mine), mine)
        left = sum(not trial.done for trial in group.runs)
        if not left:
            return self.perform(callbacks)
        say(f"{len(mine)} of {many(len(group.runs), 'trial')} are done in this part; {left} are left in other parts")
        return self.folder

    def refuse_failed(self, failed: Mapping[str, str], trials: Sequence[Trial]) -> None:
        if failed:
            problem = f"{len(failed)} of {many(len(trials), 'trial')} failed: {', '.join(failed)}"
            raise RunError(self.folder, problem, "", "run the same command again to repeat them")

    def note(self, trial: Trial, left: str) -> None:
        score, done = self.score, [trial for trial in self.runs if trial.done]
        best = best_of(done, score, lower_is_better=self.lower_is_better)
        for finished in done:
            if finished is not best:
                shutil.rmtree(finished.folder / "checkpoints", ignore_errors=True)
        progress = f"{len(done)} of {len(self.runs)} done" + (f", {left} left" if len(done) < len(self.runs) else "")
        say(f"{trial.name}: {self._score_text(trial)}; {progress}; best: {self._score_text(best)}, {best.name}")

    def _score_text(self, trial: Trial) -> str:
        if self.score not in trial.scores:
            return "not scored"
        return f"{self.score} {trial.scores[self.score]:.{4 if self.lower_is_better else 2}f}"


def train(
    kind: type[Trials], name: str, overrides: Sequence[str], part: str | None, **options: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes, and return their folder."""
    _check_options(part, options)
    with run.in_start_folder(name) as location:
        group = kind.asked(location, overrides, **_without_callbacks(options))
        share = _part_of(group, part)
        if group:
            return group.perform(options.get("callbacks", ()), anew=bool(options.get("anew")), part=share)
        if has_only_weights(location, **options):
            return Path(location)
        return session.run_session(kind.plans, location, overrides, **options)


def rehearse(
    kind: type[Trials],
    name: str,
    overrides: Sequence[str],
    part: str | None,
    devices: int,
    **options: Unpack[SessionOptions],
) -> tuple[Training, list[str]]:
    """Return the recipe that `train` would use and its plan as lines; raise its errors, and make nothing."""
    _check_options(part, options)
    with run.without_making(), run.in_start_folder(name) as location:
        group = kind.asked(location, overrides, devices=devices, **_without_callbacks(options))
        _part_of(group, part)
        if group:
            return group.recipe, group.rehearse(anew=bool(options.get("anew")))
        if has_only_weights(location, **options):
            return run.read_recipe(kind.plans.recipes, Path(location)), []
        plan = session.rehearse(kind.plans, location, overrides, devices=devices, **options)
        return plan.recipe, plan.lines()


def _check_options(part: str | None, options: SessionOptions) -> None:
    if part and options.get("anew"):
        raise RecipeError("--anew", "found with --part", "only one of them", "run `--anew` alone first")
    options["site"] = absolute(options.get("site", ""))


def _part_of(group: Trials | None, part: str | None) -> tuple[int, int]:
    if part and not group:
        raise RecipeError("--part", f"found {part}, of one run", "a recipe with `seeds` or a `grid`")
    return run.parse_part(part) if part else WHOLE


def _without_callbacks(options: SessionOptions) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "callbacks"}


def has_only_weights(name: str, **options: Unpack[SessionOptions]) -> bool:
    """Return whether the folder is a finished trial whose checkpoints were deleted."""
    folder = Path(name)
    kinds = (FolderKind.PRETRAINING, FolderKind.FINETUNING)
    done = kind_of_folder(folder) in kinds and Run(folder).status.get("state") == "done"
    away = done and not options.get("anew") and not (folder / "checkpoints").exists()
    if away:
        say(f"{name}: is done; its weights are kept")
    return away


def describe(trials: Sequence[Trial]) -> list[str]:
    titles = [trial.name for trial in trials]
    more = f" ... and {len(titles) - SHOWN} others" if len(titles) > SHOWN else ""
    return [f"trials: {len(titles)}, each trained on one device: {' '.join(titles[:SHOWN])}{more}"]


def _fill_from_best(folder: Path, best: Trial) -> dict[str, Any]:
    for name in COPIED:
        if (best.folder / name).is_dir():
            with files.making(folder / name) as new:
                shutil.copytree(best.folder / name, new, copy_function=_link, dirs_exist_ok=True)
    table = settings.read(best.folder / "recipe.toml") | {"out": str(folder)}
    files.write_text(
        folder / "recipe.toml", settings.write(settings.decode(type(best.recipe), table, str(best.folder)))
    )
    files.write_json(folder / "scores.json", best.facts)
    return best.facts


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

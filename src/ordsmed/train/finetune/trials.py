"""Trials: several fine-tunings of one recipe, over checkpoints, settings and seeds, side by side in a table.

    recipe -> step x grid x seeds -> a recipe each -> some `ordsmed finetune` at a time -> table, picture, best

FOLDER/  trials.toml   the recipe with its seeds and grid; recipe.toml in the end is that of the best trial, for which
                       the folder then stands: weights/, predictions/, scores.json
         trials.md  trials.json  trials.svg  log.txt
         trials/rate-3e-05,seed-1.toml, rate-3e-05,seed-1/    a run like any other

Of a trial that is done, weights, predictions and metrics stay; its checkpoints go, but for those of the best so far.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, run, settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.folder import RECIPE, TRIALS, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.ranks import place_of
from ordsmed.base.run import Run
from ordsmed.base.say import logged, say
from ordsmed.train import callbacks as hooks
from ordsmed.train import session, several
from ordsmed.train.callbacks import Callback
from ordsmed.train.finetune.compared import best_of, compared, table
from ordsmed.train.finetune.grid import Trial, plan
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.request import Request, folder_of, read
from ordsmed.train.several import RunGroup

NAMED = 3  # trials
READ = ("init", "step", "fresh", "fresh_head", "model", "tokenizer", "task")  # settings by which all is read
LEFT = ("weights", "predictions")  # of the best trial, for the folder of all


def asked(
    name: str, overrides: Sequence[str] = (), *, deadline: float | None = None, anew: bool = False,
    layout: str = "", site: str = "", devices: int = 0,
) -> tuple[Path, Finetuning] | None:  # fmt: skip
    """The folder and recipe of the trials that are meant; None where one run is. Options as in session.run_session;
    `devices`: the processes that will be started."""
    kind = kind_of_folder(name)
    stand = kind is FolderKind.TRIALS
    if kind.made and not stand:
        return None
    mesh = "" if layout == "auto" else layout
    recipe = read(Finetuning, name, overrides, site=site, layout=mesh, file=TRIALS if stand else RECIPE)
    folder = folder_of(recipe, name)
    if not recipe.several:
        if kind_of_folder(folder) is FolderKind.TRIALS and not anew:
            raise RecipeError(folder, "holds several trials", "one run", "name another `out=`, or add --anew")
        return None
    if (processes := max(place_of(os.environ).world, devices)) > 1:
        problem = f"found {processes} processes, with several trials"
        raise RecipeError("--devices", problem, "one: each trial has one device", "`jobs` are trials at a time")
    if deadline:
        raise RecipeError("--deadline", "found for fine-tunings, which go by epochs", "", "set `steps` or `epochs`")
    if layout == "auto":
        raise RecipeError("--layout", "found auto, with several trials", "1x1x1: each trial has one device")
    return folder, recipe


def is_put_away(folder: Path) -> bool:
    """Is this a trial that is done, its checkpoints gone?"""
    done = kind_of_folder(folder) is FolderKind.FINETUNING and Run(folder).status.get("state") == "done"
    return done and not (folder / "checkpoints").exists()


class Trials(RunGroup[Trial]):
    """The trials of one recipe."""

    recipe: Finetuning

    noun = "trial"
    file = TRIALS
    remains = f"**/{WEIGHTS}"
    problem = "holds trials of another recipe or other data, or one run"
    wanted = "only `seeds` and `grid` may change"

    @staticmethod
    def of(folder: Path, recipe: Finetuning, name: str) -> Trials:
        """Those that the recipe of this name means."""
        runs = tuple(plan(recipe, folder, name))
        return Trials(folder=folder, recipe=recipe, runs=runs, plan=FinetuningPlan, workers=recipe.jobs)

    @property
    def mark(self) -> str:
        return run.fingerprint(replace(self.recipe, seeds=(), grid={}, seed=0))

    @property
    def score(self) -> str:
        """By which trials are compared: as one that is done says, which has seen the labels."""
        done = next((trial for trial in self.runs if trial.done), None)
        return (run.read_recipe(Finetuning, done.folder) if done else self.recipe).score


def perform(
    folder: Path, recipe: Finetuning, name: str, callbacks: Sequence[Callback] = (), *, anew: bool = False
) -> Path:
    """Make the trials that are not made yet, and the table of all; the folder is then that of the best of them."""
    with Trials.of(folder, recipe, name).work(anew=anew) as group:
        if group:
            failed = group.make(lambda trial, left: _note(trial, group, left))
            table = compared(group.score, group.runs, failed)
            _write(folder, table)
            hooks.call(callbacks, "finished", folder)
            _refuse_failed(group, failed, group.runs)
            facts = _fill_from_best(folder, next(trial for trial in group.runs if trial.name == table["best"]))
            Run(folder).set(state="done", best=table["best"], **facts)
    return folder


def rehearse(folder: Path, recipe: Finetuning, name: str, *, anew: bool = False) -> list[str]:
    """What `perform` would do, in lines, and what it or any of its trials refuses; making is switched off."""
    group = Trials.of(folder, recipe, name)
    run.check_free(folder)
    group.check_folder(anew=anew)
    left = group.runs if anew else [trial for trial in group.runs if not trial.done]
    for trial in [] if anew else group.runs:
        several.check(trial, group.noun)
    return [*describe(group.runs), *(_dry_run(left, anew=anew).lines() if left else [])]


def _dry_run(trials: Sequence[Trial], *, anew: bool) -> FinetuningPlan:
    """The plan of the first. Of trials that start from the same and read the same, one is planned whole for all."""
    plans: dict[str, FinetuningPlan] = {}
    for trial in trials:
        key = repr([getattr(trial.recipe, key) for key in READ])
        if key in plans:
            plans[key].check(trial.recipe)
        else:
            request = Request(trial.recipe, trial.folder, (str(trial.path),), anew=anew)
            plans[key] = session.dry_run(FinetuningPlan, request)
    return next(iter(plans.values()))


def describe(trials: Sequence[Trial]) -> list[str]:
    titles = [trial.name for trial in trials]
    more = f" ... and {len(titles) - NAMED} others" if len(titles) > NAMED else ""
    return [f"trials: {len(titles)}, each a run on a device of its own: {' '.join(titles[:NAMED])}{more}"]


def perform_part(
    folder: Path, recipe: Finetuning, name: str, callbacks: Sequence[Callback], part: tuple[int, int]
) -> Path:
    """Make every so-many-th trial, as a job of an array does; the one that finds all of them done compares all."""
    group = Trials.of(folder, recipe, name)
    run.check_free(folder)
    with run.locked(folder):
        if group.is_done_for_good():
            return folder
        group = group.begin(anew=False)
        group.write_recipes()
    mine = group.runs[part[0] :: part[1]]  # side by side with the other parts: each run has a lock of its own
    with logged(folder / "log.txt"):
        _refuse_failed(group, group.make(lambda trial, left: _note(trial, group, left), mine), mine)
    left = sum(not trial.done for trial in group.runs)
    if not left:
        return perform(folder, recipe, name, callbacks)
    say(f"{len(mine)} of {len(group.runs)} trials are done here; {left} are left to other parts")
    return folder


def _refuse_failed(group: Trials, failed: Mapping[str, str], trials: Sequence[Trial]) -> None:
    if failed:
        problem = f"{len(failed)} of {len(trials)} trials failed: {', '.join(failed)}"
        raise RunError(group.folder, problem, "", "the same command makes those again")


def _note(trial: Trial, group: Trials, left: str) -> None:
    """Tell of a trial that is done; the checkpoints of those that are not the best so far are not needed any more."""
    score, done = group.score, [trial for trial in group.runs if trial.done]
    best = best_of(done, score)
    for finished in done:
        if finished is not best:
            shutil.rmtree(finished.folder / "checkpoints", ignore_errors=True)
    progress = f"{len(done)} of {len(group.runs)} done" + (f", {left} left" if len(done) < len(group.runs) else "")
    say(f"{trial.name}: {_scored(trial, score)}; {progress}; best: {_scored(best, score)}, {best.name}")


def _scored(trial: Trial, score: str) -> str:
    return f"{score} {trial.scores[score]:.2f}" if score in trial.scores else "not scored"


def _write(folder: Path, result: dict[str, Any]) -> None:
    files.write_json(folder / "trials.json", result)
    files.write_text(folder / "trials.md", "\n".join(table(folder.name, result)) + "\n")


def _fill_from_best(folder: Path, best: Trial) -> dict[str, Any]:
    """Make the folder of all that of the best trial, as far as others open it; returns what that found."""
    for name in LEFT:
        if (best.folder / name).is_dir():
            with files.making(folder / name) as new:
                shutil.copytree(best.folder / name, new, copy_function=_link, dirs_exist_ok=True)
    table = settings.read(best.folder / "recipe.toml") | {"out": str(folder)}
    files.write_text(folder / "recipe.toml", settings.write(settings.decode(Finetuning, table, str(best.folder))))
    files.write_json(folder / "scores.json", best.facts)
    return best.facts


def _link(source: str, target: str) -> None:
    """The same file under a second name, where the disk allows it; else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

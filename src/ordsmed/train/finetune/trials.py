"""Trials: several fine-tunings of one recipe, over checkpoints, settings and seeds, side by side in a table.

    recipe -> step x grid x seeds -> a recipe each -> some `ordsmed finetune` at a time -> table, picture, best

FOLDER/  trials.toml   the recipe with its seeds and grid; recipe.toml in the end is that of the best trial, for which
                       the folder then stands: weights/, predictions/, scores.json
         trials.md  trials.json  trials.svg  log.txt
         trials/rate-3e-05,seed-1.toml, rate-3e-05,seed-1/    a run like any other

Of a trial that is done, weights, predictions and metrics stay; its checkpoints go, but for those of the best so far.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, run, settings
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError
from ordsmed.base.folder import RECIPE, TRIALS, WEIGHTS, FolderKind, kind_of_folder
from ordsmed.base.ranks import place_of
from ordsmed.base.run import Run
from ordsmed.base.say import logged, remembered, say
from ordsmed.train import picture, session, several
from ordsmed.train.fastest import fastest_precision
from ordsmed.train.finetune.compared import best_of, compared, table
from ordsmed.train.finetune.grid import Trial, plan
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.request import Request, folder_of, read

SAID = 3  # trials that are named
READ = ("init", "step", "fresh", "fresh_head", "model", "tokenizer", "task")  # settings by which all is read
LEFT = ("weights", "predictions")  # of the best trial, for the folder of all


def asked(
    name: str, overrides: Sequence[str] = (), *, deadline: float | None = None, anew: bool = False,
    layout: str = "", site: str = "", devices: int = 0,
) -> tuple[Path, Finetuning] | None:  # fmt: skip
    """The folder and recipe of the trials that are meant; None where one run is. Options as in session.perform;
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


def perform(folder: Path, recipe: Finetuning, name: str, *, anew: bool = False) -> Path:
    """Make the trials that are not made yet, and the table of all; the folder then stands for the best of them."""
    run.check_free(folder)
    with run.locked(folder):
        trials = plan(recipe, folder, name)
        if not anew and _stands_for_good(folder, recipe, trials):
            say(f"{folder}: is done; it may only be read, and stays as it is")
            return folder
        with remembered() as before:
            recipe = _begin(folder, recipe, trials, anew=anew)
        trials = _alike(trials, recipe)
        with logged(folder / "log.txt", before.getvalue()):
            try:
                for trial in trials:
                    several.write(trial, "trial")
                failed = _make(folder, recipe, trials)
                found = compared(_score(recipe, trials), trials, failed)
                _tell(folder, found)
                if failed:
                    raise _failed(folder, failed, trials)
                facts = _stand_for(folder, next(t for t in trials if t.name == found["best"]))
            except OrdsmedError as error:
                with contextlib.suppress(OrdsmedError, OSError):  # of a disk that fails the first error is enough
                    Run(folder).set(state="failed", why=str(error))
                raise
            Run(folder).set(state="done", best=found["best"], **facts)
    return folder


def rehearse(folder: Path, recipe: Finetuning, name: str, *, anew: bool = False) -> list[str]:
    """What `perform` would do, in lines, and what it or any of its trials refuses; making is switched off."""
    trials = plan(recipe, folder, name)
    _check_folder(folder, recipe, anew=anew)
    left = trials if anew else [trial for trial in trials if not trial.done]
    for trial in [] if anew else trials:
        several.check(trial, "trial")
    return [*told(trials), *(_rehearsed(left, anew=anew).lines() if left else [])]


def _rehearsed(trials: Sequence[Trial], *, anew: bool) -> FinetuningPlan:
    """The plan of the first. Of trials that start from the same and read the same, one is planned whole for all."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(repr([getattr(trial.recipe, key) for key in READ]), []).append(trial)
    first = None
    for one, *others in groups.values():
        planned = session.dry_run(FinetuningPlan, Request(one.recipe, one.folder, (str(one.path),), anew=anew))
        for other in others:
            planned.check(other.recipe)
        first = first or planned
    assert first is not None
    return first


def told(trials: Sequence[Trial]) -> list[str]:
    """Which trials there are, in a line."""
    titles = [trial.name for trial in trials]
    more = f" ... and {len(titles) - SAID} others" if len(titles) > SAID else ""
    return [f"trials: {len(titles)}, each a run on a device of its own: {' '.join(titles[:SAID])}{more}"]


def perform_part(folder: Path, recipe: Finetuning, name: str, part: tuple[int, int]) -> Path:
    """Make every so-many-th trial, as a job of an array does; who finds all of them done tells of all."""
    run.check_free(folder)
    trials = plan(recipe, folder, name)
    with run.locked(folder):
        if _stands_for_good(folder, recipe, trials):
            return folder
        recipe = _begin(folder, recipe, trials, anew=False)
        trials = _alike(trials, recipe)
        for trial in trials:
            several.write(trial, "trial")
    mine = trials[part[0] :: part[1]]  # side by side with the other parts: each run has a lock of its own
    with logged(folder / "log.txt"):
        if failed := _make(folder, recipe, mine):
            raise _failed(folder, failed, mine)
    left = sum(not trial.done for trial in trials)
    if not left:
        return perform(folder, recipe, name)
    say(f"{len(mine)} of {len(trials)} trials are done here; {left} are left to other parts")
    return folder


def _failed(folder: Path, failed: Mapping[str, str], trials: Sequence[Trial]) -> RunError:
    what = f"{len(failed)} of {len(trials)} trials failed: {', '.join(failed)}"
    return RunError(folder, what, "", "the same command makes those again")


def _stands_for_good(folder: Path, recipe: Finetuning, trials: Sequence[Trial]) -> bool:
    """Are these very trials done, in a folder that may only be read?"""
    status = Run(folder).status
    own = status.get("state") == "done" and status.get("fingerprint") == _fingerprint(recipe)
    return own and not os.access(folder, os.W_OK) and all(trial.done for trial in trials)


def _fingerprint(recipe: Finetuning) -> str:
    """Of what all trials share."""
    return run.fingerprint(replace(recipe, seeds=(), grid={}, seed=0))


def _alike(trials: Sequence[Trial], recipe: Finetuning) -> list[Trial]:
    """Those that name no precision by that of all: what is compared is computed alike."""
    taken = recipe.layout.precision
    return [replace(one, recipe=replace(one.recipe, layout=one.recipe.layout.with_precision(taken))) for one in trials]


def _settled(folder: Path, recipe: Finetuning, trials: Sequence[Trial], *, stands: bool) -> Finetuning:
    """With the precision that trials before were made in, else one that is chosen once for all."""
    layout, left = recipe.layout, [one.recipe for one in trials if one.recipe.layout.precision == "auto"]
    if stands:
        layout = layout.with_precision(run.read_recipe(Finetuning, folder, TRIALS).layout.precision)
    if left and layout.precision == "auto":
        places = several.places_of(layout.device, recipe.jobs, len(trials))
        layout = layout.with_precision(fastest_precision(FinetuningPlan, left[0], len(places.environments)))
    return replace(recipe, layout=layout)


def _begin(folder: Path, recipe: Finetuning, trials: Sequence[Trial], *, anew: bool) -> Finetuning:
    """The folder of all; another recipe's is refused, but for its seeds, its grid and what was never trained.

    Returns the recipe with the precision of all.
    """
    place, mark = Run(folder), _fingerprint(recipe)
    if not _check_folder(folder, recipe, anew=anew) and place.status:
        run.clear(folder)
    recipe = _settled(folder, recipe, trials, stands=(folder / TRIALS).is_file())
    place.begin(recipe, fingerprint=mark, began=place.status.get("began", time.time()), why=None)
    files.write_text(folder / TRIALS, settings.write(recipe))
    (folder / "trials").mkdir(exist_ok=True)
    return recipe


def _check_folder(folder: Path, recipe: Finetuning, *, anew: bool) -> bool:
    """Do trials of this recipe stand here, to go on with? What is in the way is refused, or was never trained."""
    if run.only_checks():
        run.check_free(folder)
    status, mark = Run(folder).status, _fingerprint(recipe)
    if not status:
        return False
    run.finished(folder, recipe.verb)
    other = status.get("fingerprint") != mark
    if other and not anew and any(folder.rglob(WEIGHTS)):
        problem = "holds trials of another recipe or other data, or one run"
        raise RecipeError(folder, problem, "only `seeds` and `grid` may change", "name another `out=`, or add --anew")
    return not (other or anew)


def _make(folder: Path, recipe: Finetuning, trials: Sequence[Trial]) -> dict[str, str]:
    """Make what is missing, some trials at a time; returns those that failed, and why."""
    places = several.places_of(recipe.layout.device, recipe.jobs, sum(not trial.done for trial in trials))

    def note(trial: Trial, left: str) -> None:
        _note(trial, trials, _score(recipe, trials), left)

    return several.make(several.Gathering(folder, recipe.verb, "trial"), trials, places, note)


def _score(recipe: Finetuning, trials: Sequence[Trial]) -> str:
    """By which trials are compared: as one that is done says, which has seen the labels."""
    done = next((trial for trial in trials if trial.done), None)
    return (run.read_recipe(Finetuning, done.folder) if done else recipe).score


def _note(trial: Trial, trials: Sequence[Trial], score: str, left: str) -> None:
    """Tell of a trial that is done; the checkpoints of those that are not the best so far are not needed any more."""
    done = [other for other in trials if other.done]
    best = best_of(done, score)
    for other in done:
        if other is not best:
            shutil.rmtree(other.folder / "checkpoints", ignore_errors=True)
    course = f"{len(done)} of {len(trials)} done" + (f", {left} left" if len(done) < len(trials) else "")
    say(f"{trial.name}: {_said(score, trial.scores)}; {course}; best: {_said(score, best.scores)}, {best.name}")


def _said(score: str, scores: Mapping[str, float]) -> str:
    return f"{score} {scores[score]:.2f}" if score in scores else "not scored"


def _tell(folder: Path, found: dict[str, Any]) -> None:
    """The numbers, their table and their picture."""
    files.write_json(folder / "trials.json", found)
    files.write_text(folder / "trials.md", "\n".join(table(folder.name, found)) + "\n")
    picture.draw_trials(folder, folder.name, found)


def _stand_for(folder: Path, best: Trial) -> dict[str, Any]:
    """Make the folder of all that of the best trial, as far as others open it; returns what that found."""
    for name in LEFT:
        if (best.folder / name).is_dir():
            with files.making(folder / name) as beside:
                shutil.copytree(best.folder / name, beside, copy_function=_link, dirs_exist_ok=True)
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

"""The verb `speedrun`: texts to a sample, a tokenizer, a model for each seed and budget, their scores, an entry.

OUT/ corpus.toml tokenizer.toml data.toml   the sample and its ids, as recipes; each has a folder of the same name
     budget-1.toml budget-1/seed-1 ...      the recipe with its steps, and a run for each seed
     entry.json report.html                 the results for the board; budget-0.1.json for another budget
     scaling.json scaling-bits_per_byte.svg for several budgets: scores against operations, with a fitted line
     status.json                            the request, seconds used
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import files, run, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.corpus.pipeline import Corpus
from ordsmed.data.encode import Encoded, Encoding
from ordsmed.data.tokenizer_training import TokenizerTraining
from ordsmed.maker.recipes import write
from ordsmed.maker.session import Clock, NamedFolder, timed
from ordsmed.maker.speedrun import entry, scaling, scores
from ordsmed.maker.speedrun import plan as planning
from ordsmed.maker.speedrun.budget import Budgeted
from ordsmed.maker.speedrun.plan import SpeedrunPlan
from ordsmed.maker.speedrun.track import VERB, SpeedrunRequest, Track
from ordsmed.tell.report import report
from ordsmed.tell.stability.stability import StudyOptions, stability

STAGES = (("corpus", Corpus), ("tokenizer", TokenizerTraining), ("data", Encoding))
HEADS = {"model": "The network and its training, with the steps of the budget"}


@dataclass(frozen=True)
class Speedrun:
    """The result of `speedrun`."""

    folder: Path
    entries: list[dict[str, Any]]
    curve: list[str]
    """lines about several budgets"""

    @property
    def lines(self) -> list[str]:
        """The results as lines to print."""
        summary = [line for facts in self.entries for line in entry.lines(facts)]
        return [*summary, *self.curve, f"{self.folder / 'report.html'}: the page"]

    @property
    def entry(self) -> dict[str, Any]:
        """The table of entry.json; with several budgets, that of the largest."""
        return max(self.entries, key=lambda facts: float(facts["budget"]))

    @property
    def scores(self) -> dict[str, float]:
        """Means over the seeds of all scores."""
        return {name: float(over["mean"]) for name, over in self.entry["over"].items()}

    @property
    def mean(self) -> float:
        """The mean of the score that compares entries, `entry["score"]`."""
        return self.scores[self.entry["score"]]

    @property
    def deviation(self) -> float | None:
        """The deviation of that score over the seeds; None: there was one seed."""
        deviation: float | None = self.entry["over"][self.entry["score"]]["deviation"]
        return deviation

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(chr(10).join(self.lines))}</pre>"


@files.errors_in_one_line()
def speedrun(
    track: str | Path,
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *changes: str,
    kind: str = "",
    recipe: str | Path = "",
    budget: float | Sequence[float] = 1.0,
    seeds: int | Sequence[int] = (),
    blimp: str | Path = "",
    workers: int = 0,
    yes: bool = False,
    anew: bool = False,
) -> Speedrun:
    """Train the best model within a fixed budget: a sample of the texts, a run for each seed, scores, an entry.

    `track` is cpu, gpu, babylm-10m, babylm-100m, or the file of a track. `texts` are files, folders, patterns, or the
    folder of a corpus. `changes` are overrides of the track or its recipe. `kind` is a model of the track, `recipe`
    another recipe of pretraining. `budget` is a multiple of the track's budget; several give a curve. `seeds` default
    to those of the track. `blimp` are minimal pairs. `workers` is the number of runs at a time. `yes` allows too many
    passes over the text. The same call resumes where it was stopped; `anew` sets `out` aside as `out.old-1`.

        made = ordsmed.speedrun("cpu", "my-texts", "my-speedrun", "model.layers=6", budget=0.1, seeds=1)
        made.mean, made.scores, made.entry["no_entry"]
    """
    request = SpeedrunRequest(
        str(track),
        tuple(map(str, [texts] if isinstance(texts, str | Path) else texts)),
        str(out),
        kind=kind,
        recipe=str(recipe),
        changes=changes,
        budgets=tuple(map(float, budget)) if isinstance(budget, Sequence) else (float(budget),),
        seeds=(seeds,) if isinstance(seeds, int) else tuple(seeds),
        blimp=str(blimp),
        workers=workers,
        yes=yes,
    )
    return perform(request, anew=anew)


def perform(request: SpeedrunRequest, *, anew: bool = False) -> Speedrun:
    """Run all stages, or resume where they stopped."""
    folder = Path(request.out)
    run.output_folder(NamedFolder(request.out, VERB), folder.name)
    with run.locked(folder):
        run_folder = Run(folder)
        _check(run_folder, request, anew=anew)
        if anew and folder.is_dir():
            files.set_aside(folder)
        with timed(run_folder) as clock:
            if not run_folder.status.get("planned"):
                _begin(request, run_folder)
            run_folder.set(state="running", request=_plain(request))
            entries, curve = _perform(request, run_folder, clock)
            run_folder.set(state="done")
    return Speedrun(folder, entries, curve)


def rehearse(request: SpeedrunRequest, *, anew: bool = False) -> SpeedrunPlan:
    """Return the plan and raise the errors of `perform`; nothing is written."""
    _check(Run(Path(request.out)), request, anew=anew)
    return planning.plan(request)


def _plain(request: SpeedrunRequest) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(request).items()}


def _check(run_folder: Run, request: SpeedrunRequest, *, anew: bool) -> None:
    """Raise for a folder of something else, and for other texts or another recipe in an existing speedrun."""
    run_folder.check_place()
    status = run_folder.status
    if not status:
        return
    if status.get("verb") != VERB:
        raise RecipeError(
            run_folder.path, f"is a folder of `{status.get('verb')}`", "a new or empty folder", "name another OUT"
        )
    before, now = status.get("request", {}), _plain(request)
    changed = [key for key in now if key not in SpeedrunRequest.FREE and before.get(key) != now[key]]
    if changed and not anew:
        problem = f"was begun with {changed[0]} {before.get(changed[0])!r}; found {now[changed[0]]!r}"
        raise RecipeError(run_folder.path, problem, "", "name another OUT, or add --anew: it moves this folder aside")


def _begin(request: SpeedrunRequest, run_folder: Run) -> None:
    say(f"looking at {' '.join(request.texts)}")
    plan = planning.plan(request)
    with files.survive_disk(run_folder.path):
        run_folder.path.mkdir(parents=True, exist_ok=True)
    stood = {"stood_in": str(Path.cwd()), "folder": str(run_folder.path)}
    run_folder.set(verb=VERB, state="running", request=_plain(request), **stood)
    for line in ["plan:", *plan.lines()]:
        say(line)
    write(planning.recipes_of(request, plan.track, plan.texts, plan.survey), run_folder.path)
    run_folder.set(planned={"lines": plan.lines()})


def _perform(request: SpeedrunRequest, run_folder: Run, clock: Clock) -> tuple[list[dict[str, Any]], list[str]]:
    folder, rule = run_folder.path, request.rule
    for name, recipe in STAGES:
        clock.stage(name)
        run.obtain(recipe, str(folder / f"{name}.toml"))
    _tell_sample(Run(folder / "corpus").status, rule)
    data = Encoded(folder / "data")
    unique, words = data.train.token_count, Run(folder / "corpus").status["train"]["words"]
    runs = planning.runs_of(request, rule, request.learned, str(folder / "data"), data.tokenizer)
    for planned in runs.values():
        planning.check_precision(planned.recipe.layout)
        planning.check_passes(planned, unique, rule.passes, request, words)
    entries = []
    for budget, planned in runs.items():
        clock.stage(f"budget {budget:g}: {many(planned.steps, 'step')}")
        _train(request, rule, folder, budget, planned)
        clock.stage("scores")
        entries.append(_entry(request, rule, folder, budget, planned, clock, unique))
    report.write([str(folder / f"budget-{budget:g}") for budget in runs], out=str(folder / "report.html"))
    return entries, scaling.leave(folder, entries) if len(entries) > 1 else []


def _tell_sample(status: dict[str, Any], rule: Track) -> None:
    beyond = status.get("beyond", {})
    if beyond.get("documents"):
        most = f"the track takes {rule.words:,} words"
        say(
            f"sample: {many(beyond['documents'], 'document')} with {many(beyond['words'], 'word')} are left out: {most}"
        )


def _train(request: SpeedrunRequest, rule: Track, folder: Path, budget: float, planned: Budgeted) -> None:
    path = folder / f"budget-{budget:g}.toml"
    recipe = dataclasses.replace(planned.recipe, seed=0, out=None)
    table = {key: value for key, value in settings.without_defaults(recipe).items() if key not in ("seed", "out")}
    files.write_text(path, "\n".join([f"# {HEADS['model']}", *settings.lines(table), ""]))
    seeds = request.seeds or rule.seeds
    options = StudyOptions(seeds=seeds, workers=request.workers, yes=request.yes)
    try:
        stability(str(path), [f"out={path.with_suffix('')}"], options)
    except Stopped:
        say(f"{folder}: the same `ordsmed speedrun` goes on with all of it")
        raise


def _entry(
    request: SpeedrunRequest, rule: Track, folder: Path, budget: float, planned: Budgeted, clock: Clock, unique: int
) -> dict[str, Any]:
    few = folder / "held-out.txt"
    scores.held_out(folder / "corpus", few, rule.scored)
    texts, rows = {"all": folder / "corpus/validation", "few": few}, []
    home = folder / f"budget-{budget:g}"
    for seed in request.seeds or rule.seeds:
        target = home / f"seed-{seed}"
        rows.append(entry.of_run(seed, target, scores.scores(target, texts, request.blimp)))
        clock.keep()
    training = sum(row["minutes"] for row in rows) / len(rows)
    minutes = {"training": round(training, 2), "wall": round(clock.used / 60, 2), "cpu": round(clock.cpu / 60, 2)}
    passes = planned.passes(unique)
    result = entry.entry(request, rule, budget, planned, target, folder / "corpus", rows, minutes, passes)
    path = folder / (entry.FILE if budget == 1 else f"budget-{budget:g}.json")
    if path.exists() and entry.is_same(before := entry.read(path), result):
        return before
    files.write_json(path, result)
    return entry.read(path)

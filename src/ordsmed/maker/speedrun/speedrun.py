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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.identity import identity
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.data.encode import Encoded
from ordsmed.maker import runner
from ordsmed.maker.recipes import recipe_stages
from ordsmed.maker.runner import Clock, JobPlan, Stage, StagedJob
from ordsmed.maker.speedrun import entry, scaling, scores
from ordsmed.maker.speedrun import plan as planning
from ordsmed.maker.speedrun.budget import Budgeted
from ordsmed.maker.speedrun.track import SpeedrunRequest, Track
from ordsmed.tell.report import report
from ordsmed.tell.stability.stability import StudyOptions, stability

HEAD = "The network and its training, with the steps of the budget"


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
    job = SpeedrunJob(request)
    runner.perform(job, anew=anew)
    return Speedrun(job.folder, job.entries(), job.curve)


class SpeedrunJob(StagedJob):
    """The stages of a speedrun: the sample and its token ids, then a study and its scores for each budget."""

    request: SpeedrunRequest
    changeable = ("budgets", "seeds", "blimp", "workers", "yes")

    def __init__(self, request: SpeedrunRequest) -> None:
        super().__init__(request)
        self.rule, self.seeds = request.rule, request.seeds or request.rule.seeds
        self.curve: list[str] = []

    def plan(self, status: Mapping[str, Any], used: float) -> JobPlan | None:
        return None if status.get("planned") else planning.plan(self.request)

    def stages(self, clock: Clock) -> Iterator[Stage]:
        folder = self.folder
        yield from recipe_stages(folder)
        corpus, data = Run(folder / "corpus").status, Encoded(folder / "data")
        _report_left_out(corpus, self.rule)
        runs = planning.runs_of(self.request, self.rule, self.request.learned, str(folder / "data"), data.tokenizer)
        for planned in runs.values():
            planning.check_precision(planned.recipe.layout)
            words = corpus["train"]["words"]
            planning.check_passes(planned, data.train.token_count, self.rule.passes, self.request, words)
        for budget, planned in runs.items():
            title, study = f"budget {budget:g}", folder / f"budget-{budget:g}"
            yield Stage(f"{title}: {many(planned.steps, 'step')}", partial(self._train, budget, planned), [study])
            passes = planned.passes(data.train.token_count)
            weights = [study / f"seed-{seed}" / entry.WEIGHTS for seed in self.seeds]
            pairs = sorted(Path(self.request.blimp).glob("*.jsonl*")) if self.request.blimp else []
            inputs = [*weights, *pairs, *self.seeds, self.request.blimp, identity().digest]
            score = partial(self._score, budget, planned, clock, passes)
            yield Stage(f"{title}: scores", score, [self._entry_path(budget)], inputs)
        yield Stage("report", self._report, [folder / "report.html"])

    def _entry_path(self, budget: float) -> Path:
        return self.folder / (entry.FILE if budget == 1 else f"budget-{budget:g}.json")

    def entries(self) -> list[dict[str, Any]]:
        return [entry.read(self._entry_path(budget)) for budget in self.request.budgets]

    def _train(self, budget: float, planned: Budgeted) -> None:
        path = self.folder / f"budget-{budget:g}.toml"
        recipe = dataclasses.replace(planned.recipe, seed=0, out=None)
        table = {key: value for key, value in settings.without_defaults(recipe).items() if key not in ("seed", "out")}
        files.write_text(path, "\n".join([f"# {HEAD}", *settings.lines(table), ""]))
        options = StudyOptions(seeds=self.seeds, workers=self.request.workers, yes=self.request.yes)
        stability(str(path), [f"out={path.with_suffix('')}"], options)

    def _score(self, budget: float, planned: Budgeted, clock: Clock, passes: float) -> None:
        corpus, few, rows = self.folder / "corpus", self.folder / "held-out.txt", []
        scores.held_out(corpus, few, self.rule.scored)
        for seed in self.seeds:
            target = self.folder / f"budget-{budget:g}" / f"seed-{seed}"
            scored = scores.scores(target, {"all": corpus / "validation", "few": few}, self.request.blimp)
            rows.append(entry.of_run(seed, target, scored))
            clock.keep()
        training = sum(row["minutes"] for row in rows) / len(rows)
        minutes = {"training": round(training, 2), "wall": round(clock.used / 60, 2), "cpu": round(clock.cpu / 60, 2)}
        result = entry.entry(self.request, self.rule, budget, planned, target, corpus, rows, minutes, passes)
        path = self._entry_path(budget)
        if not (path.exists() and entry.is_same(entry.read(path), result)):
            files.write_json(path, result)

    def _report(self) -> None:
        folders = [str(self.folder / f"budget-{budget:g}") for budget in self.request.budgets]
        report.write(folders, out=str(self.folder / "report.html"))
        self.curve = scaling.leave(self.folder, self.entries()) if len(folders) > 1 else []


def _report_left_out(status: dict[str, Any], rule: Track) -> None:
    beyond = status.get("beyond", {})
    if beyond.get("documents"):
        most = f"the track takes {rule.words:,} words"
        say(
            f"sample: {many(beyond['documents'], 'document')} with {many(beyond['words'], 'word')} are left out: {most}"
        )

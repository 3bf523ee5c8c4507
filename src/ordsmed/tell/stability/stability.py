"""Studies over seeds: train, report and plot the runs of several seeds, and compare two recipes on common seeds.

recipe -> seeds -> several `ordsmed pretrain|finetune` at a time -> results -> stability.json, .md, .svg, .html
two of them -> differences seed by seed -> comparison.json, .md, .svg, .html
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.folder import STATUS, FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.base.say import many, say
from ordsmed.learn.score.bands import bands
from ordsmed.learn.score.seeds import LEVEL, paired
from ordsmed.tell.report import report
from ordsmed.tell.show.picture import BandGroup, draw_bands
from ordsmed.tell.stability import pages, plan, results
from ordsmed.tell.stability.plan import Study
from ordsmed.train import session
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.request import Request
from ordsmed.train.run_group import PlannedRun

VERB = FolderKind.STABILITY.value


@dataclass(frozen=True)
class StudyOptions:
    """Options of a study, besides its recipe."""

    seeds: tuple[int, ...] | None = None
    workers: int = 0
    """concurrent runs; 0: one per GPU, on a CPU one per two cores"""
    devices: int = 0
    """processes per run; 0: one"""
    metric: str = ""
    anew: bool = False
    yes: bool = False
    """start although there are too many passes over the text"""


def stability(name: str, overrides: Sequence[str] = (), how: StudyOptions | None = None) -> dict[str, Any]:
    """Train the missing runs of a recipe, or of an existing study's folder, and return the content of stability.json.

    Raise an error at the end if a run failed.
    """
    how = how or StudyOptions()
    with run.in_start_folder(name) as location:
        study = plan.requested(location, overrides, how.seeds, workers=how.workers, devices=how.devices)
        result = _perform(study, how, location)
    _raise_for_failed_seeds(result, results.ended(result))
    return result


def compare(first: str, second: str, overrides: Sequence[str] = (), how: StudyOptions | None = None) -> dict[str, Any]:
    """Train two recipes with the same seeds, compare them, and return the content of comparison.json."""
    how = how or StudyOptions()
    words, out = plan.without_out(overrides)
    names, studies = (first, second), list[Study]()
    for name in names:
        with run.in_start_folder(name) as location:
            home = Path(out) if out else None
            studies.append(plan.requested(location, words, how.seeds, home, workers=how.workers, devices=how.devices))
    first_study, other = studies
    if first_study.recipe.verb != other.recipe.verb:
        problem = f"{first} is of {first_study.recipe.verb}, {second} of {other.recipe.verb}"
        raise RecipeError("stability", problem, "two of the same kind")
    if first_study.folder.resolve() == other.folder.resolve():
        raise RecipeError(second, f"has the folder of {first}, {first_study.folder}", "separate folders", "rename it")
    title = f"{first_study.name}-and-{other.name}"
    if first_study.name == other.name:
        studies = [replace(study, name=str(study.folder)) for study in studies]
    outcomes = list[dict[str, Any]]()
    for name, study, other in zip(names, studies, reversed(studies), strict=True):
        with run.in_start_folder(name):
            known = other.exists and (outcomes or not how.anew)
            adapted = plan.as_the_other(study, other) if known and (how.anew or not study.exists) else study
            outcomes.append(_perform(adapted, how, name))
    result = _compared(Path(out) if out else plan.HOME / title, studies, outcomes)
    for outcome in outcomes:
        _raise_for_failed_seeds(outcome, f"{result['verdict']}; {result['folder']}/comparison.md lists each seed")
    return result


def _raise_for_failed_seeds(result: Mapping[str, Any], outcome: str) -> None:
    """Raise an error if seeds failed, after printing the outcome; all results are stored by then."""
    failed = [str(row["seed"]) for row in result["runs"] if row["state"] != "done"]
    if failed:
        say(outcome)
        problem = f"{len(failed)} of {many(len(result['runs']), 'seed')} failed: {', '.join(failed)}"
        remedy = f"{result['folder']}/stability.md says why, and has the others; the same command retries them"
        raise RunError(result["folder"], problem, "", remedy)


def _perform(study: Study, options: StudyOptions, name: str) -> dict[str, Any]:
    study = replace(study, runs=tuple(replace(member, yes=options.yes) for member in study.runs))
    _check_runs(study, options, name)
    with study.work(anew=options.anew) as group:
        if group is None:
            return results.results(study, {}, options.metric)
        result = _make(group)
        complete = all(row["state"] == "done" for row in result["runs"])
        state, reason = ("done", None) if complete else ("failed", "some seeds failed")
        Run(study.folder).set(state=state, why=reason)
        if options.metric:  # applied at the end, so that a wrong name does not fail the runs
            failed = {f"seed-{row['seed']}": row["why"] for row in result["runs"] if row["state"] != "done"}
            result = _write_results(group, results.results(group, failed, options.metric), drawn=True)
    return result


def _check_runs(study: Study, options: StudyOptions, name: str) -> None:
    """Raise the errors of a run before any is started; runs differ only in their seeds."""
    member = next((member for member in study.runs if options.anew or not member.done), None)
    if member and kind_of_folder(member.folder) is FolderKind.ABSENT:
        with run.without_making():
            session.check_effort(
                study.plan, Request(member.recipe, member.folder, (name,), devices=study.devices, yes=options.yes)
            )


def _make(study: Study) -> dict[str, Any]:
    failed, finished = dict[str, str](), dict[int, dict[str, Any]]()

    def note(member: PlannedRun, left: str) -> None:
        if isinstance(member.recipe, Finetuning):  # its best weights are stored outside the checkpoints
            shutil.rmtree(member.folder / "checkpoints", ignore_errors=True)
        result = _write_results(study, results.results(study, failed, known=finished))
        done = sum(row["state"] == "done" for row in result["runs"])
        row = next(row for row in result["runs"] if row["folder"] == str(member.folder))
        value = row["scores"].get(result["metric"])
        scored = f"{result['metric']} {value:.4f}" if value is not None else row["why"]
        remaining = f", {left} left" if done < len(study.runs) else ""
        say(f"{member.name}: {scored}; {done} of {len(study.runs)} done{remaining}")

    failed |= study.make(note)
    return _write_results(study, results.results(study, failed, known=finished), drawn=True)


def _unpaired(result: Mapping[str, Any], values: Sequence[Mapping[int, float]]) -> list[dict[str, Any]]:
    return [
        {"seed": row["seed"], "why": row["why"] or "the other recipe has no score with it"}
        for row in result["runs"]
        if not all(row["seed"] in scores for scores in values)
    ]


def _write_results(study: Study, result: dict[str, Any], *, drawn: bool = False) -> dict[str, Any]:
    files.write_json(study.folder / "stability.json", result)
    files.write_text(study.folder / "stability.md", "\n".join(pages.page(result)) + "\n")
    if drawn:
        title = f"{study.name}: {many(len(result['runs']), 'seed')}"
        draw_bands(study.folder / "stability.svg", title, [_band_group(study, result)], results.ended(result))
        _write_page(study.folder / "stability.html", study.name, [result])
    return result


def _write_page(path: Path, title: str, results_of: Sequence[Mapping[str, Any]], more: Sequence[str] = ()) -> None:
    started = [
        row["folder"] for result in results_of for row in result["runs"] if (Path(row["folder"]) / STATUS).exists()
    ]
    if started or more:
        report.write([*more, *started], out=str(path), title=title)


def _band_group(study: Study, result: Mapping[str, Any]) -> BandGroup:
    curves = {row["seed"]: results.courses(Path(row["folder"])) for row in result["runs"]}
    finished = [curves[seed] for seed in result["in_mean"]]
    broken = [losses for seed, (losses, _) in curves.items() if seed not in result["in_mean"]]
    validation = bands([validations for _, validations in finished])
    return BandGroup(study.name, bands([losses for losses, _ in finished]), validation, broken)


def _compared(folder: Path, studies: Sequence[Study], outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    metric, values = outcomes[0]["metric"], []
    for study, result in zip(studies, outcomes, strict=True):
        if result["over"] and metric not in result["over"]:
            raise RecipeError(
                study.folder, f"has no {metric}", "a score of both recipes", "--metric NAME selects another"
            )
        scores = {row["seed"]: row["scores"].get(metric) for row in result["runs"] if row["state"] == "done"}
        values.append({seed: value for seed, value in scores.items() if value is not None})
    first_scores, second_scores = values
    pairs = paired(first_scores, second_scores) if first_scores.keys() & second_scores.keys() else None
    result = {
        "metric": metric,
        "lower_is_better": outcomes[0]["lower_is_better"],
        "level": LEVEL,
        "recipes": [
            {"name": study.name, "folder": str(study.folder), "left_out": _unpaired(outcome, values)}
            for study, outcome in zip(studies, outcomes, strict=True)
        ],
        "pairs": [
            {"seed": seed, "first": first_scores[seed], "second": second_scores[seed], "difference": difference}
            for seed, difference in pairs.differences.items()
        ]
        if pairs
        else [],
        "over": asdict(pairs.over) if pairs else None,
        "shown": bool(pairs and pairs.differs),
        "seeds_wanting": pairs.wanting if pairs else 0,
        "settings": (settings := plan.differences(*(study.recipe for study in studies))),
        "unlike": plan.unlike(settings),
    }
    result["verdict"] = pages.verdict(result)
    with files.survive_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "comparison.json", result)
    files.write_text(folder / "comparison.md", "\n".join(pages.comparison_page(result)) + "\n")
    groups = [_band_group(study, outcome) for study, outcome in zip(studies, outcomes, strict=True)]
    title = f"{studies[1].name} against {studies[0].name}"
    draw_bands(folder / "comparison.svg", title, groups, result["verdict"])
    _write_page(folder / "comparison.html", title, outcomes, [str(folder)])
    return {**result, "folder": str(folder)}

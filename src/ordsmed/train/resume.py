"""Resuming: whether a folder's run is resumed, by which recipe, and from which checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError, Trouble
from ordsmed.base.folder import EXAMPLES, RECIPE, kind_of_folder
from ordsmed.base.ranks import Ranks, init_mesh, on_rank0
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.learn.phases import locate, total
from ordsmed.train import checkpoint
from ordsmed.train.deadline import plan_at
from ordsmed.train.guard import REMEDY, LossHistory
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.plan import Plan
from ordsmed.train.request import Request, fit_layout
from ordsmed.train.saving import exactness_facts

P = TypeVar("P", bound=Plan)


def is_resumed(plan: Plan, request: Request) -> bool:
    """Return whether to resume the run in the folder; raise if it is a run of another recipe."""
    folder = request.folder
    status = Run(folder).status
    if not status:
        return False
    run.finished(folder, plan.recipe.verb)
    by_folder = kind_of_folder(request.words[0]).made
    if not by_folder and not (folder / RECIPE).exists():
        return False  # killed between the first two files of a run
    if request.anew and not int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
        if not run.only_checks():
            files.set_aside(folder, stay=EXAMPLES)  # written by this call
        return False
    if by_folder:
        return True
    with contextlib.suppress(run.NotMade):  # the fingerprint of missing data is unknown
        if status["fingerprint"] == run.fingerprint(plan.recipe):
            return True
        if checkpoint.steps(folder / "checkpoints"):
            raise misfit(request)
    _remove(folder)  # it has no checkpoint, and the recipe was changed
    return False


def misfit(request: Request) -> RecipeError:
    remedy = f"`{command('show', request.folder, *request.words)}` shows the difference"
    problem = "holds a run of another recipe or of other data"
    return RecipeError(request.folder, problem, "", f"{remedy}; name another `out=`, or add --anew")


def _remove(folder: Path) -> None:
    """Delete the folder of a run without a checkpoint, but keep its examples for the next run."""
    if run.only_checks():
        return
    folder = files.with_name(folder)
    aside = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    if (aside / EXAMPLES).is_dir():
        folder.mkdir()
        (aside / EXAMPLES).rename(folder / EXAMPLES)
    shutil.rmtree(aside)


def recorded_plan(plan: P, request: Request) -> P:
    """Return the plan with the recipe that the run has recorded, and the present layout."""
    folder, recipe = request.folder, plan.recipe
    if request.deadline:
        say(f"{folder}: --deadline is ignored: a resumed run keeps its first deadline")
    kept = run.read_recipe(plan.recipes, folder)
    trouble = recipe.trouble if request.is_run else kept.trouble
    layout = recipe.layout
    if request.auto:
        layout = fit_layout(kept, folder, plan.ranks.world, set())[0].layout
        ranks, shape = plan.ranks, layout.shape(plan.ranks.world)
        plan = plan if shape == ranks.shape else plan.on(init_mesh(ranks, shape))
    layout = layout.with_precision(kept.layout.precision)
    return plan.by(dataclasses.replace(kept, layout=layout, trouble=trouble, callbacks=recipe.callbacks))


def restart_deadline(folder: Path, request: Request) -> None:
    """Restart the deadline if nothing of the run was saved yet."""
    if not checkpoint.steps(folder / "checkpoints"):
        Run(folder).set(began=request.began)


def last_checkpoint(folder: Path, ranks: Ranks) -> tuple[Path, dict[str, Any]] | None:
    def look() -> list[Any] | None:
        last = checkpoint.latest(folder / "checkpoints", place=folder)
        return [str(last[0]), last[1]] if last else None

    answer = on_rank0(ranks, look)
    return (Path(answer[0]), answer[1]) if answer else None


def prepare_job(
    plan: P, folder: Path, status: Mapping[str, Any], last: tuple[Path, dict[str, Any]] | None
) -> tuple[P, Job, bool]:
    """Build the job and restore checkpoint `last`, if any, into it; also return whether training is finished."""
    recipe, ranks = plan.recipe, plan.ranks
    stamp = on_rank0(ranks, recipe.stamp)
    if last and status.get("data") not in (None, stamp):
        differing = [entry[0] if isinstance(entry, list) else entry for entry in stamp if entry not in status["data"]]
        found_now = f"other data: {', '.join(map(str, differing))}" if differing else "fewer documents or files"
        raise RecipeError(folder, found_now, "the data this run was started with", "restore them, or start a new run")
    start = int(last[1]["step"]) if last else 0
    plan = plan.by(plan_at(recipe, status.get("plans", []), start))
    if not last:  # verify the data of a new run; for a resumed run this was done at its first start
        on_rank0(ranks, plan.verify)
    job = plan.build(resume_state=last[1] if last else None)
    job.state.left_out, job.state.ends = list(status.get("left_out", [])), list(status.get("ends", []))
    job.state.validations = on_rank0(ranks, lambda: _validations(folder, start))
    over = start >= total(job.phases) or bool(start and job.is_enough)
    job.begin_phase(locate(job.phases, max(start - 1, 0))[0])
    if last:
        restore(job, *last, over=over)
        if not job.finite:
            steps = [step for step in checkpoint.steps(folder / "checkpoints") if step < start]
            before = f"delete it to resume from step {steps[-1]}; or " if steps else ""
            raise Trouble(last[0], "has weights with NaN or Inf", "finite ones", f"{before}{REMEDY}")
    return plan, job, over


def _validations(folder: Path, step: int) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [line for line in read(path) if "validation" in line and line["step"] <= step] if path.exists() else []


def restore(job: Job, path: Path, state: dict[str, Any], *, over: bool = False) -> int:
    """Restore a checkpoint into the job, and return its step. `over`: no step will follow."""
    now = exactness_facts(job)
    now["micro"] = now["micro"][: len(state.get("micro", now["micro"]))]  # an extended run has more phases
    differing = [f"{k} {state[k]}, now {v}" for k, v in now.items() if state.get(k, v) != v]
    if differing and not over:
        say(f"{path}: saved with {'; '.join(differing)}: losses will agree except for rounding")
    index, inner = locate(job.phases, int(state["step"]))
    if inner:
        job.carry(index)
    else:  # the carried states are reset at the start of a phase
        job.objective.state = {}
    checkpoint.restore(path, job.objective, job.optimizer, job.parts, job.ranks, job.parallel.rows)
    job.scaler.restore(state.get("scaler", {}))
    job.state.losses = LossHistory(job.recipe.trouble, state.get("course", []))
    job.state.words = state.get("words")
    return int(state["step"])

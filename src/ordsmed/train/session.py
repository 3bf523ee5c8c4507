"""The session of a training: start a new run, or resume one from its last complete checkpoint.

recipe -> make its inputs -> connect processes -> lock the folder -> Job -> loop -> results of the finished run
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

from ordsmed.base import run
from ordsmed.base.ending import Stopped, note_nothing_done
from ordsmed.base.errors import OrdsmedError, RunError, lost_processes
from ordsmed.base.launch.site import absolute
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.ranks import Ranks, connect, disconnect, init_mesh, on_rank0, prepare, rendezvous
from ordsmed.base.run import Run
from ordsmed.base.say import buffered_log, duration, log_to, say
from ordsmed.train import callbacks as hooks
from ordsmed.train import checkpoint
from ordsmed.train.auto import choose_layout
from ordsmed.train.fitting import TooShort, fit
from ordsmed.train.plan import Plan
from ordsmed.train.plan import planned as planned_for
from ordsmed.train.precision_trial import expected_precision, with_fastest_precision
from ordsmed.train.request import Request, SessionOptions, session_request
from ordsmed.train.resume import is_resumed, last_checkpoint, misfit, prepare_job, recorded_plan, restart_deadline
from ordsmed.train.runner import retry_smaller, run_to_end
from ordsmed.train.training import Training, named
from ordsmed.train.watch import Watch
from ordsmed.weights import weights

P = TypeVar("P", bound=Plan)


def run_session(kind: type[Plan], name: str, overrides: Sequence[str] = (), **options: Unpack[SessionOptions]) -> Path:
    """Start the run a recipe describes, or resume one that a folder holds; every process of a launch calls this."""
    options["site"] = absolute(options.get("site", ""))
    with run.in_start_folder(name) as location:
        return _run_processes(kind, session_request(kind.recipes, location, overrides, options))


def rehearse(
    kind: type[P], name: str, overrides: Sequence[str] = (), devices: int = 0, **options: Unpack[SessionOptions]
) -> P:
    """Do what `run_session` does before its first step, without making anything; return the plan.

    It raises the same errors. With several processes (`devices`), or if data are not made yet, it stops before networks
    are built.
    """
    options["site"] = absolute(options.get("site", ""))
    with run.without_making(), run.in_start_folder(name) as location:
        return dry_run(kind, session_request(kind.recipes, location, overrides, options, devices))


def dry_run(kind: type[P], request: Request) -> P:
    """Rehearse a request. Call it within `run.without_making()`, so that missing inputs are not made."""
    folder, plan = request.folder, check(kind, request)
    whole = plan.data is not None and plan.ranks.world == 1
    if whole:
        plan = plan.on(init_mesh(_process(request), plan.ranks.shape))
    resumes = is_resumed(plan, request)
    if not resumes:
        plan = _with_estimate(plan, request, here=whole)
    if not whole:
        return plan
    if resumes:
        plan = recorded_plan(plan, request)
    else:
        if request.auto or request.deadline:  # measure only if the command requires it
            plan = _with_fastest_layout(plan, request)
        plan = plan.by(_fit_to_deadline(plan, request)[0])
    precision = plan.recipe.layout.with_precision(expected_precision(plan))

    def ready(plan: P) -> None:
        last, status = (None, {}) if request.anew else (last_checkpoint(folder, plan.ranks), Run(folder).status)
        prepare_job(plan, folder, status, last)

    retry_smaller(plan.by(dataclasses.replace(plan.recipe, layout=precision)), folder, ready)
    return plan


def check(kind: type[P], request: Request) -> P:
    """Raise the errors that a run raises before its processes connect; return its plan. Making must be switched off."""
    layout = request.recipe.layout
    with named(request.words[0], kind.recipes):
        if layout.threads:
            threads_of(layout.threads)  # raises the same error as the run
        plan = _completed_plan(kind, request, planned_for(layout, request.devices), here=not request.devices)
    return dataclasses.replace(plan, changed=request.changed)


def check_effort(kind: type[Plan], request: Request) -> None:
    """Raise the errors that starting a new run would raise, including an absurd time or number of passes over the text.

    Call it within `run.without_making()`, so that missing inputs are not made.
    """
    _with_estimate(check(kind, request), request, here=False)


def _run_processes(kind: type[Plan], request: Request) -> Path:
    request.tell()
    with named(request.words[0], kind.recipes):
        process = _process(request)
        patience = request.recipe.layout.patience
        ranks = _rendezvous(process, patience, request.folder)
        with contextlib.ExitStack() as at_the_end, Watch(ranks, patience) as watch:
            at_the_end.push(lambda error, *_: disconnect(ranks, well=error in (None, Stopped)))
            try:
                weights.check_format()
                with buffered_log() as before, lost_processes():  # errors in the data belong in the run's log
                    plan = run.rank0_first(ranks, lambda: _completed_plan(kind, request, process))
                plan = plan.on(init_mesh(connect(ranks, patience), process.shape))
                _train_in_folder(plan, request, watch, before.getvalue())
            except OrdsmedError as error:
                watch.report_end(error)
                raise
            except RuntimeError as error:
                if ranks.world == 1:
                    raise
                if (explained := watch.explain(error)) is None:
                    raise
                raise explained from error
            except Stopped:
                raise
            except Exception as error:  # for example from a user's module
                watch.report_end(RunError(f"rank {ranks.rank}", repr(error)[:200]))
                raise
    return request.folder


def _rendezvous(process: Ranks, patience: float, folder: Path) -> Ranks:
    try:
        return rendezvous(process, patience)
    except KeyboardInterrupt:
        if not checkpoint.steps(folder / "checkpoints"):
            note_nothing_done()
        raise


def _process(request: Request) -> Ranks:
    layout, kept = request.recipe.layout, None if request.anew else checkpoint.threads_kept(request.folder)
    process = prepare(layout.device, layout.threads or None, kept=kept)
    return dataclasses.replace(process, shape=layout.shape(process.world))


def _completed_plan(kind: type[P], request: Request, ranks: Ranks, *, here: bool = True) -> P:
    """Return the plan with all its data. They are made before processes connect, because a corpus may take hours.

    Errors that do not depend on the data are raised first.
    """
    callbacks = (*request.callbacks, *hooks.load(request.recipe.callbacks))
    plan = dataclasses.replace(kind.of(request.recipe, ranks, request.folder), callbacks=callbacks)
    run.check_free(request.folder)
    run.finished(request.folder, request.recipe.verb)
    in_the_way = not (request.anew or request.is_run) and bool(checkpoint.steps(request.folder / "checkpoints"))
    key = Run(request.folder).status.get("recipe_key")
    if in_the_way and key not in (None, run.recipe_key(request.recipe)) and plan.missing():
        raise misfit(request)
    return plan.completed(make=True, here=here)


def _train_in_folder(plan: Plan, request: Request, watch: Watch, before: str) -> None:
    """Train with the folder locked; `before` is the text printed before the log was open."""
    folder, ranks = request.folder, plan.ranks
    with contextlib.ExitStack() as stack:
        opened = on_rank0(ranks, lambda: bool(stack.enter_context(run.locked(folder))) and _writable(folder))
        if request.anew and not request.yes:
            _with_estimate(plan, request)  # raise before the old run is set aside
        resumes = on_rank0(ranks, lambda: is_resumed(plan, request))
        if resumes and not opened and Run(folder).status.get("state") == "done":
            say(f"{folder}: is done and read-only, so nothing is changed")
            return
        if resumes:
            plan = recorded_plan(plan, request)
            on_rank0(ranks, lambda: restart_deadline(folder, request))
        else:
            with buffered_log() as measured:
                plan = _with_fastest_layout(_with_estimate(plan, request), request)
            before += measured.getvalue()
            plan = plan.by(_record_new_run(plan, request))
        if ranks.first:
            stack.enter_context(log_to(folder / "log.txt", before))
        with Run(folder).failure_noted() if ranks.first else contextlib.nullcontext():
            facts = run_to_end(plan, folder, watch)
        on_rank0(ranks, lambda: Run(folder).set(state="done", why=None, **facts))


def _with_fastest_layout(plan: P, request: Request) -> P:
    plan = with_fastest_precision(plan)
    return choose_layout(plan) if request.auto else plan


def _with_estimate(plan: P, request: Request, *, here: bool = True) -> P:
    """Return the plan with its expected time; raise if it is absurd, unless a deadline limits it."""
    with named(request.words[0], plan.recipes):
        return plan if request.deadline else plan.with_estimate(here=here, yes=request.yes)


def _writable(folder: Path) -> bool:
    return not folder.exists() or os.access(folder, os.W_OK)


def _record_new_run(plan: Plan, request: Request) -> Training:
    resolved, fit = _fit_to_deadline(plan, request)

    def begin() -> None:
        marks = {"fingerprint": run.fingerprint(plan.recipe), "recipe_key": run.recipe_key(request.recipe)}
        steps = [phase.steps for phase in plan.recipe.phases]
        times = {"began": request.began, "deadline": request.deadline}
        Run(request.folder).begin(resolved, **marks, **times, **fit, steps_asked=steps)

    on_rank0(plan.ranks, begin)
    return resolved


def _fit_to_deadline(plan: Plan, request: Request) -> tuple[Training, dict[str, Any]]:
    """Return the recipe with its network and steps that fit the deadline, and facts for the status."""
    resolved: Training = dataclasses.replace(plan.recipe, model=plan.network)
    if not request.deadline:
        return resolved, {}
    end = request.began + request.deadline
    try:
        resolved, facts = retry_smaller(plan.by(resolved), request.folder, lambda plan: fit(plan, end - time.time()))
    except TooShort as error:
        whole = duration(math.ceil(time.time() - request.began + error.seconds))
        error.args = (f"{error}; `--deadline` of {whole} or more is enough",)
        raise
    return resolved, {"fit": facts}

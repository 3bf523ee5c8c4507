"""The session of a training: start a new run, or resume one from its last complete checkpoint.

recipe -> make its inputs -> connect processes -> lock the folder -> Job -> loop -> results of the finished run
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import torch

from ordsmed.base import files, run, settings, snapshots
from ordsmed.base.ending import Stopped, devices_flag, note_nothing_done
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError, Trouble, lost_processes
from ordsmed.base.folder import EXAMPLES, RECIPE, kind_of_folder
from ordsmed.base.launch.site import absolute
from ordsmed.base.machine.speed import measured_peak, slowdown_in
from ordsmed.base.machine.threads import threads_of
from ordsmed.base.ranks import Ranks, connect, disconnect, init_mesh, on_rank0, prepare, rendezvous
from ordsmed.base.run import Run
from ordsmed.base.say import buffered_log, detail, duration, log_to, many, on_closed_output, operations, say
from ordsmed.base.screen import command, command_lines
from ordsmed.learn.phases import locate, total
from ordsmed.train import callbacks as hooks
from ordsmed.train import checkpoint, loop
from ordsmed.train.auto import choose_layout, free_memory
from ordsmed.train.callbacks import Callback, Replanned
from ordsmed.train.deadline import Deadline, Table, in_force, planned, table
from ordsmed.train.fitting import TooShort
from ordsmed.train.guard import LEAST, REMEDY, LossHistory, left_out, remedy
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.pace import Timed
from ordsmed.train.plan import Plan
from ordsmed.train.plan import planned as planned_for
from ordsmed.train.precision_trial import expected, with_fastest_precision
from ordsmed.train.request import Request, fitted_to, requested
from ordsmed.train.saving import Saving, circumstances
from ordsmed.train.tensorboard import TensorBoard
from ordsmed.train.training import Training, named
from ordsmed.train.trouble import Rewind
from ordsmed.train.watch import Watch
from ordsmed.weights import weights

T = TypeVar("T")
P = TypeVar("P", bound=Plan)


class SessionOptions(TypedDict, total=False):
    """Options of starting a training, in addition to its recipe."""

    deadline: float | None  # seconds
    anew: bool  # set the present run aside
    yes: bool  # train even if the passes over the text or the time are absurd
    layout: str  # a mesh, or auto
    site: str
    callbacks: Sequence[Callback]  # in addition to those in the recipe


def run_session(kind: type[Plan], name: str, overrides: Sequence[str] = (), **options: Unpack[SessionOptions]) -> Path:
    """Start the run a recipe describes, or resume one that a folder holds; every process of a launch calls this."""
    options["site"] = absolute(options.get("site", ""))
    with run.in_start_folder(name) as location:
        return _run_processes(kind, _request(kind, location, overrides, options))


def rehearse(
    kind: type[P], name: str, overrides: Sequence[str] = (), devices: int = 0, **options: Unpack[SessionOptions]
) -> P:
    """Do what `run_session` does before its first step, without making anything; return the plan.

    It raises the same errors. With several processes (`devices`), or if data are not made yet, it stops before networks
    are built.
    """
    options["site"] = absolute(options.get("site", ""))
    with run.without_making(), run.in_start_folder(name) as location:
        return dry_run(kind, _request(kind, location, overrides, options, devices))


def dry_run(kind: type[P], request: Request) -> P:
    """Rehearse a request. Making must be switched off by the caller."""
    folder, plan = request.folder, check(kind, request)
    whole = plan.data is not None and plan.ranks.world == 1
    if whole:
        plan = plan.on(init_mesh(_process(request), plan.ranks.shape))
    resumes = _resumes(plan, request)
    if not resumes:
        plan = _weighed(plan, request, here=whole)
    if not whole:
        return plan
    if resumes:
        plan = _as_begun(plan, request)
    else:
        if request.auto or request.deadline:  # measure only if the command requires it
            plan = _fastest(plan, request)
        plan = plan.by(_complete(plan, request)[0])
    precision = plan.recipe.layout.with_precision(
        expected(plan)
    )  # an open precision is measured only by the run itself

    def ready(plan: P) -> None:
        last, status = (None, {}) if request.anew else (_last_checkpoint(folder, plan.ranks), Run(folder).status)
        _ready(plan, folder, status, last)

    _with_room(plan.by(dataclasses.replace(plan.recipe, layout=precision)), folder, ready)
    return plan


def check(kind: type[P], request: Request) -> P:
    """Raise the errors that a run raises before its processes connect; return its plan. Making must be switched off."""
    layout = request.recipe.layout
    with named(request.words[0], kind.recipes):
        if layout.threads:
            threads_of(layout.threads)  # raises the same error as the run
        plan = _plan(kind, request, planned_for(layout, request.devices), here=not request.devices)
    return dataclasses.replace(plan, changed=request.changed)


def check_effort(kind: type[Plan], request: Request) -> None:
    """Raise the errors that starting a new run would raise, including an absurd time or number of passes over the text.

    Call it within `run.without_making()`, so that missing inputs are not made.
    """
    _weighed(check(kind, request), request, here=False)


def _run_processes(kind: type[Plan], request: Request) -> Path:
    request.tell()
    with named(request.words[0], kind.recipes):
        process = _process(request)
        patience = request.recipe.layout.patience
        ranks = _meet(process, patience, request.folder)
        with contextlib.ExitStack() as at_the_end, Watch(ranks, patience) as watch:
            at_the_end.push(lambda error, *_: disconnect(ranks, well=error in (None, Stopped)))
            try:
                weights.check_format()
                with buffered_log() as before, lost_processes():  # errors in the data belong in the run's log
                    plan = run.rank0_first(ranks, lambda: _plan(kind, request, process))
                plan = plan.on(init_mesh(connect(ranks, patience), process.shape))
                _train_in_folder(plan, request, watch, before.getvalue())
            except OrdsmedError as error:
                watch.farewell(error)
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
                watch.farewell(RunError(f"rank {ranks.rank}", repr(error)[:200]))
                raise
    return request.folder


def _meet(process: Ranks, patience: float, folder: Path) -> Ranks:
    try:
        return rendezvous(process, patience)
    except KeyboardInterrupt:
        if not checkpoint.steps(folder / "checkpoints"):
            note_nothing_done()
        raise


def _request(
    kind: type[Plan], name: str, overrides: Sequence[str], options: SessionOptions, devices: int = 0
) -> Request:
    anew, layout = bool(options.get("anew")), options.get("layout", "")
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if anew and restarts and os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        problem = (
            "found with torchrun's --max-restarts on several machines, which would set the run aside at every restart"
        )
        raise RecipeError("--anew", problem, "", "rename the folder by hand, or name another `out=`")
    request = requested(kind.recipes, name, overrides, layout, options.get("site", ""), devices=devices)
    callbacks, deadline, yes = tuple(options.get("callbacks", ())), options.get("deadline"), bool(options.get("yes"))
    auto = layout == "auto"
    return dataclasses.replace(request, anew=anew, yes=yes, auto=auto, deadline=deadline, callbacks=callbacks)


def _process(request: Request) -> Ranks:
    layout, kept = request.recipe.layout, None if request.anew else checkpoint.threads_kept(request.folder)
    process = prepare(layout.device, layout.threads or None, kept=kept)
    return dataclasses.replace(process, shape=layout.shape(process.world))


def _plan(kind: type[P], request: Request, ranks: Ranks, *, here: bool = True) -> P:
    """Return the plan with all its data, which are made before the processes connect: a corpus may take hours.

    Errors that do not depend on the data are raised first.
    """
    callbacks = (*request.callbacks, *hooks.load(request.recipe.callbacks))
    plan = dataclasses.replace(kind.of(request.recipe, ranks, request.folder), callbacks=callbacks)
    run.check_free(request.folder)
    run.finished(request.folder, request.recipe.verb)
    in_the_way = not (request.anew or request.stands) and bool(checkpoint.steps(request.folder / "checkpoints"))
    key = Run(request.folder).status.get("recipe_key")
    if in_the_way and key not in (None, run.recipe_key(request.recipe)) and plan.missing():
        raise _misfit(request)
    return plan.completed(make=True, here=here)


def _train_in_folder(plan: Plan, request: Request, watch: Watch, before: str) -> None:
    """Train with the folder locked; `before` is the text printed before the log was open."""
    folder, ranks = request.folder, plan.ranks
    with contextlib.ExitStack() as stack:
        opened = on_rank0(ranks, lambda: bool(stack.enter_context(run.locked(folder))) and _writable(folder))
        if request.anew and not request.yes:
            _weighed(plan, request)  # raise before the old run is set aside
        resumes = on_rank0(ranks, lambda: _resumes(plan, request))
        if resumes and not opened and Run(folder).status.get("state") == "done":
            say(f"{folder}: is done; it may only be read, and stays as it is")
            return
        if resumes:
            plan = _as_begun(plan, request)
            on_rank0(ranks, lambda: _restart_deadline(folder, request))
        else:
            with buffered_log() as measured:
                plan = _fastest(_weighed(plan, request), request)
            before += measured.getvalue()
            plan = plan.by(_begin(plan, request))
        if ranks.first:
            stack.enter_context(log_to(folder / "log.txt", before))
        with Run(folder).failure_noted() if ranks.first else contextlib.nullcontext():
            facts = resume(plan, folder, watch)
        on_rank0(ranks, lambda: Run(folder).set(state="done", why=None, **facts))


def _restart_deadline(folder: Path, request: Request) -> None:
    """Restart the deadline of a run without a checkpoint: none of its training was saved."""
    if not checkpoint.steps(folder / "checkpoints"):
        Run(folder).set(began=request.began)


def _as_begun(plan: P, request: Request) -> P:
    """Return the plan by the recorded recipe of the run that is resumed, in today's layout."""
    folder, recipe = request.folder, plan.recipe
    if request.deadline:
        say(f"{folder}: --deadline is not applied again: a run keeps the one it began with")
    kept = run.read_recipe(plan.recipes, folder)
    trouble = recipe.trouble if request.stands else kept.trouble
    layout = recipe.layout
    if request.auto:
        layout = fitted_to(kept, folder, plan.ranks.world, set())[0].layout
        ranks, shape = plan.ranks, layout.shape(plan.ranks.world)
        plan = plan if shape == ranks.shape else plan.on(init_mesh(ranks, shape))
    layout = layout.with_precision(kept.layout.precision)
    return plan.by(dataclasses.replace(kept, layout=layout, trouble=trouble, callbacks=recipe.callbacks))


def _fastest(plan: P, request: Request) -> P:
    plan = with_fastest_precision(plan)
    return choose_layout(plan) if request.auto else plan


def _weighed(plan: P, request: Request, *, here: bool = True) -> P:
    """Return the plan with its expected time; with a deadline return it unchanged, and refuse nothing."""
    with named(request.words[0], plan.recipes):
        return plan if request.deadline else plan.with_estimate(here=here, yes=request.yes)


def _writable(folder: Path) -> bool:
    return not folder.exists() or os.access(folder, os.W_OK)


def _begin(plan: Plan, request: Request) -> Training:
    resolved, fit = _complete(plan, request)

    def begin() -> None:
        marks = {"fingerprint": run.fingerprint(plan.recipe), "recipe_key": run.recipe_key(request.recipe)}
        steps = [phase.steps for phase in plan.recipe.phases]
        times = {"began": request.began, "deadline": request.deadline}
        Run(request.folder).begin(resolved, **marks, **times, **fit, steps_asked=steps)

    on_rank0(plan.ranks, begin)
    return resolved


def _complete(plan: Plan, request: Request) -> tuple[Training, dict[str, Any]]:
    """Return the recipe with its network and with steps that fit the deadline, and the facts for the status."""
    resolved: Training = dataclasses.replace(plan.recipe, model=plan.network)
    if not request.deadline:
        return resolved, {}
    end = request.began + request.deadline
    try:
        resolved, fit = _with_room(plan.by(resolved), request.folder, lambda plan: plan.fitted(end - time.time()))
    except TooShort as error:
        whole = duration(math.ceil(time.time() - request.began + error.seconds))
        error.args = (f"{error}; `--deadline` of {whole} or more is enough now",)
        raise
    return resolved, {"fit": fit}


def _resumes(plan: Plan, request: Request) -> bool:
    """Return whether to resume the run in the folder; raise if another run with checkpoints is there."""
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
            raise _misfit(request)
    _remove(folder)  # a run without a checkpoint, whose recipe was corrected
    return False


def _misfit(request: Request) -> RecipeError:
    remedy = f"`{command('show', request.folder, *request.words)}` shows the difference"
    problem = "holds a run of another recipe or other data"
    return RecipeError(request.folder, problem, "", f"{remedy}; name another `out=`, or add --anew")


def _remove(folder: Path) -> None:
    """Delete the folder of a run without a checkpoint, except for its examples, which the next run may read."""
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


def resume(plan: Plan, folder: Path, watch: Watch) -> dict[str, Any]:
    """Train from the last complete checkpoint or the start to the end; use smaller micro-batches if memory is short."""
    return _with_room(plan, folder, lambda fitting: _train_from_last(fitting, folder, watch))


def _with_room(plan: P, folder: Path, act: Callable[[P], T]) -> T:
    """Return `act(plan)`; each time it runs out of memory, retry with smaller micro-batches."""
    while True:
        try:
            return act(plan)
        except loop.MicroBatchOutOfMemory as full:
            step, micros = full.step, full.micros
        # not within `except`: until that block ends, the error refers to the tensors of the failed attempt
        free_memory(plan.ranks)
        say(f"{folder}: no memory was left at step {step}: goes on with layout.micro={list(micros)}")
        plan = plan.by(dataclasses.replace(plan.recipe, layout=dataclasses.replace(plan.recipe.layout, micro=micros)))


def _train_from_last(plan: Plan, folder: Path, watch: Watch) -> dict[str, Any]:
    ranks = plan.ranks
    last = _last_checkpoint(folder, ranks)
    plan, job, over = _ready(plan, folder, Run(folder).status, last)
    recipe = plan.recipe
    start, steps = int(last[1]["step"]) if last else 0, total(job.phases)
    if not over:  # a finished run is not changed
        on_rank0(ranks, lambda: _note(folder, job, start))
    if over:
        early = f"it stopped early, at step {start} of {steps}, and is"
        say(f"{folder}: {early if start < steps else f'all {steps:,} steps are'} done")
        on_rank0(ranks, lambda: snapshots.clean(folder / "checkpoints"))  # it was killed while writing its last one
        return _finish(plan, job, folder)
    peak = float(ranks.total(torch.tensor(measured_peak(ranks.device, recipe.layout.precision)))) * ranks.shape[2]
    for line in [plan.subject(), _device(job), _place(recipe.verb, folder, last)]:
        say(line)
    for line in [*plan.lines(), *_machine(job, peak)]:
        detail(line)
    if times := slowdown_in(recipe.layout.precision, ranks.device):
        say(f"layout.precision: products in {recipe.layout.precision} take {times:.3g} times as long as in fp32 here")
    saving = Saving(job, folder)
    if recipe.trouble.action == "rewind" and not last:
        saving.save(0)
    try:
        with lost_processes():
            job = _train_until_done(plan, job, folder, start, peak, saving, watch)
    except Stopped as stopped:
        if ranks.first:
            Run(folder).set(state="stopped", step=stopped.step)
        where = (
            f"saved at step {stopped.step} of {total(job.phases)}" if stopped.step else "stopped before its first step"
        )
        with on_closed_output(lambda: None):  # a closed output may be why it stopped; the log is still written
            say("\n".join(command_lines(f"{where}; go on with", command(recipe.verb, folder, *devices_flag()))))
        raise
    except Trouble as error:
        with contextlib.suppress(RunError):  # the run failed for another reason
            saving.wait()
        raise _with_remedy(error, job, folder) from None
    except (OrdsmedError, loop.MicroBatchOutOfMemory):
        saving.let_write()
        raise
    return _finish(plan, job, folder)


def _finish(plan: Plan, job: Job, folder: Path) -> dict[str, Any]:
    def leave() -> dict[str, Any]:
        facts = plan.finish(job, folder)
        hooks.call(plan.callbacks, "finished", folder)
        return facts

    _check_learned(job, folder)
    return on_rank0(job.ranks, leave)


def _ready(
    plan: P, folder: Path, status: Mapping[str, Any], last: tuple[Path, dict[str, Any]] | None
) -> tuple[P, Job, bool]:
    """Build the job and restore checkpoint `last`, if any, into it; also return whether training is finished."""
    recipe, ranks = plan.recipe, plan.ranks
    stamp = on_rank0(ranks, recipe.stamp)
    if last and status.get("data") not in (None, stamp):
        differing = [entry[0] if isinstance(entry, list) else entry for entry in stamp if entry not in status["data"]]
        found_now = f"other data: {', '.join(map(str, differing))}" if differing else "fewer data"
        raise RecipeError(folder, found_now, "those which it began with", "put those back, or begin a new run")
    start = int(last[1]["step"]) if last else 0
    plan = plan.by(in_force(recipe, status.get("plans", []), start))
    if not last:  # verify the data of a new run; for a resumed run this was done at its first start
        on_rank0(ranks, plan.verify)
    job = plan.build(resume_state=last[1] if last else None)
    job.state.left_out, job.state.ends = list(status.get("left_out", [])), list(status.get("ends", []))
    job.state.validations = on_rank0(ranks, lambda: _validations(folder, start))
    over = start >= total(job.phases) or bool(start and job.is_enough)
    job.begin_phase(locate(job.phases, max(start - 1, 0))[0])
    if last:
        _restore(job, *last, over=over)
        if not job.finite:
            steps = [step for step in checkpoint.steps(folder / "checkpoints") if step < start]
            before = f"delete it, and step {steps[-1]} is gone on from; or " if steps else ""
            raise Trouble(last[0], "holds weights with NaN or Inf", "finite ones", f"{before}{REMEDY}")
    return plan, job, over


def _train_until_done(plan: Plan, job: Job, folder: Path, start: int, peak: float, saving: Saving, watch: Watch) -> Job:
    """Run the loop, starting it again after a change of plan or a rewind; return the finished job."""
    done = read(folder / "metrics.jsonl") if start else []
    used = sum(line.get("seconds", 0.0) for line in done if line["step"] <= start)
    job.state.deadline = Deadline.of(folder, job.recipe, start, used)
    callbacks = (TensorBoard(), Timed(plan), *plan.callbacks)
    while True:
        try:
            loop.train(job, folder, start, peak, saving=saving, watch=watch, callbacks=callbacks)
            return job
        except Replanned as new:
            job = saving.job = _replanned(plan, job, folder, new.plan)
            start = new.step
        except Rewind as back:
            saving.wait()
            last = _last_checkpoint(folder, job.ranks)
            assert last is not None, "a run that rewinds saves before its first step"
            start = _restore(job, *last)
            say(f"goes on from {last[0]}")
            if job.state.deadline:
                plans = job.state.deadline.plans
                job = saving.job = _replanned(plan, job, folder, table(in_force(job.recipe, plans, start).phases))
            if all(job.leaves_out(step) for step in range(start + 1, back.step + 1)):
                since = f"nothing was learned since the checkpoint of step {start}, so going back does not help"
                raise Trouble(f"{folder}: step {back.step}", f"{back.reason}; {since}") from None
            job.leave_out(folder, start + 1, back.step, back.reason)


def _replanned(plan: Plan, job: Job, folder: Path, steps: Table) -> Job:
    recipe = planned(job.recipe, steps)
    if job.ranks.first:
        files.write_text(folder / RECIPE, settings.write(recipe))
    data = plan.by(recipe).data
    assert data is not None
    return dataclasses.replace(job, recipe=recipe, data=data)


def _with_remedy(error: Trouble, job: Job, folder: Path) -> Trouble:
    def advice() -> str:
        whole = [
            step
            for step in checkpoint.steps(folder / "checkpoints")
            if not snapshots.is_stripped(snapshots.path_of(folder / "checkpoints", step))
        ]
        return remedy(folder, job.recipe.verb, job.recipe.trouble, whole[-1] if whole else None)

    return Trouble(error.place, error.found, error.wanted, on_rank0(job.ranks, advice))


def _check_learned(job: Job, folder: Path) -> None:
    steps = total(job.phases)
    count = left_out(job.state.left_out)
    if count > (1 - LEAST) * steps:
        problem = f"{count:,} of {many(steps, 'step')} taught nothing, the last for {job.state.left_out[-1]['why']}"
        raise Trouble(folder, problem, "half of them at least", REMEDY)


def _last_checkpoint(folder: Path, ranks: Ranks) -> tuple[Path, dict[str, Any]] | None:
    def look() -> list[Any] | None:
        last = checkpoint.latest(folder / "checkpoints", place=folder)
        return [str(last[0]), last[1]] if last else None

    answer = on_rank0(ranks, look)
    return (Path(answer[0]), answer[1]) if answer else None


def _validations(folder: Path, step: int) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [line for line in read(path) if "validation" in line and line["step"] <= step] if path.exists() else []


def _note(folder: Path, job: Job, step: int) -> None:
    """Write recipe, tokenizer and facts of the data to the run's folder before it trains, and update its status."""
    run_folder, recipe = Run(folder), job.recipe
    files.write_text(folder / "recipe.toml", settings.write(recipe))
    here = {"from": step, "processes": job.ranks.world, "mesh": list(job.ranks.shape)}
    before = [entry for entry in run_folder.status.get("layouts", []) if entry["from"] < step]
    same = before and {**before[-1], "from": step} == here
    if job.began_with:
        run_folder.set(began_with=job.began_with, **job.began_as)
    layouts = before if same else [*before, here]
    flops = list(map(job.flops, range(len(job.phases))))  # FLOPs of a step, by phase
    facts = {"data": recipe.stamp(), "phases_before": job.phases_before, "layouts": layouts, "flops": flops}
    run_folder.set(state="running", why=None, threads=job.ranks.threads, **facts)
    job.tokenizer.save(folder / "tokenizer")
    files.write_json(folder / "data.json", job.data.facts())


def _device(job: Job) -> str:
    layout = job.recipe.layout
    faster = [name for name in ("compile", "fp8") if getattr(layout, name)] + ["our own kernels"] * bool(job.kernels)
    return f"on {', '.join([_processes(job), layout.precision, *faster])}"


def _place(verb: str, folder: Path, last: tuple[Path, dict[str, Any]] | None) -> str:
    if last:
        return f"goes on from {last[0]}"
    title = f"in {folder}; Ctrl-C saves the run, which goes on with"
    return "\n".join(command_lines(title, command(verb, folder, *devices_flag())))


def _processes(job: Job) -> str:
    ranks = job.ranks
    processes = f"{many(ranks.world, 'process')}, each " if ranks.world > 1 else ""
    return f"{processes}{ranks.device.type}, {many(ranks.threads, 'thread')}"


def _machine(job: Job, peak: float) -> list[str]:
    first = f"{_processes(job)}; measured peak of all {operations(peak)}/s"
    return [first, job.precision, *([job.kernels] if job.kernels else [])]


def _restore(job: Job, path: Path, state: dict[str, Any], *, over: bool = False) -> int:
    """Restore a checkpoint into the job, and return its step; `over`: no further step will be trained."""
    now = circumstances(job)
    now["micro"] = now["micro"][: len(state.get("micro", now["micro"]))]  # an extended run has more phases
    differing = [f"{k} {state[k]}, now {v}" for k, v in now.items() if state.get(k, v) != v]
    if differing and not over:
        say(f"{path}: made with {'; '.join(differing)}: losses will agree, but not to the last bit")
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


def leave_weights(job: Job, out: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write weights with their settings and tokenizer to `out`.

    Files with the right content are not written again, because other programs compare their modification times.
    """
    out.mkdir(exist_ok=True)
    if not _are_in(out / "model.safetensors", tensors):
        weights.write(out / "model.safetensors", tensors)
        job.tokenizer.save(out / "tokenizer")
    text = settings.write({"model": job.objective.model_settings, **job.recipe.learned()})
    if not (path := out / "settings.toml").is_file() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def _are_in(path: Path, tensors: dict[str, torch.Tensor]) -> bool:
    try:
        return path.with_name("tokenizer").is_dir() and weights.digest(weights.read(path)) == weights.digest(tensors)
    except OrdsmedError:
        return False

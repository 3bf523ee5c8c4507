"""THE loop: it knows steps, phases and sums, and neither model, objective nor task, nor how they lie on a mesh.

rows -> micro-batches -> summed losses / global counts -> gradients -> clip -> update
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from torch import Tensor

from ordsmed.base.ending import STOP_AT, TO_STOP, Stopped
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.ranks import first_alone
from ordsmed.base.say import Progress, say, unread
from ordsmed.data.batch import Batch
from ordsmed.data.loader import Share, load
from ordsmed.data.words_seen import WordsSeen
from ordsmed.learn.objective import Objective
from ordsmed.learn.phases import locate, total
from ordsmed.nn.dropout import begin_micro_batch
from ordsmed.nn.shards import LocalParameter, total_norm
from ordsmed.train import average
from ordsmed.train.callbacks import Callback, LoopState, call, in_order, validate_beginning
from ordsmed.train.job import Job, Vote
from ordsmed.train.mesh.precision import autocast
from ordsmed.train.meters import Meters
from ordsmed.train.saving import Saving
from ordsmed.train.trouble import handle_trouble
from ordsmed.train.watch import Watch
from ordsmed.train.whole_step import look_ahead


class Unmade(Exception):
    """Some rank was asked to stop while it made the rows of a step, which is therefore not taken."""


class Overfull(Exception):
    """A micro-batch has no room in this process, which is alone; the run may go on with a smaller one."""

    def __init__(self, step: int, micros: tuple[int, ...]) -> None:
        self.step, self.micros = step, micros
        super().__init__(f"no memory is left at step {step}")


def train(
    job: Job,
    folder: Path,
    start: int,
    peak: float,
    *,
    saving: Saving | None = None,
    watch: Watch | None = None,
    callbacks: Sequence[Callback] = (),
) -> int:
    """Train from a step of the run to its end; returns the last step."""
    step, steps, recipe = start, total(job.phases), job.recipe
    callbacks = [callback for callback in callbacks if job.ranks.first or callback.every_rank]
    meters = Meters(
        folder,
        peak,
        start,
        job.ranks,
        summed=recipe.trouble.watches,
        tell=lambda lines: call(callbacks, "metrics", lines),
    )
    watch = watch or Watch(job.ranks, recipe.layout.patience)
    job.state.tell = lambda stage: watch.at(watch.step, stage)
    job.state.validations = first_alone(job.ranks, meters.validations)
    until = first_alone(job.ranks, _stop_at)  # mpirun hands no variable on to other machines by itself
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            call([callback], "begin", job, folder, start)
            stack.callback(call, [callback], "end")
        signal_of = stack.enter_context(asked_to_stop())
        progress = stack.enter_context(Progress(recipe.verb, steps, "steps", done=start, every=30))
        loop = RunLoop(job, folder, steps, meters, progress, watch, signal_of, saving, in_order(callbacks), until)
        if saving and not start:
            validate_beginning(job, folder, meters)
        for index in range(locate(job.phases, start)[0], len(job.phases)):
            step, over = loop.go_through(index, step)
            if over:
                break
    return step


@dataclass(frozen=True)
class RunLoop:
    """A run under way: its steps, and what comes between them."""

    job: Job
    folder: Path
    steps: int
    meters: Meters
    progress: Progress
    watch: Watch
    signal: Callable[[], int]  # by which the run is asked to stop; 0: none
    saving: Saving | None
    after_step: Sequence[Callable[[LoopState], None]]
    until: int = 0  # the step to stop at; 0: none

    def go_through(self, index: int, step: int) -> tuple[int, bool]:
        """The rest of a phase after a step of the run; the step that it came to, and whether the run is over."""
        phase, inner = self.job.phases[index], locate(self.job.phases, step)[1]
        self.job.begin_phase(index, new=not inner)
        if not inner:
            self.job.carry(index)
        over = False
        while inner < phase.steps and not over:
            self.watch.at(step, "choosing rows")
            until = self.job.data.renew(self.job, self.folder, index, inner)
            step, over = self._go_through(index, inner, until, step)
            inner = until
        return step, over

    def _go_through(self, index: int, first: int, until: int, step: int) -> tuple[int, bool]:
        """The same of some steps of it, which read the same rows."""
        job = self.job
        phase, share, rows = job.phases[index], job.share(index), job.rows(index)
        length, words_of = job.data.row_length(index), WordsSeen.of(rows)
        flops, later = job.flops(index), _flops(job, index + 1)
        ready = load(rows, share, first, until, workers=job.workers, device=job.ranks.device, stop=self.signal)
        for inner in range(first, until):
            began = time.perf_counter()
            sums, norm, reason = self._learn(ready, share, index, inner, step)
            step += 1
            number, count = phase.rows_of(inner)
            numbers = np.arange(number, number + count)
            job.see(0 if reason else words_of(numbers) if words_of else None)
            if reason:
                handle_trouble(job, self.folder, step, reason)
            else:
                line = {
                    "step": step,
                    "phase": index + 1,
                    "rate": phase.rate_at(inner),
                    "norm": norm,
                    "seconds": time.perf_counter() - began,
                    "rows": count,
                    "tokens": count * length,
                    **({"words": job.state.words} if job.state.words is not None else {}),
                    "flops": flops * (count / phase.batch),
                    "ahead": flops * ((phase.rows - number - count) / phase.batch) + later,
                    **job.scaler.describe(),
                }
                self.meters.add(line, sums)
            if self._is_over(index, step, began):
                return step, True
        return step, False

    def _learn(
        self, ready: Iterator[list[Batch]], share: Share, index: int, inner: int, step: int
    ) -> tuple[dict[str, Tensor], Tensor, str]:
        """The step after this one; where some rank has too few rows of it, the run is saved as it is and stops."""
        job = self.job
        self.watch.at(step + 1, "making rows")
        batches = next(ready)
        self.watch.at(step + 1, "learning")
        job.state.vote = Vote(self.signal(), short=len(batches) < share.accumulation_at(inner))
        try:
            return update(job, batches, job.phases[index].rate_at(inner), index, inner, step=step + 1)
        except Unmade:
            self.meters.flush(job.objective.weights, final=True)
            if self.saving and job.finite:
                self.saving.save_as_it_is(step)
            raise Stopped(step, job.state.vote.result(self.signal())) from None
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise overfull(job, index, step + 1, error) from None

    def _is_over(self, index: int, step: int, began: float) -> bool:
        """Do what comes after a step; is it the run's last one?"""
        last, stop = step == self.steps, self.job.state.vote.result(self.signal())
        ends = bool(stop) or step == self.until
        state = LoopState(
            self.job,
            self.folder,
            step,
            index,
            began,
            last,
            stop,
            ends,
            self.meters,
            self.progress,
            self.watch,
            self.saving,
        )
        for act in self.after_step:
            act(state)
        return state.last


def _stop_at() -> int:
    text = os.environ.get(STOP_AT) or "0"
    if not text.isdecimal():
        raise RecipeError(STOP_AT, f"found {text}", "a step of the run, or 0: none")
    return int(text)


def overfull(job: Job, index: int, step: int, error: BaseException) -> Exception:
    """What lacking memory means: smaller micro-batches by oneself; with others, who wait, the end and what to do."""
    share, ranks = job.share(index), job.ranks
    rows = share.batch // share.world
    fits = max((n for n in range(1, share.micro) if rows % n == 0 and n <= share.micro // 2), default=0)
    if fits and ranks.world == 1:
        return Overfull(step, tuple(fits if n == index else job.share(n).micro for n in range(len(job.phases))))
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    lower = f"use `layout.micro={fits}` (it is {share.micro}), " if fits else ""
    remedy = f"{lower}`layout.recompute=true`, or split the weights with `layout.shard`"
    return RunError(f"rank {ranks.rank}, step {step}", reason, "", remedy)


def _flops(job: Job, first: int) -> float:
    """Of all phases from one on."""
    return sum(job.flops(index) * job.phases[index].whole_steps for index in range(first, len(job.phases)))


def update(
    job: Job, batches: list[Batch], rate: float, index: int, inner: int, *, step: int = 0
) -> tuple[dict[str, Tensor], Tensor, str]:
    """One step: every micro-batch's sums over the counts of all, gradients, clipping, the optimizer.

    Returns the step's losses, the gradient's norm, and why the weights were left alone if they were: because this step
    of the run is one to leave out, or because something was wrong.
    """
    objective, optimizer, ranks = job.objective, job.optimizer, job.ranks
    counts = total_counts(job, batches)
    seen = {term: torch.zeros((), device=ranks.device) for term in objective.weights}
    if job.leaves_out(step):
        _begin_anew(objective)
        return seen, torch.zeros(()), "left out"
    scaling = job.scaler.factor
    stream = ranks.tensor_rank + 1 if ranks.shape[2] > 1 else 0

    def begin(micro: int) -> None:
        key = (job.recipe.seed, index + job.phases_before, inner, micro, ranks.data_rank)
        begin_micro_batch(*key, stream=stream)

    look_ahead(job, batches, begin)
    for micro, batch in enumerate(batches):
        begin(micro)
        job.parallel.before_micro_batch(micro == len(batches) - 1)
        with autocast(job.recipe.layout, ranks.device):
            sums = objective(batch.to(ranks.device))
            check_terms(job, "forward()", sums)
            loss = sum(
                (weight * sums[term] / counts[term] for term, weight in objective.weights.items()), torch.zeros(())
            )
        (loss * (scaling * job.parallel.factor)).backward()
        for term in seen:
            seen[term] += sums[term].detach() / counts[term]
    job.state.tell("summing gradients")  # who hangs in its own arithmetic never comes so far
    job.parallel.sum_gradients(job.parts)
    learning = drop_frozen(job, index)
    norm = total_norm(job.parts) / scaling
    reason = find_trouble(job, seen, norm)
    if reason:
        _begin_anew(objective)
    if not reason and job.scaler.accept(norm, f"phase {index + 1}, step {inner + 1}"):
        clip(job.parts, norm, job.recipe.clip, scaling)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["share"]
        job.set_decay(index, inner)
        optimizer.step()
        average.follow(optimizer, learning, average.memory_of(job.recipe.average, step, total(job.phases)))
    for part in job.parts:
        part.whole.grad = part.local.grad = None
    return seen, norm, reason


def drop_frozen(job: Job, index: int) -> list[LocalParameter]:
    """Take the gradients of weights that do not learn in this phase away, where there are any; returns the others."""
    if not job.phases[index].freeze:
        return job.parts
    learning = job.learning(index)
    kept = {id(part.local) for part in learning}
    for part in job.parts:
        if id(part.local) not in kept:
            part.whole.grad = part.local.grad = None
    return learning


def _begin_anew(objective: Objective) -> None:
    """What is carried from a step that teaches nothing may be what was wrong with it."""
    for carried in objective.state.values():
        carried.zero_()


def check_terms(job: Job, method: str, table: object) -> None:
    """An objective's sums and counts are a table with all terms of its weights, which an own objective may forget."""
    terms = job.objective.weights
    if not isinstance(table, Mapping) or terms.keys() - table.keys():
        result = f"a table of {', '.join(map(str, table)) or 'nothing'}" if isinstance(table, Mapping) else "no table"
        wanted = f"a table with the terms of its weights: {', '.join(terms)}"
        raise RunError(f"{type(job.objective).__name__}.{method}", f"gives {result}", wanted, "docs/add-a/objective.md")


def total_counts(job: Job, batches: list[Batch]) -> dict[str, Tensor]:
    """Predictions of the whole step, a term; of a step without any 1, so that it is one without a gradient.

    On the same way all ranks hear whether any of them was asked to stop, and whether its rows are too few.
    """
    counts = [job.objective.count(batch) for batch in batches]
    for count in counts:
        check_terms(job, "count()", count)
    terms = list(job.objective.weights)
    totals = [sum((m[term].double() for m in counts), torch.zeros((), dtype=torch.float64)) for term in terms]
    ranks, vote = job.ranks, job.state.vote
    if ranks.world > 1:
        spoken = torch.stack([*totals, *torch.tensor([vote.mine > 0, vote.short], dtype=torch.float64)])
        torch.distributed.all_reduce(spoken)
        totals, vote.heard, vote.short = list(spoken[:-2] / ranks.shape[2]), bool(spoken[-2]), bool(spoken[-1])
    if vote.short:
        raise Unmade
    return {term: torch.where(value > 0, value, 1.0).float() for term, value in zip(terms, totals, strict=True)}


def find_trouble(job: Job, seen: dict[str, Tensor], norm: Tensor) -> str:
    """What is wrong with a step, where the recipe wants every step looked at; sums over all ranks in `seen` then."""
    if not job.recipe.trouble.watches:
        return ""
    seen.update(zip(seen, job.ranks.total(torch.stack(list(seen.values()))), strict=True))
    loss = float(sum(weight * seen[term] for term, weight in job.objective.weights.items()))
    over = job.scaler.window >= 0 and math.isfinite(loss)  # fp16 has its own answer to a gradient that runs over
    return job.state.losses.trouble(loss, 0.0 if over else float(norm))


def clip(parts: list[LocalParameter], norm: Tensor, limit: float, scaling: float = 1.0) -> None:
    """Scale all gradients so that their common norm is at most `limit` (0: any), and fp16's scaling is undone."""
    on_cpu = norm.device.type == "cpu"  # there a look at the norm costs nothing, and mostly saves a pass over memory
    short = not limit or (on_cpu and float(norm) <= limit)
    if short and scaling == 1:
        return
    factor = torch.ones_like(norm) if short else (limit / (norm + 1e-6)).clamp(max=1.0)
    grads = [part.local.grad for part in parts if part.local.grad is not None]
    torch._foreach_mul_(grads, factor / scaling)


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Callable[[], int]]:
    """SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C ask the loop to save and stop; a second Ctrl-C stops at once.

    So does a reader of its lines that went away: Ctrl-C ends `tee` as well, before it reaches the run or after.

    Others may come again while the run is saved: a scheduler's warning is followed by its SIGTERM, and who started the
    processes passes on what each of them has heard already.
    """
    heard: list[int] = []
    process = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # one that makes rows, which the step that is finished needs
            return
        if heard:
            if number == signal.SIGINT and signal.SIGINT in heard:
                raise KeyboardInterrupt
            heard.append(number)
            return
        heard.append(number)
        again = " (again: stops at once)" if number == signal.SIGINT else ""
        say(f"{signal.Signals(number).name}: the step is finished, then the run is saved{again}")

    before = {name: signal.signal(name, hear) for name in TO_STOP}
    try:
        with unread(lambda: heard.append(signal.SIGPIPE)):  # behind a signal that was heard it changes nothing
            yield lambda: heard[0] if heard else 0
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)

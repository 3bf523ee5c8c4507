"""The training loop, and the training step. It does not depend on the model, objective, task or mesh.

`train` runs the phases; `RunLoop` fetches the micro-batches of each step and runs the actions after it; `train_step`
is the step: forward, backward, sum of gradients over ranks, clipping, optimizer, average of the weights.
"""

from __future__ import annotations

import contextlib
import functools
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

from ordsmed.base.ending import STOP_AT, STOP_SIGNALS, Stopped
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.ranks import on_rank0
from ordsmed.base.say import Progress, on_closed_output, say
from ordsmed.data.batch import Batch
from ordsmed.data.loader import Share, load
from ordsmed.data.word_counts import WordsSeen
from ordsmed.learn.objective import Objective
from ordsmed.learn.phases import Stretch, locate, total
from ordsmed.learn.schedules import Ramp
from ordsmed.nn.dropout import begin_micro_batch
from ordsmed.nn.shards import LocalParameter, total_norm
from ordsmed.train import average
from ordsmed.train.callbacks import Callback, LoopState, call, step_actions, validate_beginning
from ordsmed.train.job import Job, Vote
from ordsmed.train.mesh.precision import autocast
from ordsmed.train.meters import Meters
from ordsmed.train.saving import Saving
from ordsmed.train.trouble import handle_trouble
from ordsmed.train.watch import Watch
from ordsmed.train.whole_step import compare_examples


class RowsMissing(Exception):
    """No rank trains this step, because a rank was asked to stop while it prepared its rows."""


class MicroBatchOutOfMemory(Exception):
    """A single process ran out of memory; the run may continue with smaller micro-batches."""

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
    """Train from step `start` of the run to its end, and return the last step."""
    step, steps, recipe = start, total(job.phases), job.recipe
    callbacks = [callback for callback in callbacks if job.ranks.first or callback.every_rank]
    tell = functools.partial(call, callbacks, "metrics")
    meters = Meters(folder, peak, start, job.ranks, summed=recipe.trouble.watches, tell=tell)
    watch = watch or Watch(job.ranks, recipe.layout.patience)
    job.state.tell = lambda stage: watch.at(watch.step, stage)
    job.state.validations = on_rank0(job.ranks, meters.validations)
    stop_at = on_rank0(job.ranks, read_stop_at)  # mpirun does not copy variables to other machines
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            call([callback], "begin", job, folder, start)
            stack.callback(call, [callback], "end")
        signal_of = stack.enter_context(catch_stop_signals())
        progress = stack.enter_context(Progress(recipe.verb, steps, "steps", done=start, every=30))
        loop = RunLoop(job, folder, steps, meters, progress, watch, signal_of, saving, step_actions(callbacks), stop_at)
        if saving and not start:
            validate_beginning(job, folder, meters)
        for index in range(locate(job.phases, start)[0], len(job.phases)):
            step, over = loop.run_phase(index, step)
            if over:
                break
    return step


@dataclass(frozen=True)
class RunLoop:
    job: Job
    folder: Path
    steps: int
    meters: Meters
    progress: Progress
    watch: Watch
    signal: Callable[[], int]  # returns the signal that asks the run to stop; 0: none
    saving: Saving | None
    actions: Sequence[Callable[[LoopState], None]]  # run after each step
    stop_at: int = 0  # the step to stop at; 0: none

    def run_phase(self, index: int, step: int) -> tuple[int, bool]:
        """Train the rest of phase `index` after `step`; return the last step, and whether the run is over."""
        phase, inner = self.job.phases[index], locate(self.job.phases, step)[1]
        self.job.begin_phase(index, new=not inner)
        if not inner:
            self.job.carry(index)
        over = False
        while inner < phase.steps and not over:
            self.watch.at(step, "choosing rows")
            until = self.job.data.renew(self.job, self.folder, index, inner)
            step, over = self._run_steps(index, inner, until, step)
            inner = until
        return step, over

    def _run_steps(self, index: int, first: int, until: int, step: int) -> tuple[int, bool]:
        """Train steps `first` to `until` of phase `index`; return the last step of the run, and whether it is over."""
        job = self.job
        phase, share, rows = job.phases[index], job.share(index), job.rows(index)
        length, words_of = job.data.row_length(index), WordsSeen.of(rows)
        flops, later = job.flops(index), _flops_from(job, index + 1)
        batches = load(rows, share, first, until, workers=job.workers, device=job.ranks.device, stop=self.signal)
        for inner in range(first, until):
            began = time.perf_counter()
            sums, norm, reason = self._run_step(batches, share, index, inner, step)
            step += 1
            number, count = phase.rows_of(inner)
            numbers = np.arange(number, number + count)
            job.count_words(0 if reason else words_of(numbers) if words_of else None)
            if reason:
                handle_trouble(job, self.folder, step, reason)
            else:
                line = {
                    "step": step,
                    "phase": index + 1,
                    "learning_rate": phase.rate_at(inner),
                    "rate": phase.rate_at(inner),  # the former name, until version 1.0
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
            if self._after_step(index, step, began):
                return step, True
        return step, False

    def _run_step(
        self, batches: Iterator[list[Batch]], share: Share, index: int, inner: int, step: int
    ) -> tuple[dict[str, Tensor], Tensor, str]:
        """Fetch the micro-batches of a step and train on them.

        If a rank has too few rows because it was asked to stop, save the run and raise `Stopped`.
        """
        job = self.job
        self.watch.at(step + 1, "making rows")
        micro_batches = next(batches)
        self.watch.at(step + 1, "learning")
        job.state.vote = Vote(self.signal(), rows_missing=len(micro_batches) < share.accumulation_at(inner))
        try:
            return train_step(job, micro_batches, job.phases[index].rate_at(inner), index, inner, step=step + 1)
        except RowsMissing:
            self.meters.flush(job.objective.weights, final=True)
            if self.saving and job.finite:
                self.saving.save_now(step)
            raise Stopped(step, job.state.vote.result(self.signal())) from None
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise memory_error(job, index, step + 1, error) from None

    def _after_step(self, index: int, step: int, began: float) -> bool:
        """Run the actions that follow a step, such as validating and saving; return whether the run is over."""
        last, stop = step == self.steps, self.job.state.vote.result(self.signal())
        ends = bool(stop) or step == self.stop_at
        outputs = self.meters, self.progress, self.watch, self.saving
        state = LoopState(self.job, self.folder, step, index, began, last, stop, ends, *outputs)
        for action in self.actions:
            action(state)
        return state.last


def read_stop_at() -> int:
    text = os.environ.get(STOP_AT) or "0"
    if not text.isdecimal():
        raise RecipeError(STOP_AT, f"found {text}", "a step of the run, or 0: none")
    return int(text)


def memory_error(job: Job, index: int, step: int, error: BaseException) -> Exception:
    """Return the error for full memory: `MicroBatchOutOfMemory` if a smaller micro-batch may work, else a `RunError`.

    With several ranks the others wait in a collective, so the run must end.
    """
    share, ranks = job.share(index), job.ranks
    rows = share.batch // share.world
    fits = max((n for n in range(1, share.micro) if rows % n == 0 and n <= share.micro // 2), default=0)
    if fits and ranks.world == 1:
        return MicroBatchOutOfMemory(
            step, tuple(fits if n == index else job.share(n).micro for n in range(len(job.phases)))
        )
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    lower = f"use `layout.micro={fits}` (it is {share.micro}), " if fits else ""
    remedy = f"{lower}`layout.recompute=true`, or split the weights with `layout.shard`"
    return RunError(f"rank {ranks.rank}, step {step}", reason, "", remedy)


def _flops_from(job: Job, first: int) -> float:
    return sum(job.flops(index) * job.phases[index].whole_steps for index in range(first, len(job.phases)))


def train_step(
    job: Job, batches: list[Batch], rate: float, index: int, inner: int, *, step: int = 0
) -> tuple[dict[str, Tensor], Tensor, str]:
    """Train on one batch, given as the micro-batches of this rank. `inner` is the step of phase `index`, from 0.

    Return the losses by term, the gradient norm, and why the weights were not updated (empty: they were).
    """
    objective, optimizer, ranks, scale = job.objective, job.optimizer, job.ranks, job.scaler.factor
    counts = total_counts(job, batches)
    losses = {term: torch.zeros((), device=ranks.device) for term in objective.weights}
    if job.is_skipped(step):
        reset_carried_states(objective)
        return losses, torch.zeros(()), "left out"
    stream = ranks.tensor_rank + 1 if ranks.shape[2] > 1 else 0

    def seed_dropout(micro: int) -> None:
        key = (job.recipe.seed, index + job.phases_before, inner, micro, ranks.data_rank)
        begin_micro_batch(*key, stream=stream)

    compare_examples(job, batches, seed_dropout)

    # Forward and backward: gradients accumulate over the micro-batches.
    for micro, batch in enumerate(batches):
        seed_dropout(micro)
        job.parallel.before_micro_batch(micro == len(batches) - 1)
        with autocast(job.recipe.layout, ranks.device):
            sums = objective(batch.to(ranks.device))
            check_terms(job, "forward()", sums)
            # Sums of a micro-batch, divided by counts of the whole batch, add up to the mean of the whole batch.
            terms = (weight * sums[term] / counts[term] for term, weight in objective.weights.items())
            loss = sum(terms, torch.zeros(()))
        (loss * (scale * job.parallel.factor)).backward()
        for term in losses:
            losses[term] += sums[term].detach() / counts[term]

    # Reduce: sum gradients over the ranks.
    job.state.tell("summing gradients")  # a rank that hangs in the backward pass never reaches this point
    job.parallel.sum_gradients(job.parts)
    trained = drop_frozen(job, index)
    norm = total_norm(job.parts) / scale

    # Update, unless the losses or gradients are not usable.
    reason = find_trouble(job, losses, norm)
    if reason:
        reset_carried_states(objective)
    elif job.scaler.accept(norm, f"phase {index + 1}, step {inner + 1}"):  # fp16 skips steps whose gradients overflow
        clip(job.parts, norm, job.recipe.clip, scale)
        set_rates(job, rate, index, inner)
        optimizer.step()
        average.update(optimizer, trained, average.decay_at(job.recipe.average, step, total(job.phases)))
    for part in job.parts:
        part.whole.grad = part.local.grad = None
    return losses, norm, reason


def total_counts(job: Job, batches: list[Batch]) -> dict[str, Tensor]:
    """Return the number of predictions of the whole step over all ranks, by term; at least 1.

    The same collective tells all ranks whether one was asked to stop and whether its rows are incomplete.
    """
    counts = [job.objective.count(batch) for batch in batches]
    for count in counts:
        check_terms(job, "count()", count)
    terms = list(job.objective.weights)
    totals = [sum((m[term].double() for m in counts), torch.zeros((), dtype=torch.float64)) for term in terms]
    ranks, vote = job.ranks, job.state.vote
    if ranks.world > 1:
        votes = torch.stack([*totals, *torch.tensor([vote.received > 0, vote.rows_missing], dtype=torch.float64)])
        torch.distributed.all_reduce(votes)
        totals, vote.any_rank, vote.rows_missing = (list(votes[:-2] / ranks.shape[2]), bool(votes[-2]), bool(votes[-1]))
    if vote.rows_missing:
        raise RowsMissing
    return {term: torch.where(value > 0, value, 1.0).float() for term, value in zip(terms, totals, strict=True)}


def check_terms(job: Job, method: str, table: object) -> None:
    """Raise a `RunError` if a table of an objective does not have every term; a user's objective may forget one."""
    terms = job.objective.weights
    if not isinstance(table, Mapping) or terms.keys() - table.keys():
        result = f"a table of {', '.join(map(str, table)) or 'nothing'}" if isinstance(table, Mapping) else "no table"
        wanted = f"a table with the terms of its weights: {', '.join(terms)}"
        raise RunError(f"{type(job.objective).__name__}.{method}", f"gave {result}", wanted, "docs/add-a/objective.md")


def drop_frozen(job: Job, index: int) -> list[LocalParameter]:
    """Delete the gradients of weights that are frozen in this phase, and return the other weights."""
    if not job.phases[index].freeze:
        return job.parts
    learning = job.learning(index)
    kept = {id(part.local) for part in learning}
    for part in job.parts:
        if id(part.local) not in kept:
            part.whole.grad = part.local.grad = None
    return learning


def find_trouble(job: Job, seen: dict[str, Tensor], norm: Tensor) -> str:
    """Return why a step must not be learned from, if the recipe checks every step. `seen` is then summed over ranks."""
    if not job.recipe.trouble.watches:
        return ""
    seen.update(zip(seen, job.ranks.total(torch.stack(list(seen.values()))), strict=True))
    loss = float(sum(weight * seen[term] for term, weight in job.objective.weights.items()))
    over = job.scaler.window >= 0 and math.isfinite(loss)  # fp16 handles gradient overflow itself
    return job.state.losses.trouble(loss, 0.0 if over else float(norm))


def clip(parts: list[LocalParameter], norm: Tensor, limit: float, scaling: float = 1.0) -> None:
    """Scale all gradients so that their global norm is at most `limit` (0: any), and undo the fp16 loss scaling."""
    on_cpu = norm.device.type == "cpu"  # on a CPU reading the norm is free and often saves a pass over memory
    short = not limit or (on_cpu and float(norm) <= limit)
    if short and scaling == 1:
        return
    factor = torch.ones_like(norm) if short else (limit / (norm + 1e-6)).clamp(max=1.0)
    grads = [part.local.grad for part in parts if part.local.grad is not None]
    torch._foreach_mul_(grads, factor / scaling)


def set_rates(job: Job, rate: float, index: int, inner: int) -> None:
    """Set the learning rate and the weight decay of every group of weights for a step of a phase."""
    schedule, phase = job.recipe.decay_schedule, job.phases[index]
    factor = None
    if isinstance(schedule, Ramp):
        progress = Stretch.of(job.phases, index).progress(np.asarray([phase.rows_of(inner)[0]]))
        factor = float(schedule.at(progress)[0])
    elif schedule == "rate":
        factor = phase.rate_at(inner) / phase.learning_rate
    for group in job.optimizer.param_groups:
        group["lr"] = rate * group["share"]
        if factor is not None:
            group["weight_decay"] = factor * group.setdefault("whole_decay", group["weight_decay"])


def reset_carried_states(objective: Objective) -> None:
    """Set states carried between steps to zero, because they may have caused a bad step."""
    for carried in objective.state.values():
        carried.zero_()


@contextlib.contextmanager
def catch_stop_signals() -> Iterator[Callable[[], int]]:
    """Catch SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C; yield a function that returns the signal received, or 0.

    The loop then saves and stops. A second Ctrl-C stops immediately. A closed output pipe also counts as a signal,
    because Ctrl-C may end `tee` before it reaches the run.

    Other signals may repeat while the run is saved: a scheduler's warning is followed by SIGTERM, and launchers forward
    the signals that each process has already received.
    """
    heard: list[int] = []
    process = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a process that prepares rows, which the current step needs
            return
        if heard:
            if number == signal.SIGINT and signal.SIGINT in heard:
                raise KeyboardInterrupt
            heard.append(number)
            return
        heard.append(number)
        again = " (press again to stop at once)" if number == signal.SIGINT else ""
        say(f"{signal.Signals(number).name}: the run is saved after this step{again}")

    before = {name: signal.signal(name, hear) for name in STOP_SIGNALS}
    try:
        with on_closed_output(lambda: heard.append(signal.SIGPIPE)):  # it has no effect after another signal
            yield lambda: heard[0] if heard else 0
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)

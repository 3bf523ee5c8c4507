"""THE loop: it knows steps, phases and sums, and neither model, objective nor task.

rows -> micro-batches -> summed losses / global counts -> gradients -> clip -> update
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordsmed.base.say import Progress, say
from ordsmed.data.batch import Batch
from ordsmed.data.loader import load
from ordsmed.data.rows import Rows
from ordsmed.learn.phases import locate, total
from ordsmed.nn.dropout import begin_micro_batch
from ordsmed.train import checkpoint
from ordsmed.train.job import Job
from ordsmed.train.meters import Meters

JUDGED_ROWS = 32  # rows of a validation batch
Each = Callable[[int], None]  # is told every step that is done


class Stopped(Exception):
    """The run was asked to stop, and saved first."""

    def __init__(self, step: int, by: int) -> None:
        self.step, self.by = step, by
        super().__init__(f"stopped at step {step}")


def train(
    job: Job,
    folder: Path,
    start: int,
    peak: float,
    *,
    each: Each | None = None,
    checkpoints: bool = True,
) -> int:
    """Train from a step of the run to its end; returns the last step."""
    step, steps, recipe, meters = start, total(job.phases), job.recipe, Meters(folder, peak, start)
    progress = Progress("pretrain", steps, "steps", done=start, every=30)
    with contextlib.closing(meters), asked_to_stop() as asked, progress as shown:
        for index in range(locate(job.phases, start)[0], len(job.phases)):
            phase, rows, share = job.phases[index], job.rows(index), job.share(index)
            flops = job.objective.flops(phase.batch, phase.length)
            first = locate(job.phases, step)[1]
            ready = load(rows, share, first, phase.steps, workers=job.workers, device=job.ranks.device)
            for inner in range(first, phase.steps):
                began = time.perf_counter()
                sums, norm = update(job, next(ready), phase.rate_at(inner), index, inner)
                step += 1
                spent = time.perf_counter() - began
                line = {"step": step, "phase": index + 1, "rate": phase.rate_at(inner), "norm": norm, "seconds": spent,
                        "rows": phase.batch, "tokens": phase.batch * phase.length, "flops": flops}  # fmt: skip
                meters.add(line, sums)
                last, stop = step == steps, asked()
                if step % recipe.log == 0 or last or stop:
                    _tell(shown, meters.flush(job.objective.weights), step)
                if each:
                    each(step)
                if (recipe.validate and step % recipe.validate == 0) or last:
                    meters.flush(job.objective.weights)
                    _judge(job, index, meters, step)
                if checkpoints and (last or stop or (recipe.save and step % recipe.save == 0)):
                    meters.flush(job.objective.weights)
                    save(job, folder, step)
                if stop and not last:
                    raise Stopped(step, stop)
    return step


def update(job: Job, batches: list[Batch], rate: float, index: int, inner: int) -> tuple[dict[str, Tensor], Tensor]:
    """One step: every micro-batch's sums over the counts of all, gradients, clipping, the optimizer."""
    objective, optimizer, seed = job.objective, job.optimizer, job.recipe.seed
    counts = total_counts(job, batches)
    seen = {term: torch.zeros((), device=job.ranks.device) for term in objective.weights}
    for micro, batch in enumerate(batches):
        begin_micro_batch(seed, index + job.phases_before, inner, micro, job.ranks.rank)
        with precision(job):
            sums = objective(batch)
            loss = sum(
                (weight * sums[term] / counts[term] for term, weight in objective.weights.items()), torch.zeros(())
            )
        loss.backward()
        for term in seen:
            seen[term] += sums[term].detach() / counts[term]
    norm = clip(list(objective.parameters()), job.recipe.clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return seen, norm


def total_counts(job: Job, batches: list[Batch]) -> dict[str, Tensor]:
    """Predictions of the whole step, a term; at least 1, so that a step without any is one without a gradient."""
    made = [job.objective.count(batch) for batch in batches]
    return {term: sum((m[term] for m in made), torch.zeros(())).clamp_min(1).float() for term in job.objective.weights}


def clip(parameters: list[torch.nn.Parameter], limit: float) -> Tensor:
    """Scale all gradients so that their common norm is at most `limit` (0: any); returns the norm before."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads)
    on_cpu = norm.device.type == "cpu"  # there a look at the norm costs nothing, and mostly saves a pass over memory
    if limit and not (on_cpu and float(norm) <= limit):
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm


def judge(job: Job, rows: Rows, count: int) -> dict[str, float]:
    """Mean losses and shares of right answers over the first `count` rows; dropout off."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    job.objective.eval()
    with torch.no_grad(), precision(job):
        for first in range(0, count, JUDGED_ROWS):
            batch = rows.batch(np.arange(first, min(first + JUDGED_ROWS, count))).to(job.ranks.device)
            for into, found in ((sums, job.objective.judge(batch)), (counts, job.objective.count(batch))):
                for term, value in found.items():
                    into[term] = into.get(term, 0.0) + float(value)
    job.objective.train()
    weights = job.objective.weights
    means = {name: value / counts[name.removesuffix("_right")] for name, value in sums.items()}
    return {"validation": sum(weights[term] * means[term] for term in weights), **means}


def save(job: Job, folder: Path, step: int) -> None:
    """A checkpoint of the run at a step."""
    index, inner = locate(job.phases, step)
    facts = {"phase": index + 1, "phase_step": inner, "phases": len(job.phases) + job.phases_before,
             "tokenizer": job.tokenizer.fingerprint, "torch": torch.__version__, "threads": torch.get_num_threads(),
             "device": job.ranks.device.type}  # fmt: skip
    checkpoint.save(folder / "checkpoints", step, job.objective, job.optimizer, job.recipe.keep, **facts)


def precision(job: Job) -> Any:
    """The context in which forward passes are made."""
    if job.recipe.layout.precision == "bf16":
        return torch.autocast(job.ranks.device.type, torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Callable[[], int]]:
    """SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C ask the loop to save and stop; a second one stops at once."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(number)
        say(f"{signal.Signals(number).name}: the step is finished, then the run is saved (again: stops at once)")

    names = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = {name: signal.signal(name, hear) for name in names}
    try:
        yield lambda: heard[0] if heard else 0
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _judge(job: Job, index: int, meters: Meters, step: int) -> None:
    rows = job.validation(index)
    if rows is None:
        return
    found = judge(job, rows, min(job.recipe.validation_rows, len(rows)))
    meters.note({"step": step, "phase": index + 1, **found})
    right = ", ".join(
        f"{name.removesuffix('_right')} {v:.1%} right" for name, v in found.items() if name.endswith("_right")
    )
    say(f"step {step}: validation loss {found['validation']:.4f} ({right})")


def _tell(shown: Progress, line: dict[str, Any], step: int) -> None:
    note = (f"loss {line['mean']:.4f}  rate {line['rate']:.2e}  {line['tokens_per_second']:,.0f} tokens/s"
            f"  {line['share_of_peak']:.0%} of peak")  # fmt: skip
    shown.add(step - shown.done, note)

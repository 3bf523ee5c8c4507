"""The results of a finished run, or the advice for a failed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ordsmed.base import files, settings, snapshots
from ordsmed.base.errors import OrdsmedError, Trouble
from ordsmed.base.ranks import on_rank0
from ordsmed.base.say import many
from ordsmed.learn.phases import total
from ordsmed.train import callbacks as hooks
from ordsmed.train import checkpoint
from ordsmed.train.guard import MIN_TRAINED, REMEDY, count_skipped, remedy
from ordsmed.train.job import Job
from ordsmed.train.plan import Plan
from ordsmed.weights import weights


def finish_run(plan: Plan, job: Job, folder: Path) -> dict[str, Any]:
    def leave() -> dict[str, Any]:
        facts = plan.finish(job, folder)
        hooks.call(plan.callbacks, "finished", folder)
        return facts

    _check_learned(job, folder)
    return on_rank0(job.ranks, leave)


def _check_learned(job: Job, folder: Path) -> None:
    steps = total(job.phases)
    count = count_skipped(job.state.left_out)
    if count > (1 - MIN_TRAINED) * steps:
        problem = f"{count:,} of {many(steps, 'step')} were skipped, the last for {job.state.left_out[-1]['why']}"
        raise Trouble(folder, problem, "at least half of the steps trained", REMEDY)


def leave_weights(job: Job, out: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write weights with their settings and tokenizer to `out`.

    Unchanged files are not written again, because other programs compare their modification times.
    """
    out.mkdir(exist_ok=True)
    if not _holds(out / "model.safetensors", tensors):
        weights.write(out / "model.safetensors", tensors)
        job.tokenizer.save(out / "tokenizer")
    text = settings.write({"model": job.objective.model_settings, **job.recipe.learned()})
    if not (path := out / "settings.toml").is_file() or path.read_text(encoding="utf-8") != text:
        files.write_text(path, text)


def _holds(path: Path, tensors: dict[str, torch.Tensor]) -> bool:
    try:
        return path.with_name("tokenizer").is_dir() and weights.digest(weights.read(path)) == weights.digest(tensors)
    except OrdsmedError:
        return False


def with_remedy(error: Trouble, job: Job, folder: Path) -> Trouble:
    def advice() -> str:
        whole = [
            step
            for step in checkpoint.steps(folder / "checkpoints")
            if not snapshots.is_stripped(snapshots.path_of(folder / "checkpoints", step))
        ]
        return remedy(folder, job.recipe.verb, job.recipe.trouble, whole[-1] if whole else None)

    return Trouble(error.place, error.found, error.wanted, on_rank0(job.ranks, advice))

"""Helpers of all step measurements: the clock, date and versions, and totals over all processes."""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING, Any

from ordsmed.base import settings
from ordsmed.base.identity import identity
from ordsmed.base.machine.devices import name_of
from ordsmed.base.measurements import Measurement

if TYPE_CHECKING:
    import torch

    from ordsmed.base.ranks import Ranks
    from ordsmed.train.job import Job

WARM = 2  # warm-up steps before the measurement


def now(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def with_dropout(model: Any, rate: float | None) -> Any:
    """Return a network's settings with this rate in all settings of dropout; None leaves them unchanged."""
    known = [name for name in ("dropout", "attention_dropout") if rate is not None and hasattr(model, name)]
    return dataclasses.replace(model, **dict.fromkeys(known, rate))


def versions() -> dict[str, Any]:
    import torch

    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"date": moment, "version": str(identity()), "torch": torch.__version__}


def measurement_of(
    job: Job,
    seconds: tuple[float, float, float],
    *,
    batch: int,
    tokens: float,
    flops: float,
    peak: float,
    **fields: Any,
) -> Measurement:
    """Return the measurement of steps that took these seconds: the median, the least and the most.

    `tokens` and `flops` are those of a step; `fields` are those that depend on what was measured.
    """
    ranks, layout, model = job.ranks, job.recipe.layout, job.recipe.model
    median, least, most = seconds
    return Measurement(
        bench="",
        family=settings.plain(model)["kind"],
        width=model.width,
        layers=model.layers,
        parameters=sum(p.numel() for p in job.objective.parameters()),
        vocabulary=job.tokenizer.vocabulary,
        batch=batch,
        precision=layout.precision,
        compile=layout.compile,
        recompute=layout.recompute,
        layout="x".join(map(str, ranks.shape)),
        device=name_of(ranks.device),
        kind=ranks.device.type,
        processes=ranks.world,
        threads=ranks.threads,
        step_seconds=median,
        step_seconds_least=least,
        step_seconds_most=most,
        sequences_per_second=batch / median,
        tokens_per_second=tokens / median,
        flops_per_second=flops / median,
        peak=peak,
        share_of_peak=flops / median / peak if peak else 0.0,
        **versions(),
        **fields,
    )


def over_processes(ranks: Ranks, memory: int, joules: float) -> tuple[int, float]:
    """Return the largest memory of any process, and the energy of all GPUs, or of the processors of all machines."""
    import torch

    if ranks.device.type == "cpu" and ranks.process.local:
        joules = 0.0
    if ranks.world == 1:
        return memory, joules
    largest, total = torch.tensor(float(memory), dtype=torch.float64), torch.tensor(joules, dtype=torch.float64)
    if ranks.device.type == "cuda":
        largest, total = largest.to(ranks.device), total.to(ranks.device)
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
    torch.distributed.all_reduce(total)
    return int(largest), float(total)

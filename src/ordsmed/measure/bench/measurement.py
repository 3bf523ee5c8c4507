"""Helpers of all step measurements: the clock, date and versions, and totals over all processes."""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING, Any

from ordsmed.base.identity import identity

if TYPE_CHECKING:
    import torch

    from ordsmed.base.ranks import Ranks

WARM = 2  # warm-up steps before the measurement


def now(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def with_dropout(model: Any, rate: float | None) -> Any:
    """Return a network's settings with this dropout everywhere; None leaves them unchanged."""
    known = [name for name in ("dropout", "attention_dropout") if rate is not None and hasattr(model, name)]
    return dataclasses.replace(model, **dict.fromkeys(known, rate))


def here() -> dict[str, Any]:
    import torch

    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"date": moment, "version": str(identity()), "torch": torch.__version__}


def of_all(ranks: Ranks, memory: int, joules: float) -> tuple[int, float]:
    """Return the largest memory of any process, and the energy of all GPUs, or of the processors of all machines."""
    import torch

    if ranks.device.type == "cpu" and ranks.process.local:
        joules = 0.0
    if ranks.world == 1:
        return memory, joules
    most, total = torch.tensor(float(memory), dtype=torch.float64), torch.tensor(joules, dtype=torch.float64)
    if ranks.device.type == "cuda":
        most, total = most.to(ranks.device), total.to(ranks.device)
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
    torch.distributed.all_reduce(total)
    return int(most), float(total)

"""What all measurements of steps share: the clock, when and with what, what all processes held and took."""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING, Any

from ordsmed.base.identity import identity

if TYPE_CHECKING:
    import torch

    from ordsmed.base.ranks import Ranks

WARM = 2  # steps before the clock is read


def now(device: torch.device) -> float:
    """The clock, when the device has done what it was told."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def with_dropout(model: Any, rate: float | None) -> Any:
    """A network's settings with this dropout everywhere; None: with its own."""
    known = [name for name in ("dropout", "attention_dropout") if rate is not None and hasattr(model, name)]
    return dataclasses.replace(model, **dict.fromkeys(known, rate))


def here() -> dict[str, Any]:
    import torch

    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"date": moment, "version": str(identity()), "torch": torch.__version__}


def of_all(ranks: Ranks, memory: int, joules: float) -> tuple[int, float]:
    """The most that any process held, and the energy of all: of a GPU each, of processors a machine."""
    import torch

    if ranks.device.type == "cpu" and ranks.place.local:
        joules = 0.0
    if ranks.world == 1:
        return memory, joules
    most, total = torch.tensor(float(memory), dtype=torch.float64), torch.tensor(joules, dtype=torch.float64)
    if ranks.device.type == "cuda":
        most, total = most.to(ranks.device), total.to(ranks.device)
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
    torch.distributed.all_reduce(total)
    return int(most), float(total)

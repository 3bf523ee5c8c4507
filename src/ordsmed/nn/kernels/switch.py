"""Which kernels of ours run: those that every rank's GPU can build and that give there what the plain form gives.

Each is tried at the start on a few numbers of the run's own types and widths. What cannot run, on one rank or on all,
is told with its reason, and the plain form runs on all: a layer that ranks share must drop alike on all of them.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch
from torch import distributed as dist

from ordsmed.base.ranks import Ranks
from ordsmed.nn.kernels.trial import Shapes, exact_products

KERNELS = ("cross_entropy", "gelu", "residual_norm", "lstm", "adaptive_step", "proportional_step")
DEVICES = ("cuda",)  # as torch names them, AMD's as well
OLDEST = (8, 0)  # of NVIDIA's: before it Triton has no bf16

_running: set[str] = set()


def runs(kernel: str, device: torch.device) -> bool:
    """Is this kernel taken on this device?"""
    return kernel in _running and device.type in DEVICES


def begin(choice: str, device: torch.device, shapes: Shapes | None = None, ranks: Ranks | None = None) -> str:
    """Switch kernels for what follows, alike on all ranks; which run, or why none does, in a line (empty on a CPU)."""
    _running.clear()
    if device.type not in DEVICES:
        return ""
    if choice == "plain":
        return "kernels: torch's (the recipe asks for it)"
    refused = _on_all_ranks(_refusals(device, shapes or Shapes()), ranks or Ranks(device))
    _running.update(kernel for kernel in KERNELS if kernel not in refused)
    return _line(refused)


def _refusals(device: torch.device, shapes: Shapes) -> dict[str, str]:
    """Kernels that do not run here, and why."""
    if reason := _missing(device):
        return dict.fromkeys(KERNELS, reason)
    with exact_products():
        return {kernel: reason for kernel in KERNELS if (reason := _refused(kernel, device, shapes))}


def _missing(device: torch.device) -> str:
    """What is missing on this machine for any of them."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; `pip install triton` makes ours possible"
    if device.type == "cuda" and torch.version.hip is None:
        arch = torch.cuda.get_device_capability(device)
        if arch < OLDEST:
            return f"{torch.cuda.get_device_name(device)} has architecture {arch[0]}.{arch[1]}; ours need 8.0 or later"
    return ""


def _refused(kernel: str, device: torch.device, shapes: Shapes) -> str:
    """Why a kernel does not run here, after it was tried; empty where it does."""
    try:
        differs: str = importlib.import_module(f"ordsmed.nn.kernels.{kernel}").check(device, shapes)
    except Exception as error:  # of a compiler, a driver, a version of Triton: whatever it is, the plain form runs
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
    return differs


def _on_all_ranks(refused: dict[str, str], ranks: Ranks) -> dict[str, str]:
    """What any rank refuses, with the reason of one that does."""
    if ranks.world == 1:
        return refused
    for kernel, reason in refused.items():
        ranks.store.set(f"refused/{kernel}", f"rank {ranks.rank}: {reason}")
    runs = torch.tensor([kernel not in refused for kernel in KERNELS], dtype=torch.int32, device=ranks.device)
    dist.all_reduce(runs, op=dist.ReduceOp.MIN)
    left = [kernel for kernel, everywhere in zip(KERNELS, runs.tolist(), strict=True) if not everywhere]
    return {kernel: refused.get(kernel) or ranks.store.get(f"refused/{kernel}").decode() for kernel in left}


def _line(refused: dict[str, str]) -> str:
    """Whose kernels run, in a line."""
    if len(refused) == len(KERNELS) and len(set(refused.values())) == 1:
        return f"kernels: torch's ({next(iter(refused.values()))})"
    left = "; ".join(f"not for {_spoken(kernel)}: {reason}" for kernel, reason in refused.items())
    if len(refused) == len(KERNELS):
        return f"kernels: torch's ({left})"
    running = ", ".join(_spoken(kernel) for kernel in KERNELS if kernel not in refused)
    return f"kernels: ours for {running}{f' ({left})' if left else ''}"


def _spoken(kernel: str) -> str:
    return kernel.replace("_", " ")

"""Choice of kernels: a kernel is used if every rank's GPU can build it and it agrees with the plain version.

Each kernel is tried at the start with the data types and sizes of the run. If it fails on any rank, the reason is
printed, and the plain version runs on all ranks: ranks that share a layer must draw the same dropout mask.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch
from torch import distributed as dist

from ordsmed.base.ranks import Ranks
from ordsmed.nn.kernels.trial import Shapes, exact_products

KERNELS = ("cross_entropy", "gelu", "residual_norm", "lstm", "adaptive_step", "proportional_step")
DEVICES = ("cuda",)  # torch's names; AMD's GPUs are "cuda" too
OLDEST = (8, 0)  # NVIDIA architecture; Triton has no bf16 on older ones

_running: set[str] = set()


def runs(kernel: str, device: torch.device) -> bool:
    return kernel in _running and device.type in DEVICES


def begin(choice: str, device: torch.device, shapes: Shapes | None = None, ranks: Ranks | None = None) -> str:
    """Switch kernels on, equally on all ranks, and return a line that says which run or why not; empty on a CPU."""
    _running.clear()
    if device.type not in DEVICES:
        return ""
    if choice == "plain":
        return "kernels: torch's (set in the recipe)"
    refused = _on_all_ranks(_refusals(device, shapes or Shapes()), ranks or Ranks(device))
    _running.update(kernel for kernel in KERNELS if kernel not in refused)
    return _line(refused)


def _refusals(device: torch.device, shapes: Shapes) -> dict[str, str]:
    if reason := _missing(device):
        return dict.fromkeys(KERNELS, reason)
    with exact_products():
        return {kernel: reason for kernel in KERNELS if (reason := _refused(kernel, device, shapes))}


def _missing(device: torch.device) -> str:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; `pip install triton` enables the project's kernels"
    if device.type == "cuda" and torch.version.hip is None:
        arch = torch.cuda.get_device_capability(device)
        if arch < OLDEST:
            return f"{torch.cuda.get_device_name(device)} has architecture {arch[0]}.{arch[1]}; wanted 8.0 or later"
    return ""


def _refused(kernel: str, device: torch.device, shapes: Shapes) -> str:
    try:
        differs: str = importlib.import_module(f"ordsmed.nn.kernels.{kernel}").check(device, shapes)
    except Exception as error:  # after any error of compiler, driver or Triton the plain version runs
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
    return differs


def _on_all_ranks(refused: dict[str, str], ranks: Ranks) -> dict[str, str]:
    """Return the kernels that any rank refuses, with one of the reasons."""
    if ranks.world == 1:
        return refused
    for kernel, reason in refused.items():
        ranks.store.set(f"refused/{kernel}", f"rank {ranks.rank}: {reason}")
    runs = torch.tensor([kernel not in refused for kernel in KERNELS], dtype=torch.int32, device=ranks.device)
    dist.all_reduce(runs, op=dist.ReduceOp.MIN)
    left = [kernel for kernel, everywhere in zip(KERNELS, runs.tolist(), strict=True) if not everywhere]
    return {kernel: refused.get(kernel) or ranks.store.get(f"refused/{kernel}").decode() for kernel in left}


def _line(refused: dict[str, str]) -> str:
    if len(refused) == len(KERNELS) and len(set(refused.values())) == 1:
        return f"kernels: torch's ({next(iter(refused.values()))})"
    left = "; ".join(f"not for {_in_words(kernel)}: {reason}" for kernel, reason in refused.items())
    if len(refused) == len(KERNELS):
        return f"kernels: torch's ({left})"
    running = ", ".join(_in_words(kernel) for kernel in KERNELS if kernel not in refused)
    return f"kernels: the project's for {running}{f' ({left})' if left else ''}"


def _in_words(kernel: str) -> str:
    return kernel.replace("_", " ")

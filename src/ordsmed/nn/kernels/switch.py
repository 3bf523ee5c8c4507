"""Which kernels of ours run: those that a GPU can build and that give there what the plain form gives.

Each is tried once at the start on a few numbers. What cannot run is told with its reason, and the plain form runs.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch

KERNELS = ("cross_entropy", "gelu", "residual_norm", "lstm", "adaptive_step", "proportional_step")
DEVICES = ("cuda",)  # as torch names them, AMD's as well
OLDEST = (8, 0)  # of NVIDIA's: before it Triton has no bf16

_running: set[str] = set()


def runs(kernel: str, device: torch.device) -> bool:
    """Is this kernel taken on this device?"""
    return kernel in _running and device.type in DEVICES


def begin(choice: str, device: torch.device) -> str:
    """Switch kernels for what follows; returns which run, or why none does, in a line (empty on a CPU)."""
    _running.clear()
    if device.type not in DEVICES:
        return ""
    if choice == "plain":
        return "kernels: torch's (the recipe asks for it)"
    why = _lacks(device)
    if why:
        return f"kernels: torch's ({why})"
    refused = {kernel: why for kernel in KERNELS if (why := _refused(kernel, device))}
    _running.update(kernel for kernel in KERNELS if kernel not in refused)
    left = "; ".join(f"not for {_spoken(kernel)}: {why}" for kernel, why in refused.items())
    if not _running:
        return f"kernels: torch's ({left})"
    ours = ", ".join(_spoken(kernel) for kernel in KERNELS if kernel in _running)
    return f"kernels: ours for {ours}{f' ({left})' if left else ''}"


def _lacks(device: torch.device) -> str:
    """What this machine lacks for any of them."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; `pip install triton` makes ours possible"
    if device.type == "cuda" and torch.version.hip is None:
        arch = torch.cuda.get_device_capability(device)
        if arch < OLDEST:
            return f"{torch.cuda.get_device_name(device)} has architecture {arch[0]}.{arch[1]}; ours need 8.0 or later"
    return ""


def _refused(kernel: str, device: torch.device) -> str:
    """Why a kernel does not run here, after it was tried; empty where it does."""
    try:
        differs: str = importlib.import_module(f"ordsmed.nn.kernels.{kernel}").check(device)
    except Exception as error:  # of a compiler, a driver, a version of Triton: whatever it is, the plain form runs
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
    return differs


def _spoken(kernel: str) -> str:
    return kernel.replace("_", " ")

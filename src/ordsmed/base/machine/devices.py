"""Choose the device of a process, a GPU or the CPU, and check that torch has code for it."""

from __future__ import annotations

import functools
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import host
from ordsmed.base.say import many, say

if TYPE_CHECKING:
    import torch

DEVICES = r"auto|cpu|cuda(:\d+)?"
VENDORS = {"NVIDIA": ("dev/nvidia0", "proc/driver/nvidia/version"), "AMD": ("dev/kfd",)}  # files of the drivers
# environment variables that configure torch's allocator
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


@dataclass(frozen=True)
class Accelerator:
    """The properties of a GPU by which kernels and precisions are chosen. The GPU may be that of a planned job."""

    name: str
    capability: tuple[int, int]  # as torch reports it; of AMD's GPUs the first two digits of gfx90a
    amd: bool = False


def card_of(device: torch.device) -> Accelerator | None:
    """Return the properties of a GPU of this machine; None for a CPU, or if torch sees no GPU."""
    import torch

    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
    return Accelerator(name, capability, torch.version.hip is not None)


def has_tf32(arch: tuple[int, int]) -> bool:
    """Return whether a GPU has TF32 (NVIDIA since Ampere); AMD GPUs of such versions would silently use fp32."""
    import torch

    return arch >= (8, 0) and torch.version.hip is None


def lacks_fp8(device: torch.device, card: Accelerator | None = None) -> str:
    """Return why the device, or the GPU `card` of a planned job, cannot multiply in 8 bits; empty if it can."""
    card = (card or card_of(device)) if device.type == "cuda" else None
    if card and card.amd:
        return "was not tested on AMD GPUs, which have other 8-bit formats"
    if card and card.capability < (8, 9):
        return f"{card.name} has no units for; Ada, Hopper and later have"
    return ""


def device_of(
    requested: str, local: int = 0, local_world: int = 1, world: int = 1, place: str = "layout.device"
) -> str:
    """Return the device of a process, such as cuda:1. With "auto" and "cuda", each process gets one GPU."""
    import torch

    if not re.fullmatch(DEVICES, requested):
        raise RecipeError(place, f"found {requested}", "auto, cpu or cuda")
    available = torch.cuda.is_available()
    hidden = "CUDA_VISIBLE_DEVICES" in os.environ and not os.environ["CUDA_VISIBLE_DEVICES"].strip()
    if requested == "cpu" or (requested == "auto" and not available):
        if requested == "auto" and not hidden:
            _warn_of_unused_gpus(place)
        return "cpu"
    if not available:
        reason = "which CUDA_VISIBLE_DEVICES hides" if hidden else "but torch sees no GPU"
        raise RecipeError(place, f"found {requested}, {reason}", "", "name `cpu` or `auto`")
    count = torch.cuda.device_count()
    if ":" in requested:
        number = int(requested.partition(":")[2])
        if world > 1:
            problem = f"found {requested} for {many(world, 'process')}"
            raise RecipeError(place, problem, "cuda, which gives each process its own GPU")
        if number >= count:
            raise RecipeError(place, f"found {requested}", f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0")
        return _checked_gpu(number, place)
    only_one = world > 1 and "SLURM_STEP_NUM_TASKS" in os.environ and count == 1  # srun --gpus-per-task
    if local_world > count and not only_one:
        problem = f"found {many(local_world, 'process')} on {socket.gethostname()}"
        raise RecipeError("--devices", problem, f"at most its {count} GPU{'s' if count > 1 else ''}")
    return _checked_gpu(0 if only_one else local, place)


@functools.cache
def _warn_of_unused_gpus(location: str) -> None:
    """Warn about GPUs that torch does not see, because of an old driver or a torch build without them."""
    import torch

    if (maker := gpus_of(Path("/"))) != "none":
        problem = f"torch {torch.__version__} does not see the {maker} GPUs of this machine"
        say(f"{location}: using the CPU, because {problem}; `ordsmed doctor` says why")


def _checked_gpu(number: int, location: str) -> str:
    """Return the device name of a GPU. Raise an error if torch was built without code for it."""
    import torch

    codes = tuple(torch.cuda.get_arch_list())
    if codes:
        gpu = torch.cuda.get_device_properties(number)
        code = getattr(gpu, "gcnArchName", "").partition(":")[0] if torch.version.hip else ""
        code = code or f"{gpu.major}.{gpu.minor}"
        if not has_code(code, codes):
            problem = f"found {gpu.name} ({code}), for which torch {torch.__version__} has no code"
            raise RecipeError(location, problem, f"one of {' '.join(codes)}", "name `cpu`; `ordsmed doctor` says more")
    return f"cuda:{number}"


def has_code(capability: str, codes: tuple[str, ...]) -> bool:
    """Return whether code for the architectures `codes` runs on a GPU.

    It runs if it is for the GPU's architecture or an earlier one of its generation, or can be compiled at run time.
    """
    if capability.startswith("gfx"):
        return capability in codes
    major, _, minor = capability.partition(".")
    version = (int(major), int(minor or 0))
    for code in codes:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", code)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        same_generation = match[1] == "compute" or built[0] == version[0]
        if built == version or (not match[4] and built <= version and same_generation):
            return True
    return False


def gpus_of(root: Path) -> str:
    """Return the vendor of the GPUs of which the system has a driver, or "none". torch may not be able to use them."""
    return next((vendor for vendor, paths in VENDORS.items() if any((root / path).exists() for path in paths)), "none")


def use_expandable_segments() -> None:
    """Let torch's allocator grow memory segments, because batches differ in size. Call it before CUDA is initialized.

    Settings of the user take precedence, and ROCm has no such feature. The older variable is set, because torch 2.9
    does not read this setting from the newer one.
    """
    import torch

    if torch.version.hip is None and not any(name in os.environ for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = "expandable_segments:True"


def name_of(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else host.processor()

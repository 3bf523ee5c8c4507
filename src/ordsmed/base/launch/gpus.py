"""Properties of GPU models: speed, precisions, and the PyTorch wheels that support them."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from ordsmed.base.machine.devices import Accelerator

SLICE = re.compile(r"([1-7])g\.(\d+)gb")  # a MIG slice: sevenths of the compute units, GB of memory
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True)
class Gpu:
    """A GPU model with the numbers that its vendor states, for dense products without sparsity."""

    capability: str  # CUDA capability (8.0), or AMD architecture (gfx90a)
    memory: float  # GiB
    teraflops: float  # of products in `precision`
    single: float  # teraflops of products in fp32
    watts: int
    precision: Literal["bf16", "fp16", "fp32"]
    tensor_cores: bool = True

    @property
    def amd(self) -> bool:
        return self.capability.startswith("gfx")

    def card(self, name: str) -> Accelerator:
        major, minor = re.findall(r"[\da-f]", self.capability.removeprefix("gfx"))[:2]
        return Accelerator(name, (int(major), int(minor)), self.amd)

    def peak(self, precision: str) -> float:
        if precision == "fp32":
            return self.single * 1e12
        return self.teraflops * (0.5 if precision == "tf32" else 1.0) * 1e12

    def has_units(self, precision: str) -> bool:
        """Return whether it has units that only compute products in this precision.

        Other operations do not benefit from them.
        """
        return self.tensor_cores and precision != "fp32"

    @property
    def able(self) -> tuple[str, ...]:
        if self.precision != "bf16":
            return ("fp32", "fp16")
        return ("fp32", "bf16", "fp16") if self.amd else PRECISIONS

    @property
    def wheels(self) -> str:
        if self.amd:
            return "rocm"
        return "cu126" if float(self.capability) < 7.5 else "cu126 or newer"  # CUDA 13 needs Turing or newer


GPUS = {
    "P100": Gpu("6.0", 16, 10.6, 10.6, 300, "fp32", tensor_cores=False),
    "V100": Gpu("7.0", 16, 125, 15.7, 300, "fp16"),
    "V100-32": Gpu("7.0", 32, 125, 15.7, 300, "fp16"),
    "T4": Gpu("7.5", 16, 65, 8.1, 70, "fp16"),
    "A40": Gpu("8.6", 48, 150, 37.4, 300, "bf16"),
    "A100": Gpu("8.0", 40, 312, 19.5, 400, "bf16"),
    "A100-80": Gpu("8.0", 80, 312, 19.5, 400, "bf16"),
    "L40S": Gpu("8.9", 48, 362, 91.6, 350, "bf16"),
    "H100": Gpu("9.0", 80, 989, 67, 700, "bf16"),
    "H200": Gpu("9.0", 141, 989, 67, 700, "bf16"),
    "GH200": Gpu("9.0", 96, 989, 67, 900, "bf16"),  # watts include its 72 CPU cores
    "MI210": Gpu("gfx90a", 64, 181, 45.3, 300, "bf16"),
    "MI250X": Gpu("gfx90a", 64, 191, 47.9, 280, "bf16"),  # one of its two dies, each of which counts as a GPU
    "MI300A": Gpu("gfx942", 128, 980, 122.6, 550, "bf16"),
}


def sliced(gpu: Gpu, slice_: str) -> Gpu:
    """Return the properties of a MIG slice such as 3g.20gb: sevenths of compute and power, and its own memory."""
    sevenths, memory = map(int, SLICE.findall(slice_)[0])
    share = sevenths / 7
    return replace(
        gpu, memory=memory, teraflops=gpu.teraflops * share, single=gpu.single * share, watts=round(gpu.watts * share)
    )


def named(device: str) -> str:
    """Return the model for torch's name of a device, such as `NVIDIA A100-SXM4-80GB`; empty if it is unknown.

    For a MIG slice (`... MIG 3g.20gb`), return the model and the slice.
    """
    whole, _, part = device.upper().partition(" MIG ")
    words = set(re.findall(r"[A-Z]*\d+[A-Z]*", whole.replace("GB", " ")))
    fitting = [name for name in GPUS if set(name.split("-")) <= words]
    name = max(fitting, key=len, default="")
    return f"{name} MIG {part.lower()}" if name and part else name


def known(device: str) -> Gpu | None:
    """Return the properties of a GPU or MIG slice by torch's name of the device; None if it is unknown."""
    name, _, part = named(device).partition(" MIG ")
    gpu, is_slice = GPUS.get(name), SLICE.match(part)
    return sliced(gpu, is_slice[0]) if gpu and is_slice else gpu

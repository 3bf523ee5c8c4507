"""GPUs by name: what each can compute, in which precision it should, and which wheels of PyTorch run on it."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from ordsmed.base.machine.devices import Accelerator

SLICE = re.compile(r"([1-7])g\.(\d+)gb")  # a MIG slice, as NVIDIA writes it: sevenths of the units, GB of memory
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True)
class Gpu:
    """One model, as its maker states it; dense products, without sparsity."""

    capability: str  # of CUDA (8.0), or the name of AMD's architecture (gfx90a)
    memory: float  # GiB
    teraflops: float  # products in the precision below
    single: float  # teraflops of products in fp32
    watts: int
    precision: Literal["bf16", "fp16", "fp32"]
    tensor_cores: bool = True

    @property
    def amd(self) -> bool:
        return self.capability.startswith("gfx")

    def card(self, name: str) -> Accelerator:
        """Return what kernels and precisions ask of it."""
        major, minor = re.findall(r"[\da-f]", self.capability.removeprefix("gfx"))[:2]
        return Accelerator(name, (int(major), int(minor)), self.amd)

    def peak(self, precision: str) -> float:
        """FLOP/s of products, as its maker states it."""
        if precision == "fp32":
            return self.single * 1e12
        return self.teraflops * (0.5 if precision == "tf32" else 1.0) * 1e12

    def has_units(self, precision: str) -> bool:
        """Are there units for products alone, which other arithmetic cannot keep busy?"""
        return self.tensor_cores and precision != "fp32"

    @property
    def able(self) -> tuple[str, ...]:
        """The precisions it has units for."""
        if self.precision != "bf16":
            return ("fp32", "fp16")
        return ("fp32", "bf16", "fp16") if self.amd else PRECISIONS

    @property
    def wheels(self) -> str:
        """Which builds of PyTorch hold code for it."""
        if self.amd:
            return "rocm"
        return "cu126" if float(self.capability) < 7.5 else "cu126 or newer"  # CUDA 13 left out all before Turing


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
    "GH200": Gpu("9.0", 96, 989, 67, 900, "bf16"),  # watts with its 72 cores
    "MI210": Gpu("gfx90a", 64, 181, 45.3, 300, "bf16"),
    "MI250X": Gpu("gfx90a", 64, 191, 47.9, 280, "bf16"),  # one of its two halves, which count as GPUs each
    "MI300A": Gpu("gfx942", 128, 980, 122.6, 550, "bf16"),
}


def sliced(gpu: Gpu, slice_: str) -> Gpu:
    """A MIG slice of a GPU, 3g.20gb: so many sevenths of what it computes and draws, and that memory."""
    sevenths, memory = map(int, SLICE.findall(slice_)[0])
    share = sevenths / 7
    return replace(
        gpu, memory=memory, teraflops=gpu.teraflops * share, single=gpu.single * share, watts=round(gpu.watts * share)
    )


def named(device: str) -> str:
    """The model that torch calls `NVIDIA A100-SXM4-80GB`, by the words of its name; empty: none that is known.

    Of a MIG slice (`... MIG 3g.20gb`) the model and the slice: it is not the whole.
    """
    whole, _, part = device.upper().partition(" MIG ")
    words = set(re.findall(r"[A-Z]*\d+[A-Z]*", whole.replace("GB", " ")))
    fitting = [name for name in GPUS if set(name.split("-")) <= words]
    name = max(fitting, key=len, default="")
    return f"{name} MIG {part.lower()}" if name and part else name


def known(device: str) -> Gpu | None:
    """What the model, or the MIG slice of it, can do that torch calls so."""
    name, _, part = named(device).partition(" MIG ")
    gpu, is_slice = GPUS.get(name), SLICE.match(part)
    return sliced(gpu, is_slice[0]) if gpu and is_slice else gpu

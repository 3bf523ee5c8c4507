"""Our kernels built ahead of time for GPUs that are not here: registers, spills and seconds of each.

python tests/measure/kernels_ahead.py [TARGET...]    TARGET: sm_80, sm_90, gfx90a... (these three); needs triton alone
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ordsmed.nn.kernels import switch

POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
    torch.uint8: "*u8",
}


def launches(kernel: str) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """What its examples launch, none of it run."""
    made: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    before = triton.JITFunction.run
    triton.JITFunction.run = lambda self, *args, grid, warmup, **how: made.append((self, args, how))
    try:
        importlib.import_module(f"ordsmed.nn.kernels.{kernel}").examples(torch.device("cpu"))
    finally:
        triton.JITFunction.run = before
    return made


def source(function: Any, args: tuple[Any, ...], how: dict[str, Any]) -> tuple[ASTSource, dict[str, Any]]:
    """A kernel as these arguments have it: aligned pointers and even numbers are known as such, as at a launch."""
    named = dict(zip(function.arg_names, args, strict=False)) | {
        k: v for k, v in how.items() if k in function.arg_names
    }
    signature, constants, attributes = {}, {}, {}
    for place, param in enumerate(function.params):
        value = named.get(param.name, param.default)
        if param.is_constexpr or value is None:
            signature[param.name], constants[(place,)] = "constexpr", value
            continue
        signature[param.name] = _kind(value)
        even = isinstance(value, int) and value % 16 == 0 and not param.do_not_specialize
        if isinstance(value, torch.Tensor) or even:
            attributes[(place,)] = [["tt.divisibility", 16]]
    options = {name: value for name, value in how.items() if name in ("num_warps", "num_stages")}
    return ASTSource(function, signature, constants, attributes), options


def _kind(value: Any) -> str:
    """An argument's type, as Triton sees it."""
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32" if -(2**31) <= value < 2**31 else "i64"


def target(name: str) -> GPUTarget:
    return GPUTarget("hip", name, 64) if name.startswith("gfx") else GPUTarget("cuda", int(name[3:]), 32)


def used(built: Any, name: str) -> str:
    """Registers a thread and bytes spilled, as the assembler says."""
    if "ptx" not in built.asm:
        found = {
            key: re.search(rf"\.{key}:\s+(\d+)", built.asm["amdgcn"]) for key in ("vgpr_count", "vgpr_spill_count")
        }
        registers, spilled = (match[1] if match else "?" for match in found.values())
        return f"{registers:>3} registers, {spilled} spilled"
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    arch = re.search(r"\.target (\S+?)[,\s]", built.asm["ptx"])[1]  # type: ignore[index]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(built.asm["ptx"])
        file.flush()
        words = [str(ptxas), "-v", f"-arch={arch}", file.name, "-o", "/dev/null"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    return f"{registers[1]:>3} registers, {spilled[1]} bytes spilled"  # type: ignore[index]


def main() -> None:
    print(f"triton {triton.__version__}")
    targets = sys.argv[1:] or ["sm_80", "sm_90", "gfx90a"]
    for kernel in switch.KERNELS:
        built_before = set()
        for function, args, how in launches(kernel):
            made, options = source(function, args, how)
            if made.hash() in built_before:
                continue
            built_before.add(made.hash())
            kinds = " ".join(kind.strip("*") for kind in dict.fromkeys(made.signature.values()) if kind[0] == "*")
            for name in targets:
                began = time.perf_counter()
                built = triton.compile(made, target=target(name), options=options)
                shared = f"{built.metadata.shared:6,} B shared"
                spent = time.perf_counter() - began
                line = f"{kernel:17s} {function.__name__:18s} {kinds:20s} {name:7s} {used(built, name)}, {shared}"
                print(f"{line}, {spent:.1f} s", flush=True)


if __name__ == "__main__":
    main()

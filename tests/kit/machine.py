"""What is kept of this machine's speed, where tests look for it."""

from __future__ import annotations

import platform
import runpy
from importlib.util import find_spec
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.machine import host, speed

THREADS = 16  # at most, of a process that a test starts
SPEED = 1e11


def no_gain_by_16_bits() -> None:
    """Keep that products in 16 bits are as fast as in fp32: `layout.precision = "auto"` takes fp32 then, unmeasured.

    As `base.machine.speed` keeps it; test_fastest.py holds that it finds this.
    """
    torch = find_spec("torch")  # its metadata name no build, as in 2.7.1+cpu; importing it takes a second
    assert torch is not None
    assert torch.origin is not None
    version = runpy.run_path(str(Path(torch.origin).with_name("version.py")))["__version__"]
    path, here = speed._cache(), f"{platform.node()} | {host.processor()}"
    measured = ("fp32", "fp32 by oneDNN", "bf16", "fp16")
    keys = (f"{here}, {threads} | {each} | torch {version}" for threads in range(1, THREADS + 1) for each in measured)
    known, kept = speed._read_cache(), dict.fromkeys(keys, SPEED)
    if {**known, **kept} != known:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {**known, **kept})

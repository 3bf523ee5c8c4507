"""Kernels are built for GPUs that are not here: the interpreter lets things pass that Triton's compiler refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ordsmed.nn.kernels import switch

SCRIPT = Path(__file__).parents[2] / "measure" / "kernels_ahead.py"


@pytest.mark.long
def test_every_kernel_builds_and_spills_nothing(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = [str(SCRIPT.parents[2] / "src"), env.get("PYTHONPATH", "")]
    env |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, str(SCRIPT), "sm_90"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(re.search(rf"^{kernel} .* 0 bytes spilled", done.stdout, re.MULTILINE) for kernel in switch.KERNELS)
    assert not re.search(r"[1-9]\d* bytes spilled", done.stdout), done.stdout

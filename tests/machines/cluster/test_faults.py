"""Faults of a cluster on a real Slurm whose nodes are on this machine: what was lost goes on to the same last bit.

Skipped where there is no Slurm with two idle nodes here. More ways and more moments: tests/measure/slurm.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SPEC = importlib.util.spec_from_file_location("slurm_faults", Path(__file__).parents[2] / "measure/slurm.py")
assert SPEC
assert SPEC.loader
faults: Any = importlib.util.module_from_spec(SPEC)
sys.modules["slurm_faults"] = faults
SPEC.loader.exec_module(faults)

STEPS = 40
pytestmark = pytest.mark.long


def partition() -> str:
    """The usual one of a Slurm that has two idle nodes, and those on this machine; empty: there is none."""
    if not shutil.which("sbatch"):
        return ""
    idle = subprocess.run(["sinfo", "-hN", "-t", "idle", "-o", "%P %N"], capture_output=True, text=True, timeout=60)
    usual = [line.split() for line in idle.stdout.splitlines() if "*" in line]
    if len(usual) < 2:
        return ""
    node = subprocess.run(["scontrol", "show", "node", usual[0][1]], capture_output=True, text=True, timeout=60).stdout
    here = f"NodeHostName={socket.gethostname().split('.')[0]} " in node
    return usual[0][0].rstrip("*") if here else ""


@pytest.fixture(scope="module")
def words(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    if not (name := partition()):
        pytest.skip("no Slurm with two idle nodes on this machine")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "site.toml").write_text(
        'source = "x"\nchecked = "2026-11"\nscheduler = "slurm"\nenvironment = { MASTER_ADDR = "127.0.0.1" }\n'
        f'[[partition]]\nname = "{name}"\n'
    )
    (folder / "recipe.toml").write_text(f"""
data = "{store}"
save = 5
log = 1
validation_rows = 8
callbacks = ["slow_steps"]
layout = {{ device = "cpu", threads = 1, precision = "fp32" }}
model = {{ kind = "bert", width = 32, layers = 1, heads = 2, positions = 32 }}
objective = {{ kind = "mlm" }}
phase = [{{ steps = {STEPS}, length = 32, batch = 8, learning_rate = 2e-3, warmup = 2 }}]
""")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        source = Path(__file__).parents[3] / "src"
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{source}")
        faults.prepared(["recipe.toml"])
        yield ["recipe.toml"]
        for line in (folder / "work/jobs/jobs.jsonl").read_text().splitlines():
            subprocess.run(["scancel", json.loads(line)["job"]], check=False, capture_output=True)


@pytest.mark.parametrize(("way", "step"), [("kill", 17), ("spare-down", 23)])
def test_what_was_lost_goes_on_to_the_same_last_bit(words: list[str], way: str, step: int) -> None:
    found = faults.one(way, words, "site.toml", [step])
    assert (found["state"], found["same"]) == ("COMPLETED", True), found
    assert len(found["runs"]) == 2
    assert len(found["lost"]) == 1


def test_an_error_of_the_run_s_own_is_never_tried_again(words: list[str]) -> None:
    found = faults.one("error", words, "site.toml", [12])
    assert (found["state"], found["lost"], len(found["runs"])) == ("FAILED", [], 1)

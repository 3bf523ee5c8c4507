"""Half an hour on a GPU, in four commands: steps of real recipes by rounds and by profile, shapes by themselves.

    python tests/measure/gpu_steps.py first     versions, ELECTRA-base at 128 plain and compiled, at 512; tests/gpu
    python tests/measure/gpu_steps.py second    products, attention, heads, our kernels; BERT-large, GPT-2 345M, ELMo
    python tests/measure/gpu_steps.py third     what a change was to bring: ELECTRA-base without dropout, fp32, compiled
    python tests/measure/gpu_steps.py final     all of them twice, for docs/log.md
    ... NAME [KEY=VALUE...]                     one bench recipe by its name, with a profile

Each prints as it goes, ends by itself (600, 450, 360 and 300 seconds are enough), and begins with what would make the
rest worthless. `--small` goes the same ways on a CPU with tiny sizes. Steps are timed in blocks without a wait.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from ordsmed.base.machine import measured_peak
from ordsmed.bench.bench import bench

ELECTRA = ["electra-small", "model.size=base", "objective.generator={width=256}", "layout.micro=512", "batch=512"]
ROW512 = ["length=512", "layout.micro=128", "batch=128"]
LARGE = ["bert-base", "model.size=large", *ROW512]
GPT2 = ["gpt2-mini", "model.size=345M", "vocabulary=50257", "length=1024", "layout.micro=64", "batch=64"]
ELMO = ["elmo-original"]
PLANS = {
    "first": [ELECTRA, [*ELECTRA, "layout.compile=true"], [*ELECTRA, *ROW512]],
    "second": [LARGE, GPT2, ELMO],
    "third": [[*ELECTRA, "dropout=0"], [*ELECTRA, "layout.precision=fp32"], [*GPT2, "layout.compile=true"]],
    "final": [each for each in (ELECTRA, [*ELECTRA, *ROW512], LARGE, GPT2, ELMO) for _ in range(2)],
}
TINY = ["model.width=64", "model.layers=1", "vocabulary=500", "tokens=20000", "batch=4", "layout.micro=2", "length=16"]


def steps_of(words: list[str], *, small: bool) -> None:
    """One recipe: steps by rounds, and what they spend their time on."""
    name, *changes = words
    if small:
        less = ["model.cells=64", "objective.samples=64"] if words == ELMO else ["model.heads=1"]
        changes = [each for each in changes if not each.startswith(("model.", "objective."))] + TINY + less
    else:
        changes += ["steps=20"] if "precision" in str(words) else ["steps=20", "layout.precision=bf16"]
    print(*bench(name, [*changes, "profile=2"], json_line=True), sep="\n", flush=True)


def versions(device: str) -> None:
    """What figures depend on; the memory that processes share, which loaders need."""
    name = torch.cuda.get_device_name() if device == "cuda" else "a CPU"
    print(f"torch {torch.__version__}, {name}, {shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB free in /dev/shm")
    print(f"peak of bf16: {measured_peak(torch.device(device), 'bf16') / 1e12:.2f} TFLOP/s", flush=True)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("plan", help="first, second, third, final, or the name of a bench recipe")
    reader.add_argument("changes", nargs="*")
    reader.add_argument("--small", action="store_true")
    asked = reader.parse_args()
    device = "cpu" if asked.small or not torch.cuda.is_available() else "cuda"
    here = Path(__file__).parent
    versions(device)
    if asked.plan == "second":
        for script in ("gpu_parts.py", "gpu_kernels.py"):
            subprocess.run([sys.executable, here / script, *(["--small"] if asked.small else [])], check=False)
    for words in PLANS.get(asked.plan, [[asked.plan, *asked.changes]]):
        try:
            steps_of([*words], small=asked.small)
        except Exception as error:  # one that fails must not cost the others' time
            print(f"{' '.join(words)}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    if asked.plan == "first" and not asked.small:
        words = ["-m", "pytest", "-q", "-W", "default", "-n", "6", str(here.parent / "gpu")]
        subprocess.run([sys.executable, *words], check=False)


if __name__ == "__main__":
    main()

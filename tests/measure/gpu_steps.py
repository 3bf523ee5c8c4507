"""Half an hour on a GPU, in four commands: steps of real recipes by rounds and by profile, shapes by themselves.

    python tests/measure/gpu_steps.py first     versions, ELECTRA-base at 128 plain and compiled, at 512; tests/gpu
    python tests/measure/gpu_steps.py second    products, attention, heads (gpu_parts.py), our kernels beside torch's
                                                (gpu_kernels.py); BERT-large, GPT-2 345M, ELMo
    python tests/measure/gpu_steps.py third     what a change was to bring: ELECTRA-base without dropout, fp32, compiled
    python tests/measure/gpu_steps.py final     all of them twice, for docs/log.md
    ... NAME [KEY=VALUE...]                     one bench recipe by its name, with a profile

Each prints as it goes, ends by itself (600, 450, 360 and 300 seconds are enough), and begins with what would make the
rest worthless. `--small` goes the same ways on a CPU with tiny sizes. Steps are timed in blocks without a wait.
With `OUT=FOLDER` in the environment what is printed and measured is written there too, as it comes: for a machine that
is given back.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from ordsmed.base.machine import measured_peak
from ordsmed.base.measurements import PLACE
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
SCRIPT, TESTS = 150, 300  # seconds that a script, and tests/gpu, may take
TINY = ["model.width=64", "model.layers=1", "vocabulary=500", "tokens=20000", "batch=4", "layout.micro=2", "length=16"]


def steps_of(words: list[str], *, small: bool) -> None:
    """One recipe: steps by rounds, and what they spend their time on."""
    name, *changes = words
    if small:
        less = ["model.cells=64", "objective.samples=64"] if words == ELMO else ["model.heads=1"]
        changes = [each for each in changes if not each.startswith(("model.", "objective."))] + TINY + less
    else:
        changes += ["steps=20"] if "precision" in str(words) else ["steps=20", "layout.precision=bf16"]
    gc.collect()  # the network before stands in circles, and would count as memory of this one
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    print(*bench(name, [*changes, "profile=2"], json_line=True), sep="\n", flush=True)


def beside(words: list[str], seconds: int) -> None:
    """A process of its own; one that takes longer is ended with all that it started, and the next has its turn."""
    child = subprocess.Popen([sys.executable, "-u", *words], start_new_session=True)
    try:
        if status := child.wait(seconds):
            print(f"{words[0]}: ended with status {status}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"{words[0]}: not done in {seconds} s, and ended", flush=True)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextlib.contextmanager
def also_in(folder: Path, name: str) -> Iterator[None]:
    """What this process and those that it starts print stands in a file there too, from the first line on."""
    folder.mkdir(parents=True, exist_ok=True)
    own = [os.dup(number) for number in (1, 2)]
    file = folder / f"gpu_steps-{name}.txt"
    tee = subprocess.Popen(["tee", "-a", file], stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
    assert tee.stdin is not None
    for number in (1, 2):
        os.dup2(tee.stdin.fileno(), number)
    tee.stdin.close()
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, before in enumerate(own, 1):
            os.dup2(before, number)
        with contextlib.suppress(subprocess.TimeoutExpired):  # what was left behind may still hold its end
            tee.wait(5)


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what it started ends with it
    folder = Path(os.environ["OUT"]) if os.environ.get("OUT") else None
    with also_in(folder, asked.plan.replace("/", "-")) if folder else contextlib.nullcontext():
        measure(asked, folder)


def measure(asked: argparse.Namespace, folder: Path | None) -> None:
    """A plan; what is measured stands in this folder too."""
    device = "cpu" if asked.small or not torch.cuda.is_available() else "cuda"
    here = Path(__file__).parent
    versions(device)
    if asked.plan == "second":
        for script in ("gpu_parts.py", "gpu_kernels.py"):
            beside([str(here / script), *(["--small"] if asked.small else [])], SCRIPT)
    for words in PLANS.get(asked.plan, [[asked.plan, *asked.changes]]):
        try:
            steps_of([*words], small=asked.small)
        except Exception as error:  # one that fails must not cost the others' time
            print(f"{' '.join(words)}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        if folder and PLACE.exists():
            shutil.copyfile(PLACE, folder / PLACE.name)
    if asked.plan == "first" and not asked.small:
        beside(["-m", "pytest", "-q", "-W", "default", "-n", "6", str(here.parent / "gpu")], TESTS)


if __name__ == "__main__":
    main()

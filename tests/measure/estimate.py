"""What `estimate --measure` says of trainings on this machine's CPU, beside what then happens.

    python tests/measure/estimate.py [RECIPE=STEPS ...] [--rounds 1] [--lock FILE]

Each recipe is cut to a few hundred steps. Its data are made first; then it is estimated, then it is run by the same
command line, from the start of the process to its end. The wanted distance is 20%. Where others use the machine:
--lock FILE is locked for each pair of the two, and --clock cpu counts the seconds that the process computes, of one
thread, in both: what the clock on the wall would show if nobody else were there.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

COMMAND = (sys.executable, "-m", "ordsmed")
BY_CPU = """
import atexit, sys, time
time.perf_counter = time.monotonic = time.process_time
from ordsmed.base.machine import host
host.age = time.process_time
atexit.register(lambda: print(time.process_time(), file=sys.stderr))
from ordsmed.cli import main
main(sys.argv[1:])
"""
RECIPES = ["tiny/electra=200", "tiny/gpt2=100", "tiny/elmo=100", "tiny/modern=200", "tiny/megatron-bert=100"]
WANTED = 0.2


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    if not path:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pair(recipe: str, steps: str, lock: str, clock: str) -> float:
    """The ratio of what happened to what was estimated."""
    out = Path("work/estimated") / recipe.replace("/", "-")
    words = [recipe, f"phase.steps={steps}", "phase.warmup=0", f"out={out}"]
    by_cpu = clock == "cpu"
    start = [sys.executable, "-c", BY_CPU] if by_cpu else [*COMMAND]
    words += ["layout.threads=1"] if by_cpu else []
    make = [*COMMAND, "pretrain", recipe, "phase.steps=1", "phase.warmup=0", f"out={out}"]
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(make, check=True, capture_output=True)
    shutil.rmtree(out)
    with locked(lock):
        told = subprocess.run([*start, "estimate", *words, "--measure", "--json"], check=True, capture_output=True)
        found = json.loads(told.stdout)
        began = time.monotonic()
        done = subprocess.run([*start, "pretrain", *words], check=True, capture_output=True, text=True)
        took = float(done.stderr.splitlines()[-1]) if by_cpu else time.monotonic() - began
    spread = found["seconds"]
    ratio = took / spread["likely"]
    within = "within 20%" if abs(ratio - 1) <= WANTED else "MISSED"
    inside = "in its range" if spread["least"] <= took <= spread["most"] else "outside its range"
    print(
        f"{recipe} {steps} steps: {spread['likely']:.1f} s ({spread['least']:.1f} to {spread['most']:.1f}); "
        f"took {took:.1f} s: {ratio:.2f} of it, {within}, {inside}",
        flush=True,
    )
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lock", default="")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    asked = parser.parse_args()
    for _ in range(asked.rounds):
        for each in asked.recipes:
            pair(*each.split("="), asked.lock, asked.clock)


if __name__ == "__main__":
    main()

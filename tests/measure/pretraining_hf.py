"""Pretraining steps on a CPU beside transformers' of the same sizes: rows a second and ratios, as a table.

    python tests/measure/pretraining_hf.py [bert-mini gpt2-mini electra-small bert-base] [--dropout 0.1 0] [--threads 2]
                                           [--precision fp32|bf16] [--theirs fp32|bf16]

Each runs in a process of its own, in turn: ours as `ordsmed bench` does; theirs (`bench --beside transformers`' step:
the same batch, dropout, clipping and a fused AdamW) with the memory settings that Python has, as a user's plain loop
would, or with ours (`--same`). `--clock cpu` counts the processor's seconds, for busy machines, where threads should
be 1. bf16 is autocast's, with fp32 weights, in both. Needs transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ordsmed.base import run, settings
from ordsmed.base.machine import memory
from ordsmed.measure.bench import rounds
from ordsmed.measure.bench.bench import Bench
from ordsmed.measure.bench.measurement import WARM
from ordsmed.measure.bench.training import measure_training, planned
from ordsmed.measure.bench.transformers_step import TransformersStep

NAMES = ("bert-mini", "gpt2-mini", "electra-small", "bert-base")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("names", nargs="*", default=NAMES)
    reader.add_argument("--dropout", type=float, nargs="+", default=[0.1, 0.0])
    for name, usual in (("threads", 2), ("steps", 8), ("turns", 3)):
        reader.add_argument(f"--{name}", type=int, default=usual)
    reader.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    for name in ("precision", "theirs"):
        reader.add_argument(f"--{name}", choices=("fp32", "bf16"), default="fp32")
    reader.add_argument("--same", action="store_true")
    reader.add_argument("--one", choices=("ours", "theirs"), help="only this one, its seconds a step as JSON")
    asked = reader.parse_args()
    if asked.one:
        print(json.dumps(seconds(asked)))
        return
    print("| | dropout | ours | theirs | ratios | median |\n|---|---|---|---|---|---|")
    for name in asked.names:
        for rate in asked.dropout:
            print(row(asked, name, rate), flush=True)


def row(asked: argparse.Namespace, name: str, rate: float) -> str:
    """A line of the table."""
    batch = recipe_of(asked, name, rate).batch
    pairs = np.array([[child(asked, name, rate, who) for who in ("ours", "theirs")] for _ in range(asked.turns)])
    ratios = pairs[:, 1] / pairs[:, 0]
    told = [", ".join(f"{value:.2f}" for value in own) for own in (*(batch / pairs).T, ratios)]
    return f"| {name} | {rate:g} | {' | '.join(told)} | {np.median(ratios):.2f} |"


def child(asked: argparse.Namespace, name: str, rate: float, who: str) -> float:
    """Seconds a step, the median of those that a process took."""
    command = [sys.executable, __file__, name, "--dropout", str(rate), "--clock", asked.clock, "--one", who]
    command += ["--threads", str(asked.threads), "--steps", str(asked.steps)]
    command += ["--precision", asked.precision, "--theirs", asked.theirs, *(["--same"] if asked.same else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": str(asked.threads)}
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return float(json.loads(said.splitlines()[-1]))


def seconds(asked: argparse.Namespace) -> float:
    """The same, of this process."""
    clock: Callable[[], float] = time.process_time if asked.clock == "cpu" else time.perf_counter
    recipe = recipe_of(asked, asked.names[0], asked.dropout[0])
    if asked.one == "ours":
        rounds.now = lambda _: clock()
        return float(measure_training(recipe)[0]["step_seconds"])
    if not asked.same:
        memory.keep_freed_memory = lambda: None  # type: ignore[assignment]
    with planned(recipe) as plan:
        steps, spent = TransformersStep.of(plan.build()).steps, []
        steps(WARM)
        for _ in range(asked.steps):
            began = clock()
            steps(1)
            spent.append(clock() - began)
    return float(np.median(spent))


def recipe_of(asked: argparse.Namespace, name: str, rate: float) -> Any:
    """The bench recipe, cut into rounds of one step."""
    table = run.read_table(run.find_recipe(f"bench/{name}", "bench"), "bench")
    changes = [f"dropout={rate}", f"steps={asked.steps}", f"rounds={asked.steps}", f"layout.threads={asked.threads}"]
    precision = asked.theirs if asked.one == "theirs" else asked.precision
    return settings.decode(
        Bench, settings.override(table, [*changes, "layout.device=cpu", f"layout.precision={precision}"]), name
    )


if __name__ == "__main__":
    main()

"""Measure steps of a phase that freezes the embeddings and some layers: with all gradients made, and only those needed.

    PYTHONPATH=tests python tests/measure/frozen.py FOLDER [--layers 4] [--turns 8]

The two take turns; seconds are those of this process's CPU, the fastest of three steps a turn.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch

from kit.makers import job_of, make_store
from ordsmed.train.auto import timed_steps
from ordsmed.train.job import Job

RECIPE = """
data = "{here}/store"
out = "{here}/run"
validate = 0
layout = {{ device = "cpu", threads = 1, precision = "fp32" }}
model = {{ kind = "modern", width = 128, layers = {layers}, heads = 2, positions = 128 }}
objective = {{ kind = "mlm" }}
phase = [{{ steps = 1000, length = 64, batch = 32, learning_rate = 1e-3, freeze = [{frozen}] }}]
"""


def measure(job: Job, turns: int) -> dict[bool, list[float]]:
    """Seconds of a step, by whether gradients of frozen weights are left out."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    learning = {id(part) for part in job.learning(0)}
    for _ in range(turns):
        for leaves, seconds in spent.items():
            for part in job.parts:
                part.whole.requires_grad_(not leaves or id(part) in learning)
            steps = timed_steps(job, 0)
            seconds.append(min(next(steps)[0] for _ in range(3)))
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    if not (args.folder / "store").exists():
        make_store(args.folder / "store", documents=400)
    for count in range(args.layers):
        frozen = ["model.words", "model.norm", *(f"blocks.{n}." for n in range(count))]
        recipe = args.folder / "recipe.toml"
        names = ", ".join(f'"{name}"' for name in frozen)
        recipe.write_text(RECIPE.format(here=args.folder, layers=args.layers, frozen=names))
        spent = measure(job_of(recipe), args.turns)
        ratios = [now / before for now, before in zip(spent[True], spent[False], strict=True)]
        before, now = (statistics.median(spent[leaves]) for leaves in (False, True))
        print(f"{count} of {args.layers} layers: {before:.4f} s, {now:.4f} s; ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()

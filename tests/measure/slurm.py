"""Jobs of two nodes on a real Slurm that are disturbed in every way, their losses beside an undisturbed run's.

    python tests/measure/slurm.py --site my-site.toml [--ways limit,torchrun,chain,told,requeue,down,array]

Wants a Slurm whose partition has two nodes (a site's file that names it), and for `down` the right to take one out.
limit      a limit of three minutes, shorter than the run: saved a minute before it, sent in again, ended
torchrun   the same by one torchrun a node
chain      the same by six jobs one behind the other, none sent in again
told       scancel --signal=TERM while it runs, as where jobs are preempted: saved, sent in again
requeue    scontrol requeue while it runs: killed, goes on from its last checkpoint
down       a node is lost while it runs, and comes back a little later
array      four trials of a fine-tuning in four jobs; the table of all
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "ordsmed")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "unknown")
PATIENCE = 900.0  # seconds
MIDDLE = 3  # a run is disturbed in its first third
WAYS: dict[str, list[str]] = {
    "limit": [], "torchrun": ["--torchrun", "--tasks", "1"], "chain": ["--chain", "6"],
    "told": ["--time", "1h"], "requeue": ["--time", "1h"], "down": ["--time", "1h"],
}  # fmt: skip


def call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    whole = (
        [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []
    )
    return [line for line in map(json.loads, whole) if "loss" in line]


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in lines(folder)]


def wait(what: str, so: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not so():
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"waited for {what} for {PATIENCE:.0f} seconds")
        time.sleep(1)


def ended(jobs: list[str]) -> bool:
    answer = json.loads(call(*COMMAND, "submit", "--status", "--json"))
    return all(one["state"].split()[0] in OVER for one in answer if one["job"] in jobs)


def disturb(way: str, job: str, folder: Path, steps: int) -> None:
    """Once it is well under way."""
    if way not in ("told", "requeue", "down"):
        return
    wait("steps", lambda: bool(losses(folder)) and losses(folder)[-1][0] > steps // MIDDLE)
    if way == "told":
        call("scancel", "--signal=TERM", job)
    elif way == "requeue":
        call("scontrol", "requeue", job)
    else:
        call("scontrol", "update", "nodename=n2", "state=down", "reason=lost")
        wait("the queue", lambda: "PENDING" in call("squeue", "--noheader", "--format=%T", f"--jobs={job}"))
        back = ["scontrol", "update", "nodename=n2", "state=resume"]  # refused where it came back by itself
        subprocess.run(back, check=False, capture_output=True)


def submitted(*words: str) -> list[str]:
    jobs: list[str] = json.loads(call(*COMMAND, "submit", *words, "--yes", "--json"))["jobs"]
    return jobs


def one(way: str, words: list[str], site: str, steps: int) -> str:
    """A run that is disturbed in this way."""
    folder, began = Path(f"work/{way}"), time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    limit = ["--time", "3m", "--save", "60"] if "--time" not in WAYS[way] else []
    jobs = submitted(*words, f"out={folder}", "--site", site, "--nodes", "2", *limit, *WAYS[way])
    disturb(way, jobs[0], folder, steps)
    wait("the end", lambda: ended(jobs))
    log = (folder / "log.txt").read_text()
    resumed = log.count("going on") + log.count("goes on from")
    same = losses(folder) == losses(Path("work/whole"))
    seconds = time.monotonic() - began
    return (
        f"{way}: {len(losses(folder))} losses, went on {resumed} times, {seconds:.0f} s; equal to the last bit: {same}"
    )


TUNING = """
epochs = 3
batch = 16
tokenizer = "work/tuning/vocab.txt"
seeds = [1, 2]
grid = { rate = [1e-4, 2e-3] }
out = "work/array"
model = { kind = "bert", width = 32, layers = 1, heads = 2, positions = 64 }
task = { kind = "classify", train = "work/tuning/train.tsv", dev = "work/tuning/dev.tsv", length = 16 }
"""


def array(site: str) -> str:
    """Trials, each a job: texts whose words tell their label."""
    folder, given, chance = Path("work/array"), Path("work/tuning"), random.Random(0)
    shutil.rmtree(folder, ignore_errors=True)
    given.mkdir(parents=True, exist_ok=True)
    (given / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]) + "\n")
    for name, count in (("train", 512), ("dev", 128)):
        rows = [
            f"{' '.join(chance.choices(word, k=5))}\t{word}" for word in chance.choices(["abcde", "defgh"], k=count)
        ]
        (given / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    recipe = given / "recipe.toml"
    recipe.write_text(TUNING)
    jobs = submitted(str(recipe), "--site", site, "--parts", "4", "--time", "10m")
    wait("the end", lambda: not call("squeue", "--noheader", f"--jobs={jobs[0]}").strip())
    found = json.loads((folder / "trials.json").read_text())
    return f"array: {len(found['trials'])} trials in the table, best {found['best']}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--ways", default=",".join([*WAYS, "array"]))
    asked = parser.parse_args()
    words = ["tiny/electra", f"phase.steps={asked.steps}", "save=50", "log=1"]
    if not Path("work/whole").exists():
        subprocess.run([*COMMAND, "pretrain", *words, "out=work/whole", "--devices", "2"], check=True)
    for way in asked.ways.split(","):
        print(array(asked.site) if way == "array" else one(way, words, asked.site, asked.steps), flush=True)


if __name__ == "__main__":
    main()

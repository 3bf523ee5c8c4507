"""Jobs of two nodes on a real Slurm that are disturbed in every way, their losses beside an undisturbed run's.

    python tests/measure/slurm.py --site my-site.toml [--ways kill,down,...] [--moments 10]

Wants a Slurm with two nodes (a site's file that names its partition), and the right to take a node out. What kills
processes finds them on this machine, so its nodes have to be here. `--moments 10` disturbs each run ten times over.

limit      a limit of three minutes, shorter than the run: saved a minute before it, sent in again, ended
torchrun   the same by one torchrun a node
chain      the same by six jobs one behind the other, none sent in again
told       scancel --signal=TERM while it runs, as where jobs are preempted: saved, sent in again
requeue    scontrol requeue while it runs: killed, goes on from its last checkpoint
down       a node is lost while it runs, and comes back a little later
kill       a process is killed, as by a machine without memory; first: the first one, which keeps the store
elsewhere  the same of a job of one node, which goes on on another
stepd      the daemon of Slurm is killed that keeps a node's processes; srun: what started them
spare      a process is killed, and the next node takes its place; spare-down: a node is lost
error      an error of a callback, which is never tried again: one attempt
array      four trials of a fine-tuning in four jobs; the table of all
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "ordsmed")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "left")
PATIENCE = 600.0  # seconds
TWO, HOUR = ["--nodes", "2"], ["--time", "1h"]
WAYS: dict[str, list[str]] = {
    "limit": TWO,
    "torchrun": [*TWO, "--torchrun", "--tasks", "1"],
    "chain": [*TWO, "--chain", "6"],
    **{way: [*TWO, *HOUR] for way in ("told", "requeue", "down", "kill", "first", "stepd", "srun", "error")},
    "elsewhere": ["--tasks", "2", *HOUR],
    **{way: ["--tasks", "2", "--spares", "1", *HOUR] for way in ("spare", "spare-down")},
}
SLOW = """
import os, time
from pathlib import Path
def after_step(state):
    time.sleep(0.1)  # so that a step can be met
    if state.step == int(Path("fails").read_text() if os.path.exists("fails") else 0):
        raise KeyError("an error of a callback")
"""


def call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def losses(folder: Path) -> list[tuple[int, float]]:
    path = folder / "metrics.jsonl"
    whole = [line for line in path.read_text().splitlines(keepends=True) if line[-1:] == "\n"] if path.exists() else []
    return [(line["step"], line["loss"]) for line in map(json.loads, whole) if "loss" in line]


def wait(what: str, so: Callable[[], bool], every: float = 0.05) -> None:
    began = time.monotonic()
    while not so():
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"waited for {what} for {PATIENCE:.0f} seconds")
        time.sleep(every)


WAITING: dict[str, float] = {}  # since when a job waits that was sent in again


def state(job: str) -> str:
    """Of a job; one that was sent in again need not wait two minutes, but until its credential is not the old one."""
    first, _, reason = call("squeue", "--noheader", "--states=all", "--format=%T %r", f"--jobs={job}").partition(" ")
    if reason.strip() != "BeginTime":
        WAITING.pop(job, None)
    elif time.monotonic() - WAITING.setdefault(job, time.monotonic()) > 5:
        subprocess.run(["scontrol", "update", f"jobid={job}", "starttime=now"], check=False, capture_output=True)
    return first


def processes(job: str) -> dict[int, int]:
    """The process of each rank of a job."""
    ranks = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            entries = (entry.partition("=") for entry in (folder / "environ").read_text().split("\0"))
            variables = {name: value for name, _, value in entries}
            keeper = Path(f"/proc/{parent(int(folder.name))}/comm").read_text().strip()
            if variables["SLURM_JOB_ID"] == job and "slurmstepd" in keeper and "SLURM_STEP_NUM_TASKS" in variables:
                ranks[int(variables["SLURM_PROCID"])] = int(folder.name)
    return ranks


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def sruns(job: str) -> list[int]:
    """The processes of srun that a job's script started."""
    found = subprocess.run(["pgrep", "-x", "srun"], capture_output=True, text=True, check=False).stdout.split()
    return [int(number) for number in found if f"SLURM_JOB_ID={job}\0" in Path(f"/proc/{number}/environ").read_text()]


def down(job: str) -> None:
    """A node of a job, not that of its script, is lost, and comes back a little later, if not by itself."""
    used = Path(next(Path("work/jobs").glob("*.tries"))).parent
    nodes = [
        line.split()[3]
        for path in used.glob("*.tries")
        for line in path.read_text().splitlines()
        if line.startswith(f"{job} run ")
    ][-1].split(",")
    call("scontrol", "update", f"nodename={nodes[0]}", "state=down", "reason=lost")
    time.sleep(2)
    back = ["scontrol", "update", f"nodename={nodes[0]}", "state=resume"]
    subprocess.run(back, check=False, capture_output=True)


def disturb(way: str, job: str) -> None:
    if way == "told":
        call("scancel", "--signal=TERM", job)
    elif way == "requeue":
        call("scontrol", "requeue", job)
    elif way.endswith("down"):
        down(job)
    elif way in ("kill", "elsewhere", "spare", "first"):
        os.kill(processes(job)[0 if way == "first" else 1], signal.SIGKILL)
    elif way == "stepd":
        os.kill(parent(processes(job)[1]), signal.SIGKILL)
    elif way == "srun":
        for process in sruns(job):
            os.kill(process, signal.SIGKILL)


def submitted(*words: str) -> list[str]:
    jobs: list[str] = json.loads(call(*COMMAND, "submit", *words, "--yes", "--json", "--data-inside"))["jobs"]
    return jobs


def attempts(job: str) -> list[list[str]]:
    """What the script noted: run, lost, over, and of which nodes or with which status."""
    rows = [line.split() for path in Path("work/jobs").glob("*.tries") for line in path.read_text().splitlines()]
    return [[row[1], row[3]] for row in rows if row[0] == job]


def runs(job: str) -> int:
    return sum(what == "run" for what, _ in attempts(job))


def one(way: str, words: list[str], site: str, steps: list[int]) -> dict[str, Any]:
    """A run that is disturbed in this way, at each of these steps."""
    folder, began = Path(f"work/{way}"), time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    Path("fails").write_text(str(steps[0] if way == "error" else 0))
    limit = ["--time", "3m", "--save", "60"] if "--time" not in WAYS[way] else []
    jobs = submitted(*words, f"out={folder}", "--site", site, "--retries", str(len(steps)), *limit, *WAYS[way])
    if limit or way == "error":
        wait("the end", lambda: all(state(job) in OVER for job in jobs), 1)
    else:
        for step in steps:
            reached = lambda step=step: bool(losses(folder)) and losses(folder)[-1][0] >= step  # noqa: E731
            wait("steps", lambda reached=reached: state(jobs[0]) in OVER or reached())
            count = runs(jobs[0])
            disturb(way, jobs[0])
            if way != "stepd":
                wait("another attempt", lambda count=count: state(jobs[0]) in OVER or runs(jobs[0]) > count, 0.5)
        wait("the end", lambda: state(jobs[0]) in OVER, 1)
    same = losses(folder) == losses(Path("work/whole"))
    tries = attempts(jobs[0])
    return {
        "way": way,
        "steps": steps,
        "same": same,
        "state": state(jobs[-1]),
        "lost": [nodes for what, nodes in tries if what == "lost"],
        "runs": [nodes for what, nodes in tries if what == "run"],
        "seconds": round(time.monotonic() - began),
    }


TUNING = """
epochs = 3
batch = 16
tokenizer = "work/tuning/vocab.txt"
seeds = [1, 2]
grid = { learning_rate = [1e-4, 2e-3] }
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
    wait("the end", lambda: not call("squeue", "--noheader", f"--jobs={jobs[0]}").strip(), 1)
    found = json.loads((folder / "trials.json").read_text())
    return f"array: {len(found['trials'])} trials in the table, best {found['best']}"


def prepared(words: list[str]) -> None:
    """The undisturbed run, and the callback by which a step takes a while."""
    Path("slow_steps.py").write_text(SLOW)
    if not losses(Path("work/whole")):
        subprocess.run([*COMMAND, "pretrain", *words, "out=work/whole", "--devices", "2"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", required=True)
    parser.add_argument("--recipe", default="tiny/electra")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--moments", type=int, default=1, help="steps at which a run is disturbed")
    parser.add_argument("--ways", default=",".join([*WAYS, "array"]))
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    words = [args.recipe, f"phase.steps={args.steps}", f"save={max(1, args.steps // 12)}", "log=1", "layout.threads=1"]
    words.append('callbacks=["slow_steps"]')
    prepared(words)
    for way in args.ways.split(","):
        if way == "array":
            print(array(args.site), flush=True)
            continue
        last = losses(Path("work/whole"))[-1][0]
        steps = [max(1, last * moment // (args.moments + 1)) for moment in range(1, 1 + args.moments)]
        print(json.dumps(one(way, words, args.site, steps[: 1 if way == "spare-down" else None])), flush=True)


if __name__ == "__main__":
    main()

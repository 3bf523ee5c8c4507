"""What the start of a training costs a rank: CPU seconds, locks and waiting for them, files opened and looked at.

    python tests/measure/start.py [--ranks 2,4,8,16]         # seconds: CPU, in locks, until the first step
    python tests/measure/start.py --files [--packed]          # opens and stats of a rank by strace, by disk

All ranks run on this machine, with a thread each; what they need of its cores they share, so of many ranks on few
cores only CPU seconds a rank and those spent in locks say how the start grows. `--packed` starts Python as the script
of `ordsmed submit --packed` does, from a copy; what is opened in the copy is on the node's own disk.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

WORDS = [
    "pretrain",
    "tiny/bert",
    "phase=[{steps=1,batch=48,length=128,learning_rate=1e-3}]",
    "layout.threads=1",
    "layout.precision=fp32",
]
RANK = """
import json, os, sys, time
import filelock
began, spent, count, first = time.monotonic(), 0.0, 0, 0.0
acquire = filelock.BaseFileLock.acquire
def timed(self, *words, **how):
    global spent, count
    before = time.monotonic()
    try:
        return acquire(self, *words, **how)
    finally:
        spent, count = spent + time.monotonic() - before, count + 1
filelock.BaseFileLock.acquire = timed
from ordsmed.train import loop
learned = loop.train
def train(*words, **how):
    print(json.dumps({"locks": count, "waited": spent, "start": time.monotonic() - began,
                      "cpu": time.process_time()}), flush=True)
    return learned(*words, **how)
loop.train = train
from ordsmed.cli import main
main(sys.argv[1:])
"""
CALLS = "openat,open,stat,lstat,newfstatat,statx,fstat,access,faccessat,faccessat2,readlink,readlinkat,getdents64"
NOT_SHARED = ("/proc", "/sys", "/dev", "/etc", "/lib", "/usr/lib", "/usr/share")  # of the system, on each node


def port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def started(ranks: int, folder: Path, *before: str, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """What each rank says of its start."""
    at, out = str(port()), f"out={folder / f'of-{ranks}'}"
    processes = []
    for rank in range(ranks):
        known = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": at,
            "OMP_NUM_THREADS": "1",
        }
        words = [*before, sys.executable, "-c", RANK, *WORDS, out, "--anew", "--yes"]
        variables = {**os.environ, **(known if ranks > 1 else {}), **(env or {})}
        processes.append(subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, cwd=folder))
    said = [process.communicate()[0].decode() for process in processes]
    if failed := [process.returncode for process in processes if process.returncode]:
        raise SystemExit(f"{len(failed)} of {ranks} ranks failed")
    return [json.loads(text.splitlines()[0]) for text in said]


def seconds(counts: list[int], folder: Path) -> None:
    started(1, folder)  # makes the data
    print("ranks  locks a rank  waited for them (most)  CPU a rank  until the first step (last)")
    for count in counts:
        rows = started(count, folder)
        most = {key: max(row[key] for row in rows) for key in ("locks", "waited", "start")}
        cpu = statistics.mean(row["cpu"] for row in rows)
        print(
            f"{count:5}  {statistics.mean(row['locks'] for row in rows):12.1f}  {most['waited']:20.2f} s  "
            f"{cpu:8.2f} s  {most['start']:8.1f} s",
            flush=True,
        )


def files(folder: Path, *, packed: bool) -> None:
    """Calls that reach a disk which nodes share: what is not the system's own, nor in the copy."""
    started(1, folder)
    env: dict[str, str] = {}
    local = folder / "local"
    if packed:
        from ordsmed.machines.sites.python_archive import pack

        environment = pack(folder)
        with tarfile.open(environment.path) as tar:
            tar.extractall(local, filter="fully_trusted")
        path = [str(local / str(number)) for number in range(len(environment.folders))]
        env = {"PYTHONPATH": ":".join([*path, str(folder)]), "PYTHONSAFEPATH": "1"}
    trace = folder / "trace"
    started(1, folder, "strace", "-f", "-y", "-e", f"trace={CALLS}", "-o", str(trace), env=env)
    calls: Counter[tuple[str, str]] = Counter()
    for line in trace.read_text(errors="replace").splitlines():
        if match := re.match(r"\d+\s+(\w+)\((.*)", line):
            name, rest = match.groups()
            paths = re.findall(r'"([^"]*)"|<([^>]*)>', rest)
            place = next((a for a, _ in paths if a.startswith("/")), "") or next((b for _, b in paths if b), "")
            disk = "copy" if place.startswith(str(local)) else "system" if place.startswith(NOT_SHARED) else "shared"
            calls["opens" if name.startswith("open") else "stats", disk] += 1
    for kind in ("opens", "stats"):
        print(kind, ", ".join(f"{disk} {calls[kind, disk]:,}" for disk in ("shared", "copy", "system")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8,16")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--packed", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.files or args.packed:
            files(Path(folder), packed=args.packed)
        else:
            seconds([int(count) for count in args.ranks.split(",")], Path(folder))


if __name__ == "__main__":
    main()

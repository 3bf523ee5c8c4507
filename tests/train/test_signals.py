"""A signal to all processes of a run saves it, whoever started it and whoever makes its rows; the same command goes on.

torchrun, `timeout`, systemd, PBS and Slurm signal a whole process group: processes that make rows are in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.processes import KIT, PATIENT, Process
from ordsmed.base.ending import STOP_AT, STOP_SIGNALS
from ordsmed.base.errors import Lost
from ordsmed.base.run import Run
from ordsmed.train import checkpoint

Recipe = Callable[..., Path]
NAMES = [number.name for number in STOP_SIGNALS]
MORE = 2  # steps that who goes on learns
FULL = os.environ.get("ORDSMED_GRID") == "full"


@pytest.fixture
def start(nursery: Callable[..., Any], recipe: Recipe, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """`ordsmed pretrain RECIPE` of a run that ends by itself after days, alone in a process group of its own."""
    path = recipe("run", steps=1_000_000, save=0, validate=0)
    begun: list[Process] = []

    def begin(*words: str, **env: str) -> Process:
        out = tmp_path / f"said-{len(begun)}.txt"
        pid = nursery(
            words=["pretrain", str(path), "--yes", *words], env={"SAID": str(out), "MARKS": str(tmp_path), **env}
        )
        begun.append(Process(pid, lambda: nursery(poll=pid), out))
        return begun[-1]

    yield begin
    for process in begun:
        process.end()


def check_saved(folder: Path, said: str) -> int:
    """Whole, at the step that the run says; it returns that."""
    status = Run(folder).status
    step = status["step"]
    assert (status["state"], checkpoint.steps(folder / "checkpoints")) == ("stopped", [step]), said
    assert not checkpoint.damage(folder / "checkpoints" / f"step-{step:09d}")
    assert f"resume it with:\n    ordsmed pretrain {folder}" in said
    return int(step)


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        pytest.param(name, workers, marks=() if (name, workers) == ("SIGTERM", 2) else pytest.mark.long)
        for name in NAMES
        for workers in (0, 2)
    ],
)
def test_alone(start: Callable[..., Process], tmp_path: Path, name: str, workers: int) -> None:
    folder, number, words = tmp_path / "run", signal.Signals[name], f"layout.workers={workers}"
    process = start(words)
    process.until((folder / "metrics.jsonl").exists)
    os.killpg(process.pid, number)
    assert process.wait() == 128 + number
    step = check_saved(folder, process.said)
    again = start(words, **{STOP_AT: str(step + MORE)})
    assert again.wait() == 0, again.said
    assert checkpoint.steps(folder / "checkpoints")[-1] == step + MORE


def test_a_killed_row_process_loses_the_run_in_one_line(start: Callable[..., Process], tmp_path: Path) -> None:
    """It ends as if it had been killed itself, which a job tries again, and the same command resumes it."""
    folder, words = tmp_path / "run", ("layout.workers=2", "save=2", "log=1")
    process = start(*words)
    process.until((folder / "metrics.jsonl").exists)
    process.until(lambda: checkpoint.steps(folder / "checkpoints"))
    killed = process.ranks[0]
    os.kill(killed, signal.SIGKILL)
    assert process.wait() == Lost.status
    (complaint,) = (line for line in process.said.splitlines() if line.startswith("ordsmed: "))
    assert complaint.startswith(f"ordsmed: a data worker: process {killed} was killed"), complaint
    status = Run(folder).status
    assert (status["state"], f"ordsmed: {status['why']}") == ("failed", complaint)
    step = checkpoint.steps(folder / "checkpoints")[-1]
    again = start(*words, **{STOP_AT: str(step + MORE)})
    assert again.wait() == 0, again.said
    assert "why" not in Run(folder).status


@pytest.mark.parametrize(("rank", "saved"), [(0, False), (1, False), (0, True)])
def test_while_processes_meet_a_signal_ends_them(
    start: Callable[..., Process], tmp_path: Path, rank: int, saved: bool
) -> None:
    """The printed command resumes only if there is something to resume."""
    if saved:
        (tmp_path / "run" / "checkpoints" / "step-000000004").mkdir(parents=True)
        (tmp_path / "run" / "status.json").write_text('{"verb": "pretrain", "state": "stopped"}')
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(unused.getsockname()[1])}
    fault = 'before(ranks, "_first_store", lambda *_: mark("connecting"))'
    process = start(RANK=str(rank), WORLD_SIZE="2", FAULT=fault, **place)
    process.until((tmp_path / "connecting").exists)
    time.sleep(0.5)  # it waits inside torch by then
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM, process.said
    if rank == 0:
        title = "finished work is kept, resume with" if saved else "nothing was kept, start again with"
        assert f"ordsmed: stopped; {title}:\n    ordsmed pretrain " in process.said


@pytest.mark.long
def test_workers_that_are_started_by_a_server(start: Callable[..., Process], tmp_path: Path) -> None:
    """From Python 3.14 on they are forked from a process that multiprocessing keeps, which is in the group as well."""
    fault = "import multiprocessing; multiprocessing.set_start_method('forkserver', force=True)"
    process = start("layout.workers=2", "objective.kind=lab.faulty", FAULT=fault, PYTHONPATH=str(KIT))
    process.until((tmp_path / "run" / "metrics.jsonl").exists)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    check_saved(tmp_path / "run", process.said)


def perform(command: list[str], folder: Path, ask: Callable[[subprocess.Popen[str]], Any], **env: str) -> str:
    """Start a run by a launcher, ask it to stop when it is under way; what it says."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore", **env}
    log = folder.parent / "said.txt"
    with log.open("w") as said:
        process = subprocess.Popen(command, env=env, stdout=said, stderr=said, text=True, start_new_session=True)
    started: list[int] = []
    try:
        until = time.monotonic() + PATIENT
        while not (folder / "metrics.jsonl").exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        started = below(process.pid)
        ask(process)
        assert process.wait(PATIENT) != 0
    finally:
        process.kill()
        process.wait()
        for pid in started:  # none is left running by a launcher that ended alone
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return log.read_text()


def below(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    parents = dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    inner = {pid}
    for _ in range(4):  # generations
        inner |= {child for child, parent in parents.items() if parent in inner}
    return sorted(inner - {pid})


def ours(recipe: Recipe, workers: int) -> list[str]:
    path = recipe("run", steps=1_000_000, save=0, validate=0)
    return ["-m", "ordsmed", "pretrain", str(path), "--yes", f"layout.workers={workers}"]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [0, 2] if FULL else [2])
def test_torchrun(recipe: Recipe, tmp_path: Path, name: str, workers: int) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    command = [*torchrun, "--signals-to-handle", ",".join(NAMES), *ours(recipe, workers)]
    said = perform(command, tmp_path / "run", lambda run: os.killpg(run.pid, signal.Signals[name]))
    check_saved(tmp_path / "run", said)


def slurm() -> str:
    """Why there is no Slurm here to try; empty where there is."""
    if not shutil.which("srun"):
        return "no Slurm on this machine"
    up = subprocess.run(["sinfo", "--noheader", "--states=idle"], capture_output=True, text=True, check=False)
    return "" if up.stdout.strip() else "no node of Slurm is idle"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [0, 2])
def test_srun(recipe: Recipe, tmp_path: Path, name: str, workers: int) -> None:
    """`scancel --signal`, as a limit or a preemption does."""
    if why := slurm():
        pytest.skip(why)
    job = f"ordsmed-{uuid.uuid4().hex}"

    def ask(run: subprocess.Popen[str]) -> None:
        queued = subprocess.run(
            ["squeue", "--noheader", f"--name={job}", "--format=%A"], capture_output=True, text=True, check=True
        )
        subprocess.run(["scancel", f"--signal={name.removeprefix('SIG')}", f"{queued.stdout.strip()}.0"], check=True)

    command = ["srun", f"--job-name={job}", "--ntasks=1", sys.executable, *ours(recipe, workers)]
    said = perform(command, tmp_path / "run", ask)
    check_saved(tmp_path / "run", said)
    assert "Traceback" not in said

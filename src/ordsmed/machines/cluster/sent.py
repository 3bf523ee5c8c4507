"""Submit scripts to Slurm, keep a list of them, and report the state of each job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.folder import read_status
from ordsmed.base.screen import table
from ordsmed.machines.cluster.submit import JOBS, LIST, JobScript
from ordsmed.machines.sites import slurm

MESSAGE = "ordsmed: "  # starts the lines of a log that say why a process waits or ended
TAIL = 10_000  # bytes at the end of a log that are searched for such a line


def queue(written: JobScript, chain: int = 0) -> list[str]:
    """Submit a script to Slurm after the jobs that make its data, and return the job numbers.

    With `chain`, submit it that many times, each job starting after the previous one.
    """
    before = ""
    for data in written.data:
        before = _submit(data, before, well=True)
    numbers: list[str] = []
    for _ in range(max(1, chain)):
        numbers.append(_submit(written, numbers[-1] if numbers else before, well=not numbers))
    return numbers


def _submit(written: JobScript, after: str, *, well: bool) -> str:
    job = written.job
    with files.survive_disk(job.log):
        job.log.parent.mkdir(parents=True, exist_ok=True)
    number = slurm.send(written.path, after=after, well=well)
    entry = {
        "job": number,
        "title": job.title,
        "site": job.place.name,
        "script": str(written.path),
        "log": str(job.log),
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "words": list(job.words),
        "folder": str(job.saves),
        "tries": str(job.record),
        "retries": job.retries,
    }
    with files.survive_disk(JOBS / LIST), (JOBS / LIST).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    return number


def submitted_jobs() -> tuple[list[dict[str, Any]], str]:
    """Return all jobs that were submitted from this folder, with states and logs, and why some states are unknown."""
    if not (JOBS / LIST).is_file():
        problem = "does not exist: no job was submitted from this folder"
        raise DataError(JOBS / LIST, problem, "", "`ordsmed submit` submits one")
    jobs = files.read_lines(JOBS / LIST)
    states, silent = slurm.states([job["job"] for job in jobs])
    return [{**job, **_present_state(job, states.get(job["job"], ""))} for job in jobs], silent


def _present_state(job: dict[str, Any], state: str) -> dict[str, Any]:
    """Return a job's state by Slurm, or by its run folder, and its logs, last message and lost nodes."""
    number = job["job"]
    pattern = job["log"].replace("%j", number).replace("%A", number).replace("%a", "*")
    tries = _lost_nodes(Path(job.get("tries", "")), number)
    logs = sorted(Path(pattern).parent.glob(Path(pattern).name))
    return {
        "state": state or _by_folder(job),
        "log": pattern,
        "lost": tries,
        "logs": list(map(str, logs)),
        "last": "" if state == "COMPLETED" else next(filter(None, map(_last_message, reversed(logs))), ""),
    }


def _last_message(log: Path) -> str:
    """Return the last line at the end of a log that says why a job waits or ended; empty if there is none.

    Slurm's own lines may follow it. If the run continues, its later output replaces the message.
    """
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, os.path.getsize(log) - TAIL))
        lines = file.read().decode(errors="replace").splitlines()
        while lines and re.match(r"srun: |slurmstepd: |\s*$", lines[-1]):
            lines.pop()
        if lines and lines[-1].startswith(MESSAGE):
            return lines[-1].removeprefix(MESSAGE)
    return ""


def _by_folder(job: dict[str, Any]) -> str:
    state = read_status(Path(job["folder"])).get("state") if job.get("folder") else None
    return f"left the queue; {job['folder']} is {state}" if state else "left the queue"


def _lost_nodes(path: Path, number: str) -> list[str]:
    """Return the nodes that a job lost, one entry per loss; `-` for an unknown node."""
    if not path.is_file():
        return []
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [row[3] for row in rows if len(row) > 3 and row[:2] == [number, "lost"]]


def status() -> list[str]:
    jobs, silent = submitted_jobs()
    rows = [[job["job"], _state(job), job["title"], job["site"], job["at"], job["log"]] for job in jobs]
    notes = [f"{silent}: the state of a job that left the queue is that of its folder"] if silent else []
    last = [f"{job['job']}: {job['last']}" for job in jobs if job["last"]]
    return [*table([["job", "state", "what", "site", "submitted", "log"], *rows]), *last, *notes]


def _state(job: dict[str, Any]) -> str:
    lost = f"; lost {', '.join(job['lost'])} ({len(job['lost'])} of {job['retries']} tries)" if job["lost"] else ""
    return job["state"] + lost

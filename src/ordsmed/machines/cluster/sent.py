"""Sent: scripts handed to Slurm, the list of those, and how each stands, whatever Slurm still knows of it."""

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
from ordsmed.base.launch import slurm
from ordsmed.base.screen import table
from ordsmed.machines.cluster.submit import JOBS, LIST, Written

MESSAGE = "ordsmed: "  # begins the lines in a log that say why a process waits or ended
TAIL = 10_000  # bytes at the end of a log in which such a line is looked for


def queue(written: Written, chain: int = 0) -> list[str]:
    """Hand the script to Slurm, behind those that make its data, `chain` times one behind the other; their numbers."""
    before = ""
    for data in written.data:
        before = _sent(data, before, well=True)
    numbers: list[str] = []
    for _ in range(max(1, chain)):
        numbers.append(_sent(written, numbers[-1] if numbers else before, well=not numbers))
    return numbers


def _sent(written: Written, after: str, *, well: bool) -> str:
    """Hand one in and note it; its number."""
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


def sent() -> tuple[list[dict[str, Any]], str]:
    """All jobs that were sent in from here, each with its state and its logs; and why some states are not known."""
    if not (JOBS / LIST).is_file():
        problem = "is not there: no job was sent in from this folder"
        raise DataError(JOBS / LIST, problem, "", "`ordsmed submit` sends one in")
    jobs = files.read_lines(JOBS / LIST)
    states, silent = slurm.states([job["job"] for job in jobs])
    return [{**job, **_today(job, states.get(job["job"], ""))} for job in jobs], silent


def _today(job: dict[str, Any], state: str) -> dict[str, Any]:
    """How it stands: by Slurm, else by the folder that it fills; where its logs are, and what it lost."""
    number = job["job"]
    pattern = job["log"].replace("%j", number).replace("%A", number).replace("%a", "*")
    tries = _lost(Path(job.get("tries", "")), number)
    logs = sorted(Path(pattern).parent.glob(Path(pattern).name))
    return {
        "state": state or _by_folder(job),
        "log": pattern,
        "lost": tries,
        "logs": list(map(str, logs)),
        "last": "" if state == "COMPLETED" else next(filter(None, map(_last_message, reversed(logs))), ""),
    }


def _last_message(log: Path) -> str:
    """Return the last line at the end of a log that says why a job waits or ended; empty if none does.

    Slurm's own lines may follow it. A run that trains on writes others, which push it out.
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
    """Of a job that Slurm knows no more."""
    state = read_status(Path(job["folder"])).get("state") if job.get("folder") else None
    return f"left the queue; {job['folder']} is {state}" if state else "left the queue"


def _lost(path: Path, number: str) -> list[str]:
    """The nodes that a job lost, a word each time (`-`: not known which)."""
    if not path.is_file():
        return []
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [row[3] for row in rows if len(row) > 3 and row[:2] == [number, "lost"]]


def status() -> list[str]:
    jobs, silent = sent()
    rows = [[job["job"], _state(job), job["title"], job["site"], job["at"], job["log"]] for job in jobs]
    notes = [f"{silent}: of jobs that left the queue the folder says how they ended"] if silent else []
    last = [f"{job['job']}: {job['last']}" for job in jobs if job["last"]]
    return [*table([["job", "state", "what", "site", "sent in", "log"], *rows]), *last, *notes]


def _state(job: dict[str, Any]) -> str:
    lost = f"; lost {', '.join(job['lost'])} ({len(job['lost'])} of {job['retries']} tries)" if job["lost"] else ""
    return job["state"] + lost

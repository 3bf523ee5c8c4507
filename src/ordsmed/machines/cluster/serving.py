"""Batch jobs that serve models on one node, protected by a token and reached through an SSH tunnel.

models, wish -> BatchJob (one process) -> work/jobs/serve-NAME-1.sh, and NAME.token next to it
            the job's log, once it runs:  ssh -N -L 8000:n12:43211 me@login
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch.site import Destination
from ordsmed.base.screen import command
from ordsmed.machines.cluster import submit
from ordsmed.machines.cluster.submit import JOBS, JobRequest, JobScript
from ordsmed.machines.sites import resources, slurm
from ordsmed.weights.origin import Origin

VERB = "serve"
SAVE = 60  # seconds before the time limit at which the server finishes its accepted requests
READABLE = 0o077  # permission bits of group and others


def prepare(verb: str, words: Sequence[str], request: JobRequest, *, out: str = "") -> JobScript:
    """Write the script of a job that serves models until its time limit. Nothing is submitted."""
    if not words:
        raise RecipeError(f"submit {verb}", "names no model", f"`{command('submit', verb)} RUN... --site SITE`")
    _check_alone(request)
    models = [_absolute(word) for word in words]
    location = Destination.find(request.site)
    _check_installed(location, request)
    stem = re.sub(r"[^\w.-]+", "-", _name(words[0]))
    title = f"{verb}-{stem}"
    token = request.token or str(_token(JOBS / f"{title}.token"))
    gpus = int(location.partition.gpu != "none") if request.gpus is None else request.gpus
    cores = resources.cores_of(location, gpus, 1, request.cores)
    hours = submit.limit(request.time, min(submit.LIMIT, location.partition.hours or submit.LIMIT))
    listening = ("--host", "0.0.0.0", "--port", "0", "--token-file", str(Path(token).absolute()))
    job = slurm.BatchJob(
        words=(verb, *models, *listening, *request.served),
        place=location,
        title=title,
        folder=Path.cwd(),
        hours=hours,
        gpus=gpus,
        cores=cores,
        memory=resources.memory_flag(location, gpus, cores, request.memory),
        account=request.account,
        quality=request.quality or location.partition.quality,
        options=resources.options(request.options, location),
        requeue=False,
        retries=0,
        save=SAVE if request.save is None else request.save,
        container=request.container or location.site.container,
        overlay=request.overlay,
        enroot=request.enroot,
    )
    slurm.check(job)
    job_written = submit.write_script(job, out)
    lines = [
        *resources.notes(location, gpus, cores, job.memory),
        f"{token}: its token, which clients must send (ORDSMED_TOKEN=$(cat {token}) for `ordsmed.open`)",
        f"{job_written.job.log}: the log (%j is the job's number); it has the `ssh -L` command to reach the server",
    ]
    return replace(job_written, lines=tuple(lines))


def _check_alone(request: JobRequest) -> None:
    for flag, wrong in (
        ("--nodes", request.nodes > 1),
        ("--tasks", request.tasks > 1),
        ("--gpus", (request.gpus or 0) > 1),
        ("--parts", bool(request.parts)),
        ("--chain", not request.requeue),
        ("--spares", bool(request.spares)),
        ("--torchrun", request.torchrun),
        ("--packed", bool(request.packed)),
    ):
        if wrong:
            raise RecipeError(flag, "found with serve, which is one process", "none", "submit one job per server")


def _check_installed(destination: Destination, request: JobRequest) -> None:
    """Raise an error if the job's Python has no server package. The content of an image is not known here."""
    if not (request.container or request.overlay or destination.site.container) and not importlib.util.find_spec(
        "uvicorn"
    ):
        raise RecipeError("submit serve", "`uvicorn` is not installed", "", "pip install 'ordsmed[serve]'")


def _absolute(word: str) -> str:
    """Return a model, or NAME=MODEL, with an absolute path. Raise an error if the model does not exist."""
    name, sign, source = word.partition("=") if not Path(word).exists() else ("", "", word)
    source = source if sign else word
    Origin.of(source)
    return f"{name}{sign}{Path(source).absolute()}" if Path(source).exists() else word


def _name(word: str) -> str:
    return Path(word).absolute().name if Path(word).exists() else word.partition("=")[0]


def _token(path: Path) -> Path:
    """Return a token file that only its owner can read; create it if it does not exist."""
    with files.survive_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if path.stat().st_mode & READABLE:
                raise RecipeError(
                    path, "can be read by other users", "a file that only you can read", f"chmod 600 {path}"
                )
            return path
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    return path

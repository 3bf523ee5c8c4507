"""Batch jobs that run `doctor` or `validate` on a given number of nodes.

verb, wish -> BatchJob (one process per GPU, not requeued) -> work/jobs/doctor-SITE-1.sh
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ordsmed.base.errors import RecipeError
from ordsmed.base.launch.site import Destination, absolute
from ordsmed.machines.cluster import submit
from ordsmed.machines.cluster.submit import JobRequest, JobScript
from ordsmed.machines.sites import resources, slurm

VERBS = ("doctor", "validate")
HOUR = 1.0  # hours; enough for both verbs on any number of nodes
SAVE = 60  # seconds before the time limit at which the job is warned


def prepare(verb: str, words: Sequence[str], request: JobRequest, *, out: str = "") -> JobScript:
    """Write the script of a job that checks the nodes it runs on. Nothing is submitted."""
    if words:
        raise RecipeError(f"submit {verb}", f"found {words[0]}", f"none: `{verb}` has no settings")
    if request.parts or not request.requeue:
        flag = "--parts" if request.parts else "--chain"
        raise RecipeError(flag, f"found with {verb}, which is one job", "none")
    location = Destination.find(request.site)
    gpus = submit.gpus_of(location, request.gpus)
    tasks = request.tasks or gpus or 1
    cores = resources.cores_of(location, gpus, tasks, request.cores)
    stem = re.sub(r"[^\w.-]+", "-", Path(location.name).stem)
    title = f"{verb}-{stem}-{location.partition.name}"
    more = ["--account", request.account] if verb == "doctor" and request.account else []
    more += ["--out", str(Path("work") / title)] if verb == "validate" else []
    part = location.partition
    job = slurm.BatchJob(
        words=(verb, "--site", _named(location, request.site), *more),
        place=location,
        title=title,
        folder=Path.cwd(),
        hours=submit.limit(request.time, min(HOUR, part.hours or HOUR)),
        nodes=request.nodes,
        gpus=gpus,
        tasks=tasks,
        cores=cores,
        memory=resources.memory_flag(location, gpus, cores * tasks, request.memory),
        account=request.account,
        quality=request.quality or part.quality,
        options=resources.options(request.options, location),
        requeue=False,
        retries=0,
        save=SAVE if request.save is None else request.save,
        container=request.container or location.site.container,
        enroot=request.enroot,
        torchrun=request.torchrun,
    )
    slurm.check(job)
    return replace(submit.write_script(job, out), lines=tuple(resources.notes(location, gpus, cores, job.memory)))


def _named(destination: Destination, site: str) -> str:
    name = absolute(site)
    return name if name.endswith(f":{destination.partition.name}") else f"{name}:{destination.partition.name}"

"""Checks of the cluster: the site, its partition, the account and the cores of a process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ordsmed.base.errors import nearest
from ordsmed.base.ranks import process_info
from ordsmed.base.say import many
from ordsmed.machines.doctor.host import Host
from ordsmed.machines.doctor.outcome import Outcome, error, ok, warning

ACCOUNT_VARIABLES = ("SLURM_JOB_ACCOUNT", "SBATCH_ACCOUNT", "SLURM_ACCOUNT")  # variables that Slurm reads


def site(host: Host) -> Iterator[Outcome]:
    if host.place is None:
        yield ok("no site is named; `--site NAME` compares with its known facts (`ordsmed sites` lists them)")
        return
    settings = host.place.site
    named = f"{host.place.name}, partition {host.place.partition.name}"
    if settings.state == "retired":
        remedy = f"take {settings.successor}" if settings.successor else "take another"
        yield error(f"{host.place.name} is retired since {settings.until or 'some time'}", remedy)
    elif settings.state == "stopping":
        remedy = f"move to {settings.successor}" if settings.successor else "look for another"
        yield warning(f"{host.place.name} stops {settings.until or 'soon'}", remedy)
    else:
        yield ok(f"{named}; facts of {host.place.partition.checked or settings.checked or 'an unknown date'}")


def partition(host: Host) -> Iterator[Outcome]:
    """Check that Slurm has the partition and that it is up."""
    if not host.slurm:
        return
    answer = host.ask(["sinfo", "--noheader", "--format=%R|%a|%D|%T"])
    if answer is None:
        yield error("Slurm does not answer", "`sinfo` on a login node of the cluster; is its module loaded?")
        return
    rows = [line.strip().split("|") for line in answer.splitlines() if line.count("|") == 3]
    name = host.place.partition.queue if host.place else host.env.get("SLURM_JOB_PARTITION", "")
    if host.place and not name:
        yield ok(f"jobs for {host.place.partition.name} name no partition of Slurm's")
        return
    limits = [row for row in rows if row[0] == name]
    if not limits:
        yield error(f"Slurm has none called {name or '(none named)'}", nearest(name, {row[0] for row in rows}))
    elif all(row[1] != "up" for row in limits):
        yield error(f"{name} is {limits[0][1]}", "ask the site's support, or use another")
    else:
        out = sum(int(row[2]) for row in limits if row[3].rstrip("*~#!%$@+-").startswith(("down", "drain", "fail")))
        total = sum(int(row[2]) for row in limits)
        yield ok(f"{name} is up, {total - out} of {many(total, 'node')} in use or idle")


def account(host: Host) -> Iterator[Outcome]:
    """Check that an account is named if the site requires one, and that Slurm knows it for this user."""
    if not host.slurm:
        return
    needed = host.place is not None and host.place.site.account == "required"
    name = host.account or next((host.env[name] for name in ACCOUNT_VARIABLES if host.env.get(name)), "")
    words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={host.user}", "format=account"]
    known = sorted({line.strip() for line in (host.ask(words) or "").splitlines() if line.strip()})
    if not name and needed:
        remedy = f"`--account {known[0]}`" if known else "`--account NAME`, your project's"
        yield error(f"no account is named, but {host.place.name if host.place else ''} requires one", remedy)
    elif name and known and name not in known:
        yield error(f"{name} is not one of your accounts", nearest(name, known))
    elif name and not known:
        yield warning(f"{name}, which Slurm's accounting does not list", "check its spelling")
    else:
        yield ok(name or "no account is needed")


def cores(host: Host) -> Iterator[Outcome]:
    """Check that this process may use the cores of its job, or its share of the machine's cores."""
    allotted, together = allotted_cores(host), process_info(host.env).local_world
    if not host.slurm and len(host.bound) < allotted:
        users = many(together, "process", "uses", "use")
        yield warning(
            f"bound to {many(len(host.bound), 'core')} of {host.available}, which {users}",
            "start it unbound (`mpirun --bind-to none`, without `taskset`), or bind each process to its share",
        )
    elif host.slurm and host.cores < allotted:
        remedy = f"`srun --cpus-per-task={allotted}`, or `export SRUN_CPUS_PER_TASK={allotted}`"
        yield warning(f"{host.cores} for this process, {allotted} by its job: the GPU would wait for data", remedy)
    else:
        yield ok(f"{host.cores} for this process")


def allotted_cores(host: Host) -> int:
    """Return the cores that a process should have: those of its job, else its share of the machine's cores."""
    return _slurm_cores(host.env) if host.slurm else host.available // process_info(host.env).local_world


def _slurm_cores(env: Mapping[str, str]) -> int:
    """Return the cores per task that the job requested, else the task's share of the job's cores on this node.

    0 outside a job.
    """
    if env.get("SLURM_CPUS_PER_TASK", "").isdigit():
        return int(env["SLURM_CPUS_PER_TASK"])
    node = re.match(r"\d+", env.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return int(node[0]) // process_info(env).local_world if node else 0

"""Print sites: the list of all sites, and one site with its partitions."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from ordsmed.base import screen, settings
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.launch.site import Partition, Site
from ordsmed.base.say import many

UNKNOWN = "unknown"
MEMORY = {  # for values of `ask_memory`
    "fixed": "comes with nodes, cores or GPUs",
    "required": "must be requested with {flag}",
    "optional": "may be requested with {flag}",
}


def overview() -> list[str]:
    in_use, retired, broken = list[list[str]](), list[list[str]](), list[str]()
    for name in Site.names():
        try:
            site = Site.read(name)
        except OrdsmedError as error:
            broken.append(f"  {name}: {error}")
            continue
        gpus = ", ".join(dict.fromkeys(partition.gpu for partition in site.partition))
        row = [name, _state(site), gpus or str(site.layout.get("device", UNKNOWN)), site.owner or site.title]
        (retired if site.state == "retired" else in_use).append(row)
    return [*screen.table([["site", "state", "devices", "whose"], *in_use, *retired]), *broken]


def all_facts() -> list[dict[str, Any]]:
    entries = list[dict[str, Any]]()
    for name in Site.names():
        try:
            entries.append(facts(name))
        except OrdsmedError as error:
            entries.append({"name": name, "file": str(Site.path_of(name)), "error": str(error)})
    return entries


def facts(name: str) -> dict[str, Any]:
    return {"name": name, "file": str(Site.path_of(name)), **settings.plain(Site.read(name))}


def lines(name: str) -> Iterator[str]:
    site = Site.read(name)
    yield f"{name}: {site.title or 'a machine'}{f' ({site.owner})' if site.owner else ''}; {_state(site)}"
    yield f"  facts from {site.source or 'this file'}{f', read {site.checked}' if site.checked else ''}"
    yield f"  scheduler {site.scheduler}; account {site.account}; software by {', '.join(site.packages)}"
    if site.pip_torch != "unknown":
        yield f"  PyTorch by pip: {site.pip_torch}"
    torch = f" (torch {site.torch})" if site.torch else ""
    for kind, words in (("module", (*site.use, *site.modules)), ("container", (site.container,))):
        if any(words):
            yield f"  {kind}: {', '.join(words)}{torch}"
    if site.runtime != UNKNOWN:
        yield f"  containers are run by {site.runtime}"
    if site.offline is not None:
        yield f"  jobs have {'no' if site.offline else 'a'} access to the internet"
    yield from (f"  {key}={value}" for key, value in site.environment.items())
    if site.layout:
        yield f"  layout: {', '.join(f'{key} {value}' for key, value in site.layout.items())}"
    if site.partition:
        head = ["partition", "GPU", "a node", "arch", "cores", "GiB", "hours", "precision"]
        yield from screen.table([head, *(_row(partition, site) for partition in site.partition)])
        yield from _gpu_flags(site.partition)
        yield from _memory(site.partition)
        cpu = site.without_gpus
        yield f"  partition for jobs without GPUs: {cpu.name if cpu else UNKNOWN}"
        for part in site.partition:
            yield from _of_partition(part, torch)
    for quality in site.quality:
        limits = (_hours(quality.hours, ""), _most(quality.nodes, "node"), _most(quality.gpus, "GPU"))
        of = f"of {', '.join(quality.partitions)}" if quality.partitions else ""
        yield f"  --qos={quality.name}: {'; '.join(filter(None, (*limits, of, quality.note)))}"
    for location, note in [("", site.note), *((f"{partition.name}: ", partition.note) for partition in site.partition)]:
        if note:
            yield f"  {location}{note}"
    if missing := unknown(site):
        yield f"  unknown: {'; '.join(missing)}"


def unknown(site: Site) -> list[str]:
    """Return the facts that a job or an installation may need but the file does not have."""
    if not site.partition:
        return []
    slurm = site.scheduler != "none"
    holds = [*site.modules, *(name for part in site.partition for name in part.modules)]
    missing = {
        "account": slurm and site.account == UNKNOWN,
        "pip_torch": site.pip_torch == UNKNOWN and any(part.gpu != "none" for part in site.partition),
        "offline": slurm and site.offline is None,
        "runtime": site.runtime == UNKNOWN and "apptainer" in site.packages,
        "modules": "module" in site.packages and not holds,
        "a partition without GPUs": slurm and site.without_gpus is None,
    }
    of_partitions = [(part.name, _lacks(part, slurm)) for part in site.partition]
    return [
        *(fact for fact, is_missing in missing.items() if is_missing),
        *(f"{name}: {', '.join(keys)}" for name, keys in of_partitions if keys),
    ]


def _lacks(part: Partition, slurm: bool) -> list[str]:
    shared = slurm and not part.whole_nodes
    share = part.memory_per_gpu or part.memory_per_core or part.ask_memory == "fixed"
    keys = {
        "arch": True,
        "gpu": part.gpu == UNKNOWN,
        "gpus": part.gpu not in ("none", UNKNOWN),
        "cores": True,
        "memory": shared and not share,
        "ask_memory": shared,
        "hours": slurm and not part.quality,
    }
    return [key for key, matters in keys.items() if matters and getattr(part, key) in (None, UNKNOWN)]


def _memory(partitions: Sequence[Partition]) -> Iterator[str]:
    ways: dict[str, list[str]] = {}
    for part in partitions:
        way = MEMORY.get(part.ask_memory, "").format(flag=part.memory_flag)
        ways.setdefault(way, []).append(part.name)
    for way, users in ways.items():
        if way:
            of = f" of {', '.join(users)}" if len(ways) > 1 else ""
            yield f"  memory{of} {way}"


def _of_partition(part: Partition, torch: str) -> Iterator[str]:
    facts = (
        f"Slurm partition {part.queue or 'chosen by Slurm'}" if part.slurm else "",
        f"MIG {part.mig}" if part.mig else "",
        "whole nodes" if part.whole_nodes else "",
        _most(part.min_nodes, "node", "least"),
        _most(part.nodes, "node"),
        _most(part.min_gpus, "GPU", "least"),
        _most(part.max_gpus, "GPU"),
        f"--constraint={part.constraint}" if part.constraint else "",
        f"--qos={part.quality}" if part.quality else "",
        f"{', '.join(part.modules)}{torch}" if part.modules else "",
        " ".join(f"{key}={value}" for key, value in part.environment.items()),
    )
    if known := [fact for fact in facts if fact]:
        yield f"  {part.name}: {'; '.join(known)}"


def _most(count: int | None, thing: str, at: str = "most") -> str:
    return f"at {at} {many(count, thing)}" if count else ""


def _gpu_flags(partitions: Sequence[Partition]) -> Iterator[str]:
    flags: dict[str, list[str]] = {}
    for partition in partitions:
        if partition.gpu != "none":
            flags.setdefault(partition.ask, []).append(partition.name)
    for flag, users in flags.items():
        of = f" of {', '.join(users)}" if len(flags) > 1 else ""
        yield f"  GPUs{of} are requested with {flag}"


def _row(partition: Partition, site: Site) -> list[str]:
    usual = "*" if partition.name == (site.default or site.partition[0].name) else ""
    facts = (partition.gpu, partition.gpus, partition.arch, partition.cores, partition.memory)
    known = [UNKNOWN if fact is None else f"{fact:g}" if isinstance(fact, float) else str(fact) for fact in facts]
    if partition.gpu == "none":
        known[1] = "-"
    limit = next((quality.hours for quality in site.quality if quality.name == partition.quality), partition.hours)
    return [partition.name + usual, *known, _hours(limit), partition.layout.get("precision", "auto")]


def _hours(hours: float | None, unknown: str = UNKNOWN) -> str:
    return unknown if hours is None else many(hours, "hour")


def _state(site: Site) -> str:
    successor = f", see {site.successor}" if site.successor else ""
    if site.state == "retired":
        return f"out of service{f' since {site.until}' if site.until else ''}{successor}"
    if site.state == "stopping" and site.until and site.until < _today()[: len(site.until)]:
        return f"should have stopped {site.until}{successor}"
    return f"{site.state}{f' {site.until}' if site.until else ''}{successor}"


def _today() -> str:
    return datetime.date.today().isoformat()

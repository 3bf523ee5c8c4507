"""Sites in words: the list of all, and one with its partitions."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from ordsmed.base import screen, settings
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.launch.site import Partition, Site, names, path_of, read
from ordsmed.base.say import many

UNKNOWN = "unknown"


def overview() -> list[str]:
    """A line a site, those out of service last; then the files that cannot be read, each with its error."""
    in_use, retired, broken = list[list[str]](), list[list[str]](), list[str]()
    for name in names():
        try:
            site = read(name)
        except OrdsmedError as error:
            broken.append(f"  {name}: {error}")
            continue
        gpus = ", ".join(dict.fromkeys(partition.gpu for partition in site.partition))
        row = [name, _state(site), gpus or str(site.layout.get("device", UNKNOWN)), site.owner or site.title]
        (retired if site.state == "retired" else in_use).append(row)
    return [*screen.table([["site", "state", "devices", "whose"], *in_use, *retired]), *broken]


def all_facts() -> list[dict[str, Any]]:
    """Every site for other programs; of a file that cannot be read, why."""
    entries = list[dict[str, Any]]()
    for name in names():
        try:
            entries.append(facts(name))
        except OrdsmedError as error:
            entries.append({"name": name, "file": str(path_of(name)), "error": str(error)})
    return entries


def facts(name: str) -> dict[str, Any]:
    """One site as a table, for other programs."""
    return {"name": name, "file": str(path_of(name)), **settings.plain(read(name))}


def lines(name: str) -> Iterator[str]:
    """One site, whole; what is unknown is said to be."""
    site = read(name)
    yield f"{name}: {site.title or 'a machine'}{f' ({site.owner})' if site.owner else ''}; {_state(site)}"
    yield f"  facts from {site.source or 'this file'}{f', read {site.checked}' if site.checked else ''}"
    yield f"  scheduler {site.scheduler}; account {site.account}; software by {', '.join(site.packages)}"
    if site.pip_torch != "unknown":
        yield f"  PyTorch by pip: {site.pip_torch}"
    for kind, words in (("module", (*site.use, *site.modules)), ("container", (site.container,))):
        if any(words):
            yield f"  {kind}: {', '.join(words)}{f' (torch {site.torch})' if site.torch else ''}"
    yield from (f"  {key}={value}" for key, value in site.environment.items())
    if site.layout:
        yield f"  layout: {', '.join(f'{key} {value}' for key, value in site.layout.items())}"
    if site.partition:
        head = ["partition", "GPU", "a node", "arch", "cores", "GiB", "hours", "precision"]
        yield from screen.table([head, *(_row(partition, site) for partition in site.partition)])
        yield from _gpu_flags(site.partition)
    for quality in site.quality:
        yield f"  --qos={quality.name}: {'; '.join(filter(None, (_hours(quality.hours, ''), quality.note)))}"
    for place, note in [("", site.note), *((f"{partition.name}: ", partition.note) for partition in site.partition)]:
        if note:
            yield f"  {place}{note}"


def _gpu_flags(partitions: Sequence[Partition]) -> Iterator[str]:
    """How Slurm is asked for GPUs, with the partitions where these ways differ."""
    flags: dict[str, list[str]] = {}
    for partition in partitions:
        if partition.gpu != "none":
            flags.setdefault(partition.ask, []).append(partition.name)
    for flag, users in flags.items():
        of = f" of {', '.join(users)}" if len(flags) > 1 else ""
        yield f"  GPUs{of} are asked for by {flag}"


def _row(partition: Partition, site: Site) -> list[str]:
    usual = "*" if partition.name == (site.default or site.partition[0].name) else ""
    facts = (partition.gpu, partition.gpus, partition.arch, partition.cores, partition.memory)
    known = [UNKNOWN if fact is None else f"{fact:g}" if isinstance(fact, float) else str(fact) for fact in facts]
    return [partition.name + usual, *known, _hours(partition.hours), partition.layout.get("precision", "auto")]


def _hours(hours: float | None, unknown: str = UNKNOWN) -> str:
    return unknown if hours is None else many(hours, "hour")


def _state(site: Site) -> str:
    successor = f", see {site.successor}" if site.successor else ""
    if site.state == "retired":
        return f"out of service{f' since {site.until}' if site.until else ''}{successor}"
    if site.state == "stopping" and site.until and site.until < _today()[: len(site.until)]:
        return f"was to stop {site.until}{successor}"
    return f"{site.state}{f' {site.until}' if site.until else ''}{successor}"


def _today() -> str:
    return datetime.date.today().isoformat()

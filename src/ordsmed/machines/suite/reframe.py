"""Write files for ReFrame: the validation suite as a test at several scales, and a configuration of the systems.

sites -> settings.py (partitions, GPU options, modules, results.db) · ordsmed_validate.py (1, 2, 4, 16 nodes)
"""

from __future__ import annotations

import pprint
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch.site import Destination, Partition, Site
from ordsmed.machines.doctor.host import answer
from ordsmed.machines.sites import resources

SCALES = (1, 2, 4, 16)  # nodes
CONFIGURATION, TEST, RESULTS = "settings.py", "ordsmed_validate.py", "results.db"

SEVERAL = """

`reframe --system NAME` says which of them this is, where the machine's name is not in `hostnames`; `executable` of a
partition is how ordsmed is started there.
"""
SOURCE = '''\
"""`ordsmed validate` at several scales; written by `ordsmed validate --reframe`.

reframe -C {configuration} -c {test} -l          lists; -r runs; --report-junit=junit.xml
reframe -C {configuration} --performance-compare='now-30d:now-1d/now-1d:now/mean:/+system'
                                                 what each speed was before, and is

Of each run validate/report.json is kept: `ordsmed validate --collect` reads those of all systems.
"""

import json
import os
import re

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class ordsmed_validate(rfm.RunOnlyRegressionTest):
    """One fixed list, the same on every machine."""

    nodes = parameter({scales!r})
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = {executable!r}
    time_limit = "1h"
    exclusive_access = False
    keep_files = ["validate"]

    @run_after("init")
    def give_it_a_scale(self):
        self.tags = {{f"{{self.nodes}}_node" + "s" * (self.nodes > 1)}}
        self.executable_opts = [*{words!r}, "--out", "validate"]

    @run_after("setup")
    def shape(self):
        if self.nodes > self.current_partition.extras.get("nodes", self.nodes):
            self.skip(f"{{self.current_partition.name}} gives no {{self.nodes}} nodes")
        gpus = self.current_partition.extras.get("gpus", 0)
        self.num_tasks_per_node = gpus or 1
        self.num_tasks = self.nodes * self.num_tasks_per_node
        cores = self.current_partition.extras.get("cores", 0)
        if cores:
            self.num_cpus_per_task = max(1, cores // self.num_tasks_per_node)
        if gpus:
            self.extra_resources = {{"gpus": {{"gpus": gpus, "total": gpus * self.nodes}}}}
        self.executable = self.current_partition.extras.get("executable", self.executable)
        site = self.current_partition.extras.get("site", "")
        if site:
            self.executable_opts += ["--site", site]

    @sanity_function
    def nothing_is_wrong(self):
        return sn.assert_found(r"^\\d+ ok, 0 wrong, \\d+ absent", self.stdout)

    @performance_function("items")
    def green(self):
        return sn.extractsingle(r"^(\\d+) ok, 0 wrong", self.stdout, 1, int)

    @performance_function("GB/s")
    def all_reduce(self):
        return sn.extractsingle(r"(\\S+) all-reduce GB/s", self.stdout, 1, float) if self.num_tasks > 1 else sn.defer(0)

    @run_before("performance")
    def all_speeds(self):
        with open(os.path.join(self.stagedir, "validate", "report.json")) as file:
            rows = json.load(file)["items"]
        for row in rows:
            for unit, value in row["figures"].items():
                name = re.sub(r"\\W+", "_", f"{{row['item']}} {{row['case']}}")
                self.perf_variables[name] = sn.make_performance_function(sn.defer(value), unit)
'''


Ask = Callable[[Sequence[str]], str | None]


def write(folder: Path, sites: Sequence[Destination], ask: Ask = answer) -> list[Path]:
    """Write the configuration and the test. Without sites, they are for this machine."""
    configuration_text = configuration(sites, folder, ask)
    folder.mkdir(parents=True, exist_ok=True)
    source = SOURCE.format(
        scales=list(SCALES), executable=_executable(sites), words=["validate"], configuration=CONFIGURATION, test=TEST
    )
    paths = [folder / CONFIGURATION, folder / TEST]
    files.write_text(paths[0], configuration_text)
    files.write_text(paths[1], source)
    return paths


def _executable(sites: Sequence[Destination]) -> str:
    """Return the command of ordsmed: this Python, or, for several systems, the command on each system's PATH."""
    return "ordsmed" if sites[1:] else f"{shlex.quote(sys.executable)} -m ordsmed"


def configuration(sites: Sequence[Destination], folder: Path, ask: Ask = answer) -> str:
    unkept = ask(["sinfo", "--version"]) is not None and ask(["sacct", "--noheader"]) is None
    names = [_name(location) for location in sites]
    if twice := [name for name in names if names.count(name) > 1]:
        wanted = "each system once; all its partitions are written"
        raise RecipeError("--site", f"found {twice[0]} twice", wanted, "call a site's file otherwise, or leave it out")
    systems = [_system(location, unkept, alone=not sites[1:]) for location in sites] or [
        _system(None, unkept, alone=True)
    ]
    storage = {"enable": True, "backend": "sqlite", "sqlite_db_file": str(folder.absolute() / RESULTS)}
    environments = [{"name": "default", "features": ["ordsmed"]}]
    table = {"systems": systems, "environments": environments, "storage": [storage]}
    titles = ", ".join(system["descr"] for system in systems)
    head = f"{titles} for ReFrame; written by `ordsmed validate --reframe`: to be checked by you."
    more = SEVERAL if sites[1:] else ""
    return f'"""{head}{more}"""\n\nsite_configuration = {pprint.pformat(table, width=100, sort_dicts=False)}\n'


def _name(destination: Destination) -> str:
    return Path(destination.name).stem


def _system(destination: Destination | None, unkept: bool, *, alone: bool) -> dict[str, Any]:
    name = _name(destination) if destination else "here"
    site = destination.site if destination else Site()
    every = site.partition or (Partition("this"),)
    partitions = [_partition(partition, site, destination, unkept) for partition in every]
    if not alone:
        for partition in partitions:
            partition["extras"]["executable"] = "ordsmed"
    loaded = (*site.use, *site.modules, *(name for partition in every for name in partition.modules))
    modules = "lmod" if loaded else "nomod"
    hostnames = [".*"] if alone else [f".*{re.escape(name)}"]
    return {
        "name": name,
        "descr": site.title or name,
        "hostnames": hostnames,
        "modules_system": modules,
        "partitions": partitions,
    }


def _partition(partition: Partition, site: Site, destination: Destination | None, unkept: bool) -> dict[str, Any]:
    """Return the configuration of a partition.

    `unkept` means that Slurm keeps no accounting of finished jobs, so ReFrame must use its `squeue` backend.
    """
    slurm = site.scheduler == "slurm"
    scheduler = "squeue" if unkept else "slurm"
    table: dict[str, Any] = {
        "name": partition.name,
        "scheduler": scheduler if slurm else "local",
        "launcher": "srun" if slurm else "local",
        "environs": ["default"],
        "max_jobs": 4,
        "prepare_cmds": [*partition.before, *site.use],
        "modules": [*site.modules, *partition.modules],
        "env_vars": [[key, value] for key, value in {**site.environment, **partition.environment}.items()],
    }
    if slurm:
        whole = Destination(destination.name if destination else "here", site, partition)
        memory = resources.memory_flag(whole, partition.gpus or 0, partition.cores or 0, must=False)
        table["access"] = [*partition.access, *([memory] if memory else [])]
    if partition.gpu != "none":
        table["devices"] = [
            {"type": "gpu", "arch": partition.gpu, **({"num_devices": partition.gpus} if partition.gpus else {})}
        ]
        table["resources"] = [{"name": "gpus", "options": [partition.ask]}]
    facts = {
        "gpus": partition.gpus or (1 if partition.gpu != "none" else 0),
        "cores": partition.cores or 0,
        "nodes": partition.nodes,
    }
    table["extras"] = {key: value for key, value in facts.items() if value}
    if destination:
        path = Path(destination.name)
        table["extras"]["site"] = f"{path.absolute() if path.is_file() else destination.name}:{partition.name}"
    return table

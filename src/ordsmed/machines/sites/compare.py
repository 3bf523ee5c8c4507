"""Compare a site file with the machine: what Slurm and the modules say, and what could not be checked.

saga.toml; sinfo, sacctmgr, module, sbatch --test-only -> same, differs (with the line to write), not asked
"""

import getpass
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ordsmed.base.errors import RecipeError, RunError, meant, nearest
from ordsmed.base.launch.site import Destination, Partition, Site
from ordsmed.machines.sites import resources, slurm
from ordsmed.machines.sites.describe import unknown
from ordsmed.machines.sites.new_site import gpus_of_gres, hours_of

PATIENCE = 60.0  # seconds that a command may take
COLUMNS = "%P|%a|%l|%c|%m|%G|%s|%h|%f"  # partition, up, time, cores, MB, GPUs, nodes of a job, shared, features
SHORT = 10 / 60  # hours of the job that is tested with Slurm
LISTED = 6  # most modules listed as alternatives for a missing one
NO_ACCOUNTS = re.compile(
    r"not running|disabled|no.*accounting|not supported|unable to contact|connection refused", re.I
)
NEEDS_ACCOUNT = re.compile(r"\baccount", re.I)
NEEDS_MEMORY = re.compile(r"\bmem(ory)?\b", re.I)


@dataclass(frozen=True)
class SiteFact:
    state: Literal["same", "differs", "not asked"]
    about: str
    words: str
    remedy: str = ""

    @property
    def line(self) -> str:
        return f"{self.about}: {'; '.join(filter(None, (self.words, self.remedy)))}"


@dataclass(frozen=True)
class CommandOutput:
    status: int
    text: str
    errors: str

    @property
    def complaint(self) -> str:
        return (self.errors.strip().splitlines() or [f"exit status {self.status}"])[-1]


def ask(words: Sequence[str]) -> CommandOutput | None:
    """Run a command and return its output; None if the command does not exist."""
    if not shutil.which(words[0]):
        return None
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandOutput(-1, "", str(error))
    return CommandOutput(done.returncode, done.stdout, done.stderr)


def compare(name: str, account: str = "") -> dict[str, Any]:
    site = Site.read(name, "NAME")
    Destination(name, site, site.partition[0] if site.partition else Partition("this")).refuse_retired()
    findings = list(_findings(name, site, account))
    states = ("same", "differs", "not asked")
    by_state = {state: [asdict(fact) for fact in findings if fact.state == state] for state in states}
    counted = {state.replace(" ", "_"): facts for state, facts in by_state.items()}
    return {"name": name, "file": str(Site.path_of(name)), "checked": site.checked, **counted, "unknown": unknown(site)}


def lines(report: dict[str, Any]) -> Iterator[str]:
    counts = f"{len(report['same'])} as in the file, {len(report['differs'])} different"
    date = report["checked"] or "an unknown date"
    yield f"{report['name']}: {counts}, {len(report['not_asked'])} not checked; the file is from {date}"
    for key, title in (("differs", "differs"), ("not_asked", "unchecked")):
        yield from (f"  {title:<9}  {SiteFact(**fact).line}" for fact in report[key])
    if report["unknown"]:
        yield f"  unknown    {'; '.join(report['unknown'])}"
    if report["differs"]:
        yield f"correct a copy of {report['file']}, and name it with --site"


def _findings(name: str, site: Site, account: str) -> Iterator[SiteFact]:
    if site.scheduler == "slurm":
        yield from _slurm(name, site, account)
    elif shutil.which("sinfo"):
        yield SiteFact(
            "differs", "scheduler", f"{site.scheduler} in the file, Slurm here", 'write `scheduler = "slurm"`'
        )
    for location in _by_modules(name, site):
        yield from _modules(location)
    yield from _container(site)
    yield SiteFact(
        "not asked", "network", "whether the nodes of jobs reach the internet", "run `ordsmed doctor` in a job"
    )


# --- Slurm


def _slurm(name: str, site: Site, account: str) -> Iterator[SiteFact]:
    answer = ask(["sinfo", "--noheader", f"--format={COLUMNS}"])
    if answer is None:
        raise RunError("sinfo", "is not on this machine", f"Slurm, on a login node of {name}", "log in there")
    if answer.status:
        raise RunError("sinfo", answer.complaint, "an answer of Slurm", "is it a login node? Is its module loaded?")
    rows = [line.strip().split("|") for line in answer.text.splitlines() if line.count("|") == 8]
    for partition in site.partition:
        yield from _partition(partition, rows)
    known = {part.queue for part in site.partition}
    more = sorted({row[0].rstrip("*") for row in rows} - known - {_usual(rows)})
    if more:
        yield SiteFact("not asked", "partitions", f"also in Slurm: {', '.join(more)}", "`ordsmed sites new` reads them")
    yield from _qualities(site)
    yield from _accounts(site, account)
    yield from _tests(name, site, account, {row[0].rstrip("*") for row in rows})


def _usual(rows: Sequence[Sequence[str]]) -> str:
    return next((row[0].rstrip("*") for row in rows if row[0].endswith("*")), "")


def _partition(part: Partition, rows: Sequence[Sequence[str]]) -> Iterator[SiteFact]:
    about = f"partition {part.name}"
    queue = part.queue or ("" if part.quality or part.constraint else _usual(rows))
    if not queue:
        yield SiteFact("not asked", about, "its jobs name no partition, so only sbatch can check it")
        return
    here = [row for row in rows if row[0].rstrip("*") == queue]
    if not here:
        near = nearest(queue, {row[0].rstrip("*") for row in rows})
        yield SiteFact("differs", about, f"Slurm has no partition {queue}", near)
        return
    if all(row[1] != "up" for row in here):
        yield SiteFact("differs", about, f"is {here[0][1]}", "ask the site's support, or use another")
    if part.constraint:
        features = {word for row in here for word in re.split(r"[,\s]+", row[8])}
        wanted = [word for word in re.split(r"[&|,()\[\]*]+", part.constraint) if word]
        if gone := [word for word in wanted if word not in features]:
            yield SiteFact("differs", about, f"no node has the feature {gone[0]}", meant(gone[0], features))
        here = [row for row in here if set(wanted) <= set(re.split(r"[,\s]+", row[8]))] or here
    for key, written, actual in _numbers(part, here):
        if written is None and actual is None:
            continue
        if written is None:
            yield SiteFact("not asked", about, f"{key} is not in the file, {actual} here", f"write `{key} = {actual}`")
        elif written == actual:
            yield SiteFact("same", about, f"{key} {written}")
        else:
            yield SiteFact("differs", about, f"{key} {written} in the file, {actual} here", f"write `{key} = {actual}`")


def _numbers(part: Partition, rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, value in the file (None if missing) and value in Slurm.

    Limits that Slurm does not have are left out.
    """
    limits = [hours for row in rows if (hours := hours_of(row[2])) is not None]
    if limits:
        yield "hours", _plain(part.hours), _plain(max(limits))
    yield "cores", *_within(part.cores, [int(row[3].rstrip("+")) for row in rows if row[3].rstrip("+").isdigit()])
    memory = [int(row[4].rstrip("+")) / 1024 for row in rows if row[4].rstrip("+").isdigit()]
    yield "memory", *_within(part.memory, memory, slack=0.03)
    if sizes := [int(top) for row in rows if (top := row[6].partition("-")[2] or row[6]).isdigit()]:
        yield "nodes", part.nodes, max(sizes)
    if exclusive := {row[7].startswith("EXCLUSIVE") for row in rows}:
        written = None if part.whole_nodes is None else str(part.whole_nodes).lower()
        if len(exclusive) == 1 and (written or exclusive == {True}):
            yield "whole_nodes", written, str(exclusive.pop()).lower()
    there = gpus_of_gres({row[5] for row in rows})
    if there.get("gpus") and not part.mig:
        yield "gpus", part.gpus, there["gpus"]
        if there["gpu"] != "unknown" and not _alike(part.gpu, there["gpu"]):
            yield "gpu", f'"{part.gpu}"', f'"{there["gpu"]}"'
    elif not there and part.gpu != "none":
        yield "gpu", f'"{part.gpu}"', '"none"'


def _alike(gpu: str, by_slurm: str) -> bool:
    """Return whether two GPU names are the same model. Slurm's names rarely include the memory size."""
    return gpu.partition("-")[0] == by_slurm.partition("-")[0]


def _plain(number: float | None) -> float | int | None:
    return int(number) if number is not None and number == int(number) else number and round(number, 2)


def _within(written: float | None, actual: Sequence[float], slack: float = 0.0) -> tuple[Any, Any]:
    """Return the written and the actual number.

    If some nodes are about as large as written, the two are equal; else the actual number is the smallest.
    """
    if not actual:
        return _plain(written), _plain(written)
    if written is not None and min(actual) * (1 - slack) <= written <= max(actual) * (1 + slack / 6):
        return _plain(written), _plain(written)
    return _plain(written), int(min(actual))


def _table(answer: CommandOutput) -> list[list[str]]:
    return [line.split("|") for line in answer.text.splitlines() if line.strip()]


def _unasked(about: str, answer: CommandOutput | None) -> SiteFact | None:
    """Return a fact that says why sacctmgr gave no answer; None if it did."""
    if answer is None:
        return SiteFact("not asked", about, "sacctmgr is not installed here")
    if answer.status or NO_ACCOUNTS.search(answer.errors):
        return SiteFact("not asked", about, f"sacctmgr: {answer.complaint}")
    return None


def _qualities(site: Site) -> Iterator[SiteFact]:
    limits = {quality.name: quality.hours for quality in site.quality}
    wanted = {part.quality for part in site.partition if part.quality} | limits.keys()
    if not wanted:
        return
    answer = ask(["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,maxwall"])
    if (unasked := _unasked("qualities of service", answer)) or answer is None:
        yield unasked or SiteFact("not asked", "qualities of service", "")
        return
    there = {row[0]: hours_of(row[1]) if len(row) > 1 else None for row in _table(answer)}
    for name in sorted(wanted):
        about, hours = f"qos {name}", limits.get(name)
        if name not in there:
            yield SiteFact("differs", about, "Slurm has no such quality of service", nearest(name, there))
        elif there[name] is not None and there[name] != hours:
            words = f"hours {_plain(hours)} in the file, {_plain(there[name])} here"
            yield SiteFact("differs", about, words, f"write `hours = {_plain(there[name])}`")
        else:
            yield SiteFact("same", about, "is there")


def _accounts(site: Site, account: str) -> Iterator[SiteFact]:
    if site.account == "none":
        return
    user = os.environ.get("USER") or getpass.getuser()
    words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}", "format=account,qos"]
    answer = ask(words)
    if (unasked := _unasked("account", answer)) or answer is None:
        yield unasked or SiteFact("not asked", "account", "")
        return
    known = sorted({row[0] for row in _table(answer)})
    if account and account not in known:
        yield SiteFact(
            "differs", "account", f"{account} is not one of your accounts", nearest(account, known) if known else ""
        )
    elif not known and site.account == "required":
        yield SiteFact(
            "differs", "account", "the site requires one, but Slurm lists none for you", "ask the site's support"
        )
    else:
        yield SiteFact("same", "account", account or f"your accounts: {', '.join(known) or 'none'}")


# --- sbatch


def _tests(name: str, site: Site, account: str, there: set[str]) -> Iterator[SiteFact]:
    """Test a small job per partition with `sbatch --test-only`. Nothing is queued."""
    if not shutil.which("sbatch"):
        yield SiteFact("not asked", "jobs", "sbatch is not installed here")
        return
    if site.account == "required" and not account:
        yield SiteFact("not asked", "jobs", "the site requires an account", "`--account NAME` tests jobs with it")
        return
    for part in site.partition:
        if not part.queue or part.queue in there:
            yield from _tested(Destination(name, site, part), account)


def _tested(destination: Destination, account: str) -> Iterator[SiteFact]:
    part, about = destination.partition, f"a job for {destination.partition.name}"
    if part.gpu != "none" and not part.gpus:
        yield SiteFact("not asked", about, "the number of GPUs per node is unknown")
        return
    whole = part.whole_nodes or (part.min_gpus or 1) > 1
    gpus = (part.gpus if whole else 1) or 1 if part.gpu != "none" else 0
    tasks = max(1, gpus)
    cores = resources.cores_of(destination, gpus, tasks)
    try:
        memory = resources.memory_flag(destination, gpus, cores * tasks)
    except RecipeError as error:
        yield SiteFact("not asked", about, error.found)
        return
    job = slurm.BatchJob(
        words=("version",),
        place=destination,
        title="ordsmed-check",
        folder=Path.cwd(),
        log=Path("/dev/null"),
        hours=min(SHORT, part.hours or SHORT),
        nodes=part.min_nodes or 1,
        gpus=gpus,
        tasks=tasks,
        cores=cores,
        memory=memory,
        account=account,
        quality=part.quality,
        requeue=False,
        save=60,
    )
    refused = _refused(job)
    if refused:
        missing = "ask_memory" if not memory and NEEDS_MEMORY.search(refused) else ""
        missing = "account" if not account and NEEDS_ACCOUNT.search(refused) else missing
        yield SiteFact("differs", about, f"sbatch: {refused}", f'write `{missing} = "required"`' if missing else "")
        return
    yield SiteFact("same", about, "sbatch accepts it")
    if memory and part.ask_memory in ("required", "unknown", "optional"):
        yield from _without_memory(job)


def _without_memory(job: slurm.BatchJob) -> Iterator[SiteFact]:
    part, about = job.place.partition, f"memory of {job.place.partition.name}"
    refused = _refused(replace(job, memory=""))
    if refused and part.ask_memory != "required":
        words = f"a job must request it (sbatch: {refused}), {part.ask_memory} in the file"
        yield SiteFact("differs", about, words, 'write `ask_memory = "required"`')
    elif not refused and part.ask_memory == "required":
        yield SiteFact("differs", about, "sbatch accepts a job that requests none", 'write `ask_memory = "optional"`')
    else:
        yield SiteFact("same", about, "must be requested" if refused else "need not be requested")


def _refused(job: slurm.BatchJob) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as file:
        file.write(slurm.script(job))
        file.flush()
        answer = ask(["sbatch", "--test-only", file.name])
    if answer is None or not answer.status:
        return ""
    return re.sub(r"^(sbatch|allocation failure): (error: )?", "", answer.complaint)


# --- modules and images


def _by_modules(name: str, site: Site) -> Iterator[Destination]:
    seen = set[tuple[str, ...]]()
    for part in site.partition or (Partition("this"),):
        destination = Destination(name, site, part)
        key = (*part.before, *site.use, *destination.modules)
        if destination.modules and key not in seen:
            seen.add(key)
            yield destination


def _modules(destination: Destination) -> Iterator[SiteFact]:
    part, about = destination.partition, f"modules of {destination.partition.name}"
    if part.arch not in ("unknown", platform.machine()):
        yield SiteFact("not asked", about, f"they are for {part.arch}, but this machine is {platform.machine()}")
        return
    text = [*part.before, *destination.site.use]
    for module in destination.modules:
        name = shlex.quote(module.partition("/")[0])
        text += [
            f"if module load {shlex.quote(module)} >/dev/null 2>&1; then echo {shlex.quote(f'loaded {module}')}",
            f"else echo {shlex.quote(f'gone {module}')}",
            f"module -t spider {name} 2>&1 || module -t avail {name} 2>&1; fi",
        ]
    answer = ask(["bash", "-lc", "\n".join(["type module >/dev/null 2>&1 || exit 9", *text])])
    if answer is None or answer.status == 9:
        yield SiteFact("not asked", about, "there is no `module` command here")
        return
    output = answer.text.splitlines()
    for module in destination.modules:
        if f"loaded {module}" in output:
            yield SiteFact("same", about, f"{module} loads")
        elif f"gone {module}" in output:
            yield SiteFact("differs", about, f"{module} does not load", _instead(module, output))
        else:
            yield SiteFact("not asked", about, f"{module}: {answer.complaint}")


def _instead(module: str, output: Sequence[str]) -> str:
    """Return a sentence with the existing modules of the same name, from the lines after `gone MODULE`."""
    name = module.partition("/")[0]
    lines = [line.strip().rstrip(":") for line in output[output.index(f"gone {module}") + 1 :]]
    there = list(dict.fromkeys(line for line in lines if line.lower().startswith(f"{name.lower()}/")))
    return f"there are {', '.join(there[-LISTED:])}" if there else f"there is none called {name}"


def _container(site: Site) -> Iterator[SiteFact]:
    path = Path(site.container)
    if path.is_absolute() and path.exists():
        yield SiteFact("same", "container", f"{path} is there")
    elif path.is_absolute():
        images = sorted(image.name for image in path.parent.glob("*.sif"))[-LISTED:]
        there = f"there are {', '.join(images)}" if images else f"{path.parent} has no image"
        yield SiteFact("differs", "container", f"{path} does not exist", there)
    if site.runtime == "unknown":
        return
    here = [name for name in ("apptainer", "singularity") if shutil.which(name)]
    if site.runtime in here:
        yield SiteFact("same", "runtime", site.runtime)
    elif here:
        words = f"{site.runtime} in the file, {here[0]} here"
        yield SiteFact("differs", "runtime", words, f'write `runtime = "{here[0]}"`')
    else:
        yield SiteFact("not asked", "runtime", f"{site.runtime} is not on this node; nodes of jobs may have it")

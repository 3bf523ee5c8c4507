"""Submit a recipe as a Slurm job: plan and check it, then write the script.

recipe, site -> plan (divides? fits?) -> BatchJob (account? time? GPUs?) -> work/jobs/NAME-1.sh -> sent.py
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ordsmed.base import files, run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import kind_of_folder
from ordsmed.base.launch.site import Destination, absolute
from ordsmed.base.machine.devices import lacks_fp8
from ordsmed.base.say import many, size
from ordsmed.base.screen import command
from ordsmed.machines.install import records
from ordsmed.machines.sites import resources, slurm
from ordsmed.machines.sites.python_archive import pack
from ordsmed.tell.show.show import PLANS, read, trials_of
from ordsmed.train.plan import Plan
from ordsmed.train.request import folder_of
from ordsmed.train.training import Training

JOBS = Path("work/jobs")  # scripts and logs of jobs
LIST = "jobs.jsonl"  # list of the submitted jobs
LIMIT = 24.0  # hours of a job if neither the user nor the partition sets a limit
MAX_MEMORY_SHARE = 0.95  # of a GPU's memory that a training may fill
SAVE_BEFORE = 300  # seconds before the time limit at which the job saves


@dataclass(frozen=True)
class JobRequest:
    """The user's options for a job, in addition to the recipe."""

    site: str
    nodes: int = 1
    gpus: int | None = None  # per node; None: all of the node
    tasks: int = 0  # processes per node; 0: one per GPU
    cores: int = 0  # per process; 0: the site's default
    memory: str = ""  # per node; empty: the site's default
    time: str = ""
    account: str = ""
    quality: str = ""
    parts: int = 0
    requeue: bool = True
    save: int | None = None
    container: str = ""
    overlay: str = ""  # a squashfs file of `install --by overlay`
    enroot: bool = False
    torchrun: bool = False
    anyway: bool = False  # submit even if the recipe repeats its text too often
    packed: str = ""  # folder on each node's local disk, to which Python and its packages are copied
    options: tuple[str, ...] = ()  # further options of sbatch
    retries: int = 3  # restarts after a lost process or node
    spares: int = 0  # spare nodes for such a restart
    data_inside: bool = False  # let the job itself make missing data
    token: str = ""  # file with the token of a server; empty: create one
    served: tuple[str, ...] = ()  # flags of `ordsmed serve`


@dataclass(frozen=True)
class JobScript:
    job: slurm.BatchJob
    path: Path
    lines: tuple[str, ...] = ()
    data: tuple[JobScript, ...] = ()  # jobs that make its data first, in this order


def prepare(name: str, overrides: Sequence[str], request: JobRequest, *, out: str = "") -> JobScript:
    """Plan and check a recipe, and write the script of its job. Nothing is submitted."""
    recipe, verb = read(name, overrides)
    if not (isinstance(recipe, Training) or verb == "corpus"):
        raise RecipeError(name, f"is a recipe of `{verb}`", "one of pretrain, finetune or corpus")
    location, request, lines = _choose_partition(verb, request)
    several = recipe if isinstance(recipe, Training) and recipe.several else None
    if request.parts and not several and verb != "corpus":
        problem = f"found {request.parts} for a {verb} that is one run"
        raise RecipeError("--parts", problem, "none", "only a corpus or trials (`seeds`, `grid`) have parts")
    if several:
        request, in_parts = _trials_request(several, name, location, request)
        lines += in_parts
    processes = request.nodes * _tasks(location, request)
    if several and processes > 1:
        problem = f"found {many(processes, 'process')}, with several trials"
        raise RecipeError(
            "--nodes", problem, "1", "`--parts N` submits N jobs; `jobs` is the number of trials at a time"
        )
    if verb == "corpus" and processes > 1:
        problem = f"found {many(processes, 'process')} for a corpus"
        raise RecipeError("--nodes", problem, "1", "`--parts N` submits N jobs")
    job = _job(name, overrides, recipe, location, request)
    slurm.check(job)
    check_packed(job)
    lines += resources.notes(location, job.gpus, job.cores, job.memory)
    lines += _image(location, request)[2]
    missing = list[tuple[str, str]]()
    if isinstance(recipe, Training):
        plan = checked_plan(name, overrides, verb, location, request.site, processes)
        if not kind_of_folder(name).made:
            plan.with_estimate(here=False, yes=request.anyway)
            missing = [] if request.data_inside else plan.missing()
        lines += plan.lines()
    if missing and (problem := _other_processor(location)):
        missing, lines = [], [*lines, problem]
    if job.local:
        job = replace(job, packed=pack(JOBS.absolute()))
        lines.append(_copy_note(job))
    data = [write_script(_data_job(*words, location, request)) for words in missing]
    for first in data:
        lines.append(
            f"{first.path}: written; it makes the data first, on {first.job.place.partition.name} without GPUs"
        )
    return replace(write_script(job, out), lines=tuple(lines), data=tuple(data))


def check_packed(job: slurm.BatchJob) -> None:
    """Raise an error if Python is inside a container, or if the target folder is a relative path."""
    if job.local and job.container:
        problem = f"found with the container {job.container}"
        raise RecipeError("--packed", problem, "", "leave it out: an image is already one file")
    if job.local and not Path(job.local).is_absolute():
        raise RecipeError("--packed", f"found {job.local}", "a folder of each node's own disk: /tmp, /dev/shm")


def _copy_note(job: slurm.BatchJob) -> str:
    assert job.packed
    room = size(job.packed.path.stat().st_size)
    return (
        f"{job.packed.path}: Python and its packages, {room}; each node copies them to {job.local}, with room for two"
    )


def _other_processor(destination: Destination) -> str:
    """Return the reason why an installation for the GPU nodes cannot run on nodes without GPUs.

    Empty if it can, or if the architecture is unknown.
    """
    part, plain = destination.partition, destination.site.without_gpus
    if plain is None or plain.arch == part.arch or "unknown" in (plain.arch, part.arch):
        return ""
    return (
        f"the job makes its data itself while its GPUs wait: {plain.name} has {plain.arch} processors, but {part.name} "
        f"{part.arch}; with another ordsmed installed on {plain.name}, the data could be made there first"
    )


def _data_job(verb: str, name: str, destination: Destination, request: JobRequest) -> slurm.BatchJob:
    """Return a job that makes missing data on nodes without GPUs, so that no GPU waits for it."""
    recipe, _ = read(name, (), verb)
    part = destination.site.without_gpus or destination.partition
    same = part.name == destination.partition.name
    data = JobRequest(
        f"{destination.name}:{part.name}",
        gpus=0,
        time=request.time if same else "",
        memory=request.memory if same else "",
        account=request.account,
        quality=request.quality if same else "",
        container=request.container,
        overlay=request.overlay,
        enroot=request.enroot,
        retries=request.retries,
    )
    job = _job(name, (), recipe, Destination(destination.name, destination.site, part), data)
    job = replace(job, saves=Path("work/corpus"), saved=f"*/{run.STEPS}/*")
    slurm.check(job)
    return job


def write_script(job: slurm.BatchJob, out: str = "") -> JobScript:
    """Write the job's script under a new name.

    If the latest script has the same text and was not submitted, reuse it.
    """
    sent = {line["script"] for line in files.read_lines(JOBS / LIST)} if (JOBS / LIST).is_file() else set()
    form = re.compile(rf"{re.escape(job.title)}-(\d+)\.sh")
    with files.survive_disk(JOBS):
        JOBS.mkdir(parents=True, exist_ok=True)
        numbers = [int(match[1]) for path in JOBS.iterdir() if (match := form.fullmatch(path.name))]
    for number in itertools.count(max(1, *numbers, 1)):
        path = Path(out) if out else JOBS / f"{job.title}-{number}.sh"
        logs = (JOBS / path.stem).absolute()
        job = replace(
            job,
            log=logs.with_name(f"{path.stem}-{'%A-%a' if job.parts else '%j'}.log"),
            record=logs.with_name(f"{path.stem}.tries"),
        )
        text = slurm.script(job)
        if out:
            with files.survive_disk(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(path, text)
            break
        if path.is_file() and str(path) not in sent and path.read_text(encoding="utf-8") == text:
            break
        with files.survive_disk(path), contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(text)
            break
    return JobScript(job, path)


def _choose_partition(verb: str, request: JobRequest) -> tuple[Destination, JobRequest, list[str]]:
    """Return the destination, the adapted wish and notes. A job without GPUs goes to a partition without GPUs."""
    location, named = Destination.find(request.site), Destination.names_partition(request.site)
    cpu = location.site.without_gpus
    if request.gpus is None and verb == "corpus" and cpu and not named:
        request = replace(request, gpus=0)
    if request.gpus != 0 or location.partition.gpu == "none":
        return location, request, []
    if named or not cpu:
        reason = f"no partition of {location.name} without GPUs is known" if not cpu else f"{cpu.name} has none"
        return (
            location,
            request,
            [f"{location.partition.name} of {location.name} has GPUs, which this job does not use: {reason}"],
        )
    location = replace(location, partition=cpu)
    return (
        location,
        replace(request, site=f"{location.name}:{cpu.name}"),
        [f"no GPUs: it goes to {cpu.name} of {location.name}"],
    )


def _trials_request(
    recipe: Training, name: str, destination: Destination, request: JobRequest
) -> tuple[JobRequest, list[str]]:
    """Return the wish for several trials, and notes.

    Each trial uses one device, so a job gets one process and not more GPUs than trials.
    """
    if getattr(recipe, "step", None) == "all":  # one trial per checkpoint of the run it starts from
        count, lines = 0, []
    else:
        count = len(trials_of(recipe, name).runs)
        lines = [f"trials: {count}" + (f", in {many(request.parts, 'job')}" if request.parts else "")]
    if count and request.parts > count:
        raise RecipeError("--parts", f"found {request.parts}, of {many(count, 'trial')}", f"at most {count}")
    gpus = gpus_of(destination, request.gpus)
    if request.gpus is None and count:
        gpus = min(gpus, -(-count // max(1, request.parts)))
    return replace(request, gpus=gpus, tasks=request.tasks or 1), lines


def _job(
    name: str, overrides: Sequence[str], recipe: run.Recipe, destination: Destination, request: JobRequest
) -> slurm.BatchJob:
    verb: str = recipe.verb
    container, overlay, _ = _image(destination, request)
    destination = destination if container else _with_install_modules(destination)
    part, gpus, tasks = destination.partition, gpus_of(destination, request.gpus), _tasks(destination, request)
    arguments = [str(Path(name).absolute()) if Path(name).exists() else name, *overrides]
    site = ["--site", absolute(request.site)] if isinstance(recipe, Training) else []
    site += ["--yes"] if request.anyway and verb == "pretrain" else []
    most = limit(request.time, min(LIMIT, part.hours or LIMIT))
    title = f"{verb}-{run.title(name).removeprefix(f'{verb}-')}"
    cores = resources.cores_of(destination, gpus, tasks, request.cores)
    return slurm.BatchJob(
        words=(verb, *arguments, *site),
        place=destination,
        title=title,
        folder=Path.cwd(),
        hours=most,
        nodes=request.nodes,
        gpus=gpus,
        tasks=tasks,
        cores=cores,
        memory=resources.memory_flag(destination, gpus, cores * tasks, request.memory),
        account=request.account,
        quality=request.quality or part.quality,
        options=resources.options(request.options, destination),
        parts=request.parts,
        requeue=request.requeue,
        retries=request.retries,
        spares=request.spares,
        save=min(SAVE_BEFORE, int(most * 360)) if request.save is None else request.save,
        container=container,
        overlay=overlay,
        enroot=request.enroot,
        torchrun=request.torchrun,
        local=request.packed,
        modules=tuple(_folders_of_modules(recipe)),
        saves=folder_of(recipe, name),
        saved="*/checkpoints/*" if isinstance(recipe, Training) else f"*/{run.STEPS}/*",
    )


def _with_install_modules(destination: Destination) -> Destination:
    """Replace the site's modules by those that were loaded when the running ordsmed was installed."""
    here = Path(sys.prefix).resolve()
    if not (here.parent / records.FOLDER).is_dir():
        return destination
    for record in records.read(here.parent):
        if record.before and (here.parent / record.target).resolve() == here:
            part = replace(destination.partition, before=record.before, modules=())
            return replace(destination, site=replace(destination.site, use=(), modules=()), partition=part)
    return destination


def _image(destination: Destination, request: JobRequest) -> tuple[str, str, list[str]]:
    """Return the container image, the overlay on it, and notes about them."""
    container = request.container or destination.site.container
    if request.overlay:
        overlay = Path(request.overlay).resolve()  # resolve the link: a waiting job keeps its version
        if not overlay.is_file():
            remedy = f"`{command('install', '--site', request.site, '--by', 'overlay', '--yes')}` makes one"
            raise RecipeError("--overlay", f"found {request.overlay}, and there is no such file", "", remedy)
        made_on = overlay.with_name(f"{overlay.name}.image")
        if not request.container and made_on.is_file():
            container = made_on.read_text(encoding="utf-8").strip()
        if request.enroot or not container:
            problem = "found with --enroot" if request.enroot else f"found, but {destination.name} has no container"
            raise RecipeError("--overlay", problem, "an image for Apptainer or SingularityCE", "--container IMAGE")
        return container, str(overlay), []
    if request.container or not container:
        return container, "", []
    words = command("install", "--site", request.site, "--by", "overlay", "--yes")
    unknown = f"it is unknown whether {container} contains this ordsmed; the job checks it first"
    return container, "", [f"{unknown}; `{words}` makes an overlay for `--overlay FILE`"]


def _folders_of_modules(recipe: run.Recipe) -> list[Path]:
    """Return the folders of the user's own modules that a recipe names, except installed packages."""
    callbacks = recipe.callbacks if isinstance(recipe, Training) else ()
    names = {
        *(kind for kind in _kinds(settings.plain(recipe)) if "." in kind),
        *(name.partition(":")[0] for name in callbacks),
    }
    folders = set()
    for name in names:
        with contextlib.suppress(ImportError, ValueError):  # a missing module is reported where it is used
            spec = importlib.util.find_spec(name) if not name.startswith("ordsmed.") else None
            if spec and spec.origin and "site-packages" not in spec.origin:
                source = Path(spec.origin).absolute()
                folders.add(source.parents[name.count(".") + (source.stem == "__init__")])
    return sorted(folders)


def _kinds(table: object) -> Iterator[str]:
    if isinstance(table, dict):
        yield from [table["kind"]] if isinstance(table.get("kind"), str) else []
        table = list(table.values())
    for entry in table if isinstance(table, list) else []:
        yield from _kinds(entry)


def gpus_of(destination: Destination, requested: int | None) -> int:
    part = destination.partition
    if requested is not None:
        return requested
    if part.gpu != "none" and part.gpus is None:
        raise RecipeError("--gpus", f"missing; the number per node of {destination.name} is unknown", "a number")
    return part.gpus or 0


def _tasks(destination: Destination, request: JobRequest) -> int:
    return request.tasks or gpus_of(destination, request.gpus) or 1


def limit(text: str, usual: float) -> float:
    """Return the hours in `text`, or `usual` if it is empty."""
    try:
        return slurm.hours(text) if text else usual
    except ValueError as error:
        raise RecipeError("--time", str(error)) from None


def checked_plan(
    name: str, overrides: Sequence[str], verb: str, destination: Destination, site: str, processes: int
) -> Plan:
    """Return the plan for all processes.

    Raise an error if its work does not divide, its memory does not fit, or the GPU does not support its precision.
    """
    with run.in_start_folder(name) as folder:
        plan = PLANS[verb].read(folder, overrides, site=absolute(site), devices=processes)
    part, gpu, precision = destination.partition, destination.partition.model, plan.recipe.layout.precision
    if gpu and precision not in (*gpu.able, "auto"):
        problem = f"found {precision}, which {part.gpu} has no units for"
        raise RecipeError("layout.precision", problem, " or ".join(gpu.able))
    if plan.recipe.layout.fp8 and (reason := lacks_fp8(plan.ranks.device, plan.ranks.card)):
        raise RecipeError("layout.fp8", f"found true, which {reason}", "false")
    if gpu and (needed := plan.memory().bytes) > MAX_MEMORY_SHARE * gpu.memory * 2**30:
        problem = f"needs {size(needed)} per GPU without activations"
        wanted = f"less than the {gpu.memory:g} GiB of {part.gpu}"
        raise RecipeError(name, problem, wanted, "split the weights with `layout.shard`, or use a larger GPU")
    return plan

"""Write jobs as readable Slurm scripts, submit them, and query their states.

BatchJob(words, place, nodes, ...) -> script -> sbatch -> its number -> squeue, sacct: its state
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ordsmed.base.errors import RecipeError, RunError, nearest
from ordsmed.base.identity import Identity, identity
from ordsmed.base.launch.site import Destination, Quality
from ordsmed.base.say import many
from ordsmed.base.screen import command
from ordsmed.machines.sites.python_archive import PackedPython

PATIENCE = 60.0  # seconds that a command of Slurm may take
AGAIN = Path(__file__).with_name("again.sh")  # shell code that runs after a run ends
UNPACK = Path(__file__).with_name("unpack.sh")
EARLY = 60  # seconds by which Slurm's signal may come early
OVERLAID = "/user-software"  # folder of an overlay in a container, as in the documentation of LUMI and Olivia
IMPORT = """import sys
try:
    from ordsmed.base.identity import identity
    print(f"ordsmed {identity()}, code {identity().digest}")
except Exception as error:
    print("ordsmed", getattr(sys.modules.get("ordsmed"), "__version__", "is not here:"), error)"""
LEAVE = 120  # seconds for the other processes to end after the first one
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


@dataclass(frozen=True)
class BatchJob:
    words: tuple[str, ...]  # arguments of `ordsmed`
    place: Destination
    title: str
    folder: Path  # working folder
    hours: float
    log: Path = Path("%j.log")
    nodes: int = 1
    gpus: int = 0  # per node
    tasks: int = 1  # processes per node
    cores: int = 0  # per process; 0: the site's default
    memory: str = ""  # sbatch's flag for memory
    account: str = ""
    quality: str = ""
    options: tuple[str, ...] = ()  # the user's own options of sbatch
    parts: int = 0  # number of array tasks; 0: not an array
    saves: Path = Path()  # folder in which the run saves
    saved: str = "*/checkpoints/*"  # pattern of the files of a saved step in that folder
    requeue: bool = True
    retries: int = 3  # restarts after a lost process or node
    spares: int = 0  # additional nodes, used after a node was lost
    record: Path = Path("jobs.tries")  # file in which the script records lost nodes
    save: int = 300  # seconds before the time limit at which the run is signaled to save
    container: str = ""
    enroot: bool = False  # run the container with Enroot and Pyxis, else with Apptainer or SingularityCE
    overlay: str = ""  # squashfs file with ordsmed, mounted over the container
    code: Identity = field(default_factory=identity)  # identity of the ordsmed that should run
    torchrun: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[Path, ...] = ()  # folders of the user's own modules that the recipe names
    packed: PackedPython | None = None  # Python and its packages in a file
    local: str = ""  # folder on each node's local disk to which it is copied


def check_place(destination: Destination, nodes: int, gpus: int, quality: Quality | None = None) -> None:
    """Raise an error if the site is retired or has fewer nodes or GPUs than requested.

    A quality of service has its own limits.
    """
    part, name = destination.partition, destination.name
    destination.refuse_retired()
    if gpus and part.gpu == "none":
        raise RecipeError("--gpus", f"found {gpus}, where {part.name} of {name} has none", "0")
    if part.gpus and gpus > part.gpus:
        raise RecipeError("--gpus", f"found {gpus} per node", f"at most {part.gpus} on {part.name} of {name}")
    where = f"{part.name} of {name}" if quality is None else f"{part.name} of {name} with qos {quality.name}"
    max_nodes, max_gpus = (quality and quality.nodes) or part.nodes, (quality and quality.gpus) or part.max_gpus
    _between("--nodes", nodes, f"found {nodes}", part.min_nodes, max_nodes, where)
    if total := gpus * nodes:
        _between("--gpus", total, f"found {total} in all", part.min_gpus, max_gpus, where)


def _between(flag: str, value: int, problem: str, least: int | None, most: int | None, where: str) -> None:
    if most and value > most:
        raise RecipeError(flag, problem, f"at most {most} on {where}")
    if least and value < least:
        raise RecipeError(flag, problem, f"at least {least} on {where}")


def check(job: BatchJob) -> None:
    """Raise an error if the job requests something that the site does not have."""
    site, part, name = job.place.site, job.place.partition, job.place.name
    quality = _quality(job)
    check_place(job.place, job.nodes, job.gpus, quality)
    if site.scheduler == "none":
        raise RecipeError("--site", f"found {name}, which has no Slurm", "a cluster", "run the verb on this machine")
    if site.account == "required" and not job.account:
        raise RecipeError("--account", f"missing, but {name} requires one", "the account of your project")
    most, of = part.hours, part.name
    if quality and quality.hours:
        most, of = quality.hours, f"qos {quality.name}"
    if most and job.hours > most:
        raise RecipeError("--time", f"found {many(job.hours, 'hour')}", f"at most {most:g} on {of} of {name}")
    if job.save >= job.hours * 3600:
        raise RecipeError("--save", f"found {job.save} s before a limit of {job.hours * 3600:g} s", "less")


def _quality(job: BatchJob) -> Quality | None:
    site, part = job.place.site, job.place.partition
    known = {quality.name: quality for quality in site.quality}
    if not job.quality or not known:
        return None
    allowed = [name for name, quality in known.items() if not quality.partitions or part.name in quality.partitions]
    if job.quality not in known or job.quality not in allowed:
        problem = f"found {job.quality}" + (f", which is not of {part.name}" if job.quality in known else "")
        raise RecipeError("--qos", problem, "", nearest(job.quality, allowed) if allowed else "leave it out")
    return known[job.quality]


def script(job: BatchJob) -> str:
    return "\n".join([*_head(job), "", *_body(job), ""])


def _head(job: BatchJob) -> Iterator[str]:
    part, site = job.place.partition, job.place.site
    nodes = job.nodes + job.spares
    spare = f", {job.spares} of them spare" if job.spares else ""
    where = many(nodes, "node") + (f" x {job.gpus} {part.gpu}" if job.gpus else "") + spare
    yield "#!/bin/bash"
    yield "# " + " ".join(command(*job.words).splitlines())
    yield f"# on {site.title or job.place.name}, partition {part.name}: {where}"
    tasks, reason = job.tasks, f"one process per {'GPU' if job.gpus else 'task'}; ordsmed reads their ranks from Slurm"
    if job.torchrun:
        tasks, reason = 1, "torchrun starts the others"
    again = "a job that was preempted or lost a node starts again"
    options = [
        (f"--job-name={job.title}", ""),
        (f"--partition={part.queue}" if part.queue else "", ""),
        (f"--nodes={nodes}", ""),
        ("--no-kill" if job.spares else "", "a lost node does not end the job"),
        (f"--ntasks-per-node={tasks}", reason),
        (part.ask.format(gpus=job.gpus, total=job.gpus * nodes) if job.gpus else "", ""),
        (f"--cpus-per-task={job.cores * (job.tasks if job.torchrun else 1)}" if job.cores else "", ""),
        (job.memory, ""),
        (f"--time={time(job.hours)}", ""),
        (f"--account={job.account}" if job.account else "", ""),
        (f"--qos={job.quality}" if job.quality else "", ""),
        (f"--constraint={shlex.quote(part.constraint)}" if part.constraint else "", ""),
        *((more, "") for more in part.also),
        (f"--array=1-{job.parts}" if job.parts else "", "one task per part"),
        (f"--signal=TERM@{job.save}", "this many seconds before the limit the run saves and stops"),
        ("--requeue", again) if job.requeue else ("--no-requeue", ""),
        ("--open-mode=append", "a requeued job appends to its log"),
        (f"--output={job.log}", ""),
        *((option, "given after `--`") for option in job.options),
    ]
    for words, comment in options:
        if words:
            yield f"#SBATCH {words}{f'  # {comment}' if comment and not words.startswith('--output') else ''}"


def _body(job: BatchJob) -> Iterator[str]:
    site, part = job.place.site, job.place.partition
    yield f"cd {shlex.quote(str(job.folder))} || exit 1"
    yield from (*part.before, *site.use)
    if loaded := job.place.modules:
        yield f"module load {shlex.join(loaded)}"
    for name, value in {**job.place.environment, **job.environment}.items():
        yield f"export {name}={_expanded(value)}"
    if job.modules:
        folders = ":".join(map(shlex.quote, map(str, job.modules)))
        yield f'export PYTHONPATH={folders}"${{PYTHONPATH:+:$PYTHONPATH}}"  # modules that the recipe names'
    if job.cores:
        yield 'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"  # else srun gives one core per task, since Slurm 22.05'
    if job.torchrun:
        yield f"export TORCH_ELASTIC_SHUTDOWN_TIMEOUT={job.save}  # seconds to save; the default is 30"
    yield from _proof(job)
    yield ""
    yield f"record={shlex.quote(str(job.record))}"
    yield f"times={job.retries} wanted={job.nodes} requeue={'yes' if job.requeue else 'no'}"
    late = max(0, round(job.hours * 3600) - job.save - EARLY)
    yield f"by={'torchrun' if job.torchrun else 'srun'} late={late}"
    search = f"find {shlex.quote(f'{job.saves}/')} -path {shlex.quote(job.saved)} -type f"
    yield f"saved() {{ {search} 2>/dev/null | sort | cksum; }}"
    if job.packed:
        yield ""
        yield f"packed={shlex.quote(str(job.packed.path))} local={shlex.quote(job.local)}"
        yield f"folders={len(job.packed.folders)}"
        yield from UNPACK.read_text(encoding="utf-8").splitlines()
    yield "run() {"
    if job.torchrun:
        yield "    first=${MASTER_ADDR:-${nodes%%,*}}"
    yield from ["    unpack || return"] if job.packed else []
    yield f"    {' '.join(_command(job))}"
    yield from ["    code=$?", "    clean", '    return "$code"'] if job.packed else []
    yield "}"
    yield ""
    yield from AGAIN.read_text(encoding="utf-8").splitlines()


def _expanded(value: str) -> str:
    """Return a value quoted for bash. `${NAME}` in it refers to a variable of the job."""
    parts = re.split(r"(\$\{\w+\})", value)
    return (
        "".join(f'"{part}"' if number % 2 else shlex.quote(part) for number, part in enumerate(parts) if part) or "''"
    )


def _proof(job: BatchJob) -> Iterator[str]:
    """Yield lines that log which ordsmed each node imports, and end the job if it is not the submitted code."""
    if job.container and not job.enroot:
        names = sorted(("apptainer", "singularity"), key=lambda name: name != job.place.site.runtime)
        yield f"runtime=$({' || '.join(f'command -v {name}' for name in names)}) || {{"
        yield f"    echo 'ordsmed: {' or '.join(names)}: not on this node; load its module' >&2"
        yield "    exit 1"
        yield "}"
    if job.overlay:
        yield f"[ -r {shlex.quote(job.overlay)} ] || {{"
        yield f"    echo {shlex.quote(f'ordsmed: {job.overlay}: no such file; {_remedy(job)}')} >&2"
        yield "    exit 1"
        yield "}"
    once = 'srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1'
    yield "# log which ordsmed each node imports; if it is not the submitted one, end the job"
    yield f"import={shlex.quote(IMPORT)}"
    yield f"""found=$({" ".join([once, *_place(job), _python(job), '-c "$import"'])} | sort -u)"""
    yield 'echo "${found:-ordsmed: Python does not answer; the error of the run says why}"'
    yield """digest=$(awk -F', code ' '{print $NF}' <<<"$found" | sort -u)"""
    yield f'if [ -n "$found" ] && [ "$digest" != {job.code.digest} ]; then'
    wanted = f"wanted ordsmed {job.code}, code {job.code.digest}; {_remedy(job)}"
    yield f"    echo {shlex.quote(f'ordsmed: the line above was found; {wanted}')} >&2"
    yield "    exit 1"
    yield "fi"


def _remedy(job: BatchJob) -> str:
    if job.container:
        return f"make an image or an overlay with it by:  {command('install', '--site', job.place.name)}"
    return "submit it again to use the present code"


def _place(job: BatchJob) -> Iterator[str]:
    """Yield the words before Python that run it in a container."""
    outside = [folder for folder in job.modules if not folder.is_relative_to(job.folder)]
    here, *_ = folders = [shlex.quote(str(folder)) for folder in (job.folder, *outside)]
    if job.container and job.enroot:
        yield f"--container-image={shlex.quote(job.container)}"
        mounts = ",".join(f"{folder}:{folder}" for folder in folders)
        yield f"--container-mounts={mounts} --container-workdir={here}"
    elif job.container:
        gpu = job.place.partition.model
        flag = "" if gpu is None else "--rocm " if gpu.amd else "--nv "
        if job.overlay:
            folders.append(shlex.quote(f"{job.overlay}:{OVERLAID}:image-src=/"))
        binds = " ".join(f"--bind {folder}" for folder in folders)
        yield f'"$runtime" exec {flag}{binds} {shlex.quote(job.container)}'


def _python(job: BatchJob) -> str:
    if job.overlay:
        return f"{OVERLAID}/bin/python"
    return "python3" if job.container else shlex.quote(sys.executable)


def _command(job: BatchJob) -> Iterator[str]:
    yield f"srun --kill-on-bad-exit=0 --wait={LEAVE}"
    if job.spares:
        gpus = job.place.partition.ask.format(gpus=job.gpus, total=job.gpus * job.nodes) if job.gpus else ""
        tasks = job.nodes * (1 if job.torchrun else job.tasks)
        yield " ".join(filter(None, ('--nodelist="$nodes"', f"--nodes={job.nodes} --ntasks={tasks}", gpus)))
    yield from _place(job)
    words = " ".join(shlex.quote(word) for word in job.words)
    part = f' --part "$SLURM_ARRAY_TASK_ID/{job.parts}"' if job.parts else ""
    if job.torchrun:
        yield f"{_python(job)} -m torch.distributed.run --nnodes={job.nodes} --nproc-per-node={job.tasks}"
        yield '--rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$first:$((20000 + SLURM_JOB_ID % 10000))"'
        yield f"-m ordsmed {words}{part}"
    else:
        yield f"{_python(job)} -m ordsmed {words}{part}"


def send(path: Path, *, after: str = "", well: bool = False) -> str:
    """Submit a script to Slurm and return its job number.

    It starts after job `after` has ended, with `well` only if that succeeded.
    """
    wait = [f"--dependency=after{'ok' if well else 'any'}:{after}"] if after else []
    words = ["sbatch", "--parsable", *wait, *(["--kill-on-invalid-dep=yes"] if wait and well else []), str(path)]
    answer = ask(words)
    number = answer.strip().split(";")[0]
    if not number.isdigit():
        raise RunError("sbatch", f"answered {answer.strip()[:200]!r}", "a job's number")
    return number


def states(numbers: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the states of jobs by number, from the queue or from Slurm's accounts, and why some are unknown."""
    listed, silent = _states(["squeue", "--noheader", "--format=%F|%T|%r", "--states=all", "--jobs"], numbers)
    gone = [number for number in numbers if number not in listed]
    accounts = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State", "--jobs"]
    kept, unasked = _states(accounts, gone) if not silent else ({}, "")
    return listed | kept, silent or unasked


def _states(words: Sequence[str], numbers: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the state of each job, and the error if Slurm did not answer. For an array, count the tasks per state."""
    if not numbers:
        return {}, ""
    try:
        answer = ask([*words[:-1], f"{words[-1]}={','.join(numbers)}"])
    except RunError as error:  # squeue reports an error for a single job that is gone
        return {}, "" if "Invalid job id" in error.found else f"{error.place}: {error.found}"
    tasks: dict[str, Counter[str]] = {}
    for number, state, *reason in (line.strip().split("|") for line in answer.splitlines() if "|" in line):
        waits = f" ({reason[0]})" if state == "PENDING" and reason and reason[0] != "None" else ""
        tasks.setdefault(number.partition("_")[0], Counter())[(state.split() or ["?"])[0] + waits] += 1
    return {number: _counted(states) for number, states in tasks.items()}, ""


def _counted(tasks: Counter[str]) -> str:
    several = tasks.total() > 1
    return ", ".join(f"{state} {count}" if several else state for state, count in tasks.items())


def ask(words: Sequence[str]) -> str:
    if not shutil.which(words[0]):
        remedy = "leave out `--yes` to only write the script"
        raise RunError(words[0], "is not on this machine", "a login node of the cluster", remedy)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(words[0], f"did not answer: {error}", "", "ask the site's support, or try again") from None
    if done.returncode:
        errors = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise RunError(words[0], errors[-1].removeprefix(f"{words[0]}: "), "", "nothing was queued by this call")
    return done.stdout


def time(hours: float) -> str:
    """Return hours in Slurm's notation: 1-12:30:00."""
    days, rest = divmod(round(hours * 3600), 86_400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def hours(text: str) -> float:
    """Return the hours in a text: 12h, 90m, 2d, or Slurm's 1-12:30:00 and 02:00:00."""
    if match := re.fullmatch(r"(?:(\d+)-)?(\d{1,2}):(\d\d)(?::(\d\d))?", text):
        days, first, minutes, seconds = (int(part or 0) for part in match.groups())
        return days * 24 + first + minutes / 60 + seconds / 3600
    from ordsmed.base.say import seconds as parsed

    return parsed(text) / 3600

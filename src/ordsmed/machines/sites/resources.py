"""Cores and memory that a job requests from its site, and further options of sbatch.

partition, GPUs, processes -> cores per process, --mem or --mem-per-cpu or --mem-per-gpu, unknown facts
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from ordsmed.base.errors import RecipeError
from ordsmed.base.launch.site import Destination, Partition
from ordsmed.base.say import many

UNITS = {"M": 1 / 1024, "G": 1.0, "T": 1024.0}
SHORT = {  # short options of sbatch that a script sets, or that must not appear twice
    "J": "job-name",
    "p": "partition",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "t": "time",
    "A": "account",
    "q": "qos",
    "a": "array",
    "o": "output",
    "C": "constraint",
    "W": "wait",
    "d": "dependency",
    "x": "exclude",
}
SET_BY = {  # options that the script sets or leaves to the site, with the remedy
    name: remedy
    for names, remedy in {
        "partition": "name it with `--site SITE:PARTITION`",
        "nodes": "write `--nodes`",
        "ntasks ntasks-per-node": "write `--tasks`",
        "cpus-per-task cpus-per-gpu": "write `--cpus-per-task`",
        "gpus gpus-per-node gpus-per-task gres": "write `--gpus`",
        "mem mem-per-cpu mem-per-gpu": "write `--mem`",
        "time": "write `--time`",
        "account": "write `--account`",
        "qos": "write `--qos`",
        "array": "write `--parts`",
        "signal": "write `--save`",
        "requeue no-requeue dependency": "write or leave out `--chain`",
        "job-name": "it follows from the recipe",
        "output open-mode": "the log is the one that `--status` lists",
        "wrap": "the script has the command",
        "wait": "`--status` shows when it ends",
        "parsable": "`--json` prints the number",
        "test-only": "`ordsmed sites check` does it",
    }.items()
    for name in names.split()
}


def cores_of(destination: Destination, gpus: int, tasks: int, wanted: int = 0) -> int:
    """Return the cores per process: `wanted`, or its share of the cores of the GPUs or the node; 0 if unknown."""
    part = destination.partition
    if wanted:
        if part.cores and wanted * tasks > part.cores:
            problem = f"found {wanted} for each of {many(tasks, 'process')}"
            most = f"at most {part.cores // tasks} on {part.name} of {destination.name}"
            raise RecipeError("--cpus-per-task", problem, most, f"a node has {many(part.cores, 'core')}")
        return wanted
    if not gpus:
        return (part.cores or 0) // tasks
    return (part.cores_per_gpu or (part.cores or 0) // (part.gpus or tasks)) * gpus // tasks


def memory_flag(destination: Destination, gpus: int, cores: int, wanted: str = "", *, must: bool = True) -> str:
    """Return sbatch's flag for the memory per node in the site's form. Empty if it is not requested or not known.

    `cores` is the number for all processes of a node. With `must`, raise an error if the site requires memory to be
    requested but its amount is unknown.
    """
    part, name = destination.partition, destination.name
    known = _share(part, gpus, cores)
    if wanted:
        return _flag(part, _wanted(destination, wanted), gpus, cores)
    if part.ask_memory == "fixed" or (part.whole_nodes and part.ask_memory != "required"):
        return ""
    if known:
        return _flag(part, known, gpus, cores)
    if must and part.ask_memory == "required":
        problem = f"missing, but {part.name} of {name} requires it; the memory of a node is unknown"
        raise RecipeError("--mem", problem, "memory per node: `--mem 100G`")
    return ""


def _wanted(destination: Destination, text: str) -> float:
    part, match = destination.partition, re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])(?:I?B)?", text.strip().upper())
    if not match or not float(match[1]):
        raise RecipeError("--mem", f"found {text!r}", "memory per node: 100G, 1500M or 1.5T")
    if part.ask_memory == "fixed":
        problem = f"found {text}; on {part.name} of {destination.name} memory comes with nodes, cores or GPUs"
        raise RecipeError("--mem", problem, "none")
    memory = float(match[1]) * UNITS[match[2]]
    if part.memory and memory > part.memory:
        raise RecipeError("--mem", f"found {text}", f"at most {part.memory:g}G on {part.name} of {destination.name}")
    return memory


def _share(part: Partition, gpus: int, cores: int) -> float | None:
    """Return the GiB per node that belong to these GPUs or cores; None if unknown."""
    if gpus:
        per_gpu = part.memory_per_gpu or (part.memory / part.gpus if part.memory and part.gpus else None)
        return per_gpu * gpus if per_gpu else None
    per_core = part.memory_per_core or (part.memory / part.cores if part.memory and part.cores else None)
    return per_core * cores if per_core and cores else None


def _flag(part: Partition, memory: float, gpus: int, cores: int) -> str:
    flag = part.memory_flag
    if flag == "--mem-per-gpu" and gpus:
        return f"{flag}={_written(memory / gpus)}"
    if flag == "--mem-per-cpu" and cores:
        return f"{flag}={_written(memory / cores)}"
    return f"--mem={_written(memory)}"


def _written(memory: float) -> str:
    """Return memory in Slurm's notation, rounded down, since a job that requests too much never starts."""
    return f"{int(memory + 1e-9)}G" if memory >= 10 or memory == int(memory) else f"{int(memory * 1024 + 1e-6)}M"


def notes(destination: Destination, gpus: int, cores: int, memory: str) -> Iterator[str]:
    part = destination.partition
    where = f"{part.name} of {destination.name}"
    if not memory and part.ask_memory in ("unknown", "optional") and not part.whole_nodes:
        yield f"memory: unknown for a node of {where}, so none is requested; `--mem 100G` requests some"
    if not cores:
        yield f"cores: unknown for a node of {where}, so none are requested; `--cpus-per-task 8` requests some"
    if part.whole_nodes and part.gpus and gpus < part.gpus:
        yield f"{where} allocates whole nodes: {gpus} of {part.gpus} GPUs are used, all are charged"


def options(words: Sequence[str], destination: Destination) -> tuple[str, ...]:
    """Return the user's options of sbatch, each with its value. Raise an error for options that the script sets."""
    added: list[list[str]] = []
    for word in words:
        if not word.isprintable():
            raise RecipeError("--", f"found {word!r}", "options of sbatch, each in one line")
        if word.startswith("-") and word.strip("-"):
            added.append([word])
        elif added and len(added[-1]) == 1 and "=" not in added[-1][0]:
            added[-1].append(word)
        else:
            raise RecipeError("--", f"found {word}", "options of sbatch", "`... -- --exclude=n12 --reservation=x`")
    names = [_name(option[0]) for option in added]
    for name, option in zip(names, added, strict=True):
        _refuse_set(name, option, destination)
        if names.count(name) > 1:
            raise RecipeError(f"-- --{name}", "found twice", "once", "Slurm uses only the last")
    return tuple(shlex.join(option) for option in added)


def _name(word: str) -> str:
    if word.startswith("--"):
        return word[2:].partition("=")[0]
    return SHORT.get(word[1], word[1])


def _refuse_set(name: str, option: Sequence[str], destination: Destination) -> None:
    """Raise an error for an option that the script or the site sets, since Slurm would silently use one of the two."""
    if name == "gres" and "gpu" not in option[-1]:
        return
    remedy = SET_BY.get(name)
    part = destination.partition
    if name == "constraint" and part.constraint:
        remedy = f"the site's file sets {part.constraint}; write your own site file to change it"
    if any(name == also.lstrip("-").partition("=")[0] for also in part.also):
        remedy = "the site's file sets it; write your own site file to change it"
    if remedy:
        raise RecipeError(f"-- {' '.join(option)}", "contradicts an option of the script", "another option", remedy)

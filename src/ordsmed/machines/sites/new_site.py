"""Write a site file from what Slurm and the modules of this machine report, for a person to check.

scontrol show partition, scontrol show node, sacctmgr show qos, module avail -> my-site.toml
"""

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.launch.gpus import GPUS, SLICE
from ordsmed.base.launch.site import Site
from ordsmed.base.screen import command
from ordsmed.machines.sites.describe import unknown

PATIENCE = 30.0  # seconds that a command may take
LOADABLE = 12  # most modules listed in the note

Ask = Callable[[Sequence[str]], str]


def write(name: str, folder: Path = Path()) -> Path:
    """Write NAME.toml with the facts of this machine."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise RecipeError("NAME", f"found {name!r}", "one word: letters, digits, - and _")
    if name in Site.names():
        remedy = f"`{command('sites', name)}` shows it"
        raise RecipeError("NAME", f"found {name}, which is shipped", "another name", remedy)
    path = folder / f"{name}.toml"
    if path.exists():
        raise RecipeError(path, "exists", "a new file", "delete it, or choose another name")
    table = table_of(name, _answer)
    site = settings.decode(Site, table, name)
    lines = [
        f"# {name}: written by `ordsmed sites new`, please check it: {'; '.join(unknown(site))}",
        *settings.lines(table),
    ]
    files.write_text(path, "\n".join(lines) + "\n")
    return path


def table_of(name: str, ask: Ask) -> dict[str, Any]:
    table: dict[str, Any] = {"title": name, "state": "running", "checked": time.strftime("%Y-%m")}
    if not shutil.which("scontrol"):
        arch = platform.machine()
        table |= {"scheduler": "none", "source": "this machine, which has no Slurm"}
        return table | {
            "partition": [{"name": "this", "arch": arch if arch in ("x86_64", "aarch64", "ppc64le") else "unknown"}]
        }
    table |= {"scheduler": "slurm", "account": "unknown", "source": "scontrol and module avail on this machine"}
    nodes = [_pairs(line) for line in ask(["scontrol", "show", "node", "--oneliner"]).splitlines() if line.strip()]
    parts = [_pairs(line) for line in ask(["scontrol", "show", "partition", "--oneliner"]).splitlines() if line.strip()]
    if not parts:
        raise RunError("scontrol show partition", "lists no partition", "one or more")
    usual = next((part["PartitionName"] for part in parts if part.get("Default") == "YES"), "")
    if runtime := next((name for name in ("apptainer", "singularity") if shutil.which(name)), ""):
        table["runtime"] = runtime
    if modules := _modules(ask(["bash", "-lc", "module -t avail 2>&1 || true"])):
        table["note"] = f"modules that may contain PyTorch:  {', '.join(modules)}"
    table["partition"] = [_partition(part, nodes) for part in parts]
    if qualities := list(_qualities(ask)):
        table["quality"] = qualities
    return table | ({"default": usual} if usual else {})


def _qualities(ask: Ask) -> Iterator[dict[str, Any]]:
    """Yield the qualities of service if Slurm keeps accounts. `normal` is left out, since all jobs have it."""
    try:
        text = ask(["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,maxwall"])
    except RunError:
        return
    for name, _, limit in (line.partition("|") for line in text.splitlines()):
        if name and name != "normal":
            hours = hours_of(limit)
            yield {"name": name, **({"hours": hours} if hours else {})}


def _answer(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(" ".join(words), str(error), f"an answer within {PATIENCE:g} s") from None
    if done.returncode:
        problem = (done.stderr.strip().splitlines() or ["no word"])[0]
        raise RunError(" ".join(words), problem, "an answer of Slurm", "run this on a login node of the cluster")
    return done.stdout


def _pairs(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", line))


def _partition(part: dict[str, str], nodes: Sequence[dict[str, str]]) -> dict[str, Any]:
    name = part["PartitionName"]
    members = [node for node in nodes if name in node.get("Partitions", "").split(",")]
    table: dict[str, Any] = {"name": name, "arch": "unknown", "gpu": "unknown" if not members else "none"}
    if members:
        arch = {node.get("Arch", "") for node in members}
        if len(arch) == 1 and (only := arch.pop()) in ("x86_64", "aarch64", "ppc64le"):
            table["arch"] = only
        table["cores"] = min(int(node["CPUTot"]) for node in members)
        table["memory"] = min(int(node["RealMemory"]) for node in members) // 1024
        table |= gpus_of_gres(node.get("Gres", "") for node in members)
    if part.get("OverSubscribe", "").startswith("EXCLUSIVE"):
        table["whole_nodes"] = True
    if any(re.fullmatch(r"[1-9]\d*", part.get(key, "")) for key in ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")):
        table["ask_memory"] = "optional"
    if part.get("MinNodes", "").isdigit() and int(part["MinNodes"]) > 1:
        table["min_nodes"] = int(part["MinNodes"])
    if (hours := hours_of(part.get("MaxTime", ""))) is not None:
        table["hours"] = hours
    if part.get("MaxNodes", "").isdigit():
        table["nodes"] = int(part["MaxNodes"])
    return {key: value for key, value in table.items() if value}


def gpus_of_gres(gres: Iterable[str]) -> dict[str, Any]:
    """Return the model and number of GPUs, or MIG slices, that the nodes of a partition have in common."""
    texts = set(gres)
    kinds = {match.groups() for text in texts for match in re.finditer(r"gpu(?::([\w.-]+?))?:(\d+)(?:\(|,|$)", text)}
    if not kinds:
        return {}
    if len(kinds) > 1 or not all("gpu" in text for text in texts):
        return {"gpu": "unknown", "note": f"nodes of several kinds: {'; '.join(sorted(texts))}"}
    kind, count = kinds.pop()
    table: dict[str, Any] = {"gpu": _named(kind or ""), "gpus": int(count)}
    if kind:
        table["ask"] = f"--gres=gpu:{kind}:{{gpus}}"
    if is_slice := SLICE.search(kind or ""):
        table["mig"] = is_slice[0]
    return table


def _named(kind: str) -> str:
    """Return our name for Slurm's name of a GPU: nvidia_a100_80gb -> A100-80."""
    word = re.sub(r"[^a-z0-9]", "", SLICE.sub("", kind.lower()))
    for name in sorted(GPUS, key=len, reverse=True):  # names with a memory size first
        model, _, memory = name.lower().partition("-")
        if model in word and (not memory or f"{memory}g" in word):
            return name
    return "unknown"


def hours_of(text: str) -> float | None:
    """Return the hours in Slurm's notation: 1-12:30:00, or 30:00 for half an hour."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return days * 24 + hours + minutes / 60


def _modules(text: str) -> list[str]:
    return [word for line in text.splitlines() if re.search(r"torch", word := line.strip(), re.IGNORECASE)][:LOADABLE]

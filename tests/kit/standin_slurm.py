"""A Slurm that stands in for a site's: sbatch, sinfo, scontrol, sacctmgr and module, which know its partitions.

It refuses what that Slurm would: an unknown partition, account, quality, feature or option, more nodes, GPUs, cores,
memory or hours than there are, memory that is missing or may not be asked for. Run as a script it is the commands.
"""

from __future__ import annotations

import json
import re
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "sinfo", "scontrol", "sacctmgr")
OPTIONS = """
account array begin chdir comment constraint container cpus-per-gpu cpus-per-task dependency error exclude exclusive
export gpus gpus-per-node gpus-per-task gres job-name licenses mail-type mail-user mem mem-per-cpu mem-per-gpu nice
no-requeue nodelist nodes ntasks ntasks-per-node open-mode output parsable partition qos requeue reservation signal
test-only time tmp wckey
"""  # of sbatch's: what a script of ours writes and is not here is a mistake
SHORT = {"A": "account", "p": "partition", "N": "nodes", "t": "time", "q": "qos", "C": "constraint", "x": "exclude"}


class Refused(Exception):
    """As sbatch says it."""


def facts_of(site: Any) -> dict[str, Any]:
    """What a Slurm with the partitions of a site knows; None: no limit."""
    qualities: dict[str, dict[str, Any]] = {
        one.name: {"hours": one.hours, "nodes": one.nodes, "gpus": one.gpus, "of": list(one.partitions)}
        for one in site.quality
    }
    partitions = [
        {
            "name": part.name,
            "queue": part.queue or part.name,
            "quality": part.quality,
            "usual": not part.queue and not part.quality,
            "hours": part.hours,
            "least": part.min_nodes or 1,
            "nodes": part.nodes,
            "cores": part.cores,
            "memory": part.memory,
            "gpu": "" if part.gpu == "none" else _kind(part),
            "gpus": part.gpus,
            "min_gpus": part.min_gpus or 0,
            "max_gpus": part.max_gpus,
            "ask_memory": part.ask_memory,
            "whole": bool(part.whole_nodes),
            "features": [part.constraint] if part.constraint else [],
            "up": "up",
            "arch": part.arch,
        }
        for part in site.partition
    ]
    for part in site.partition:
        if part.quality:
            qualities.setdefault(part.quality, {"hours": None, "nodes": None, "gpus": None, "of": [part.name]})
    modules = [*site.modules, *(name for part in site.partition for name in part.modules)]
    return {
        "partitions": partitions,
        "qualities": qualities,
        "accounts": ["x"],
        "keeps_accounts": True,
        "needs_account": site.account == "required",
        "modules": list(dict.fromkeys(modules)),
    }


def _kind(part: Any) -> str:
    named = re.search(r"gpu:([\w.-]+):\{", part.ask)
    return named[1] if named else part.gpu.lower().replace("-", "_") + ("gb" if "-" in part.gpu else "")


def install(folder: Path, facts: dict[str, Any]) -> Path:
    """Put the commands into FOLDER/bin, which goes before PATH, and `module` into FOLDER/.bash_profile, its HOME."""
    commands = folder / "bin"
    commands.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").write_text(json.dumps(facts))
    for name in COMMANDS:
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {name} {folder}/facts.json "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    there = " ".join(map(shlex.quote, facts["modules"]))
    (folder / ".bash_profile").write_text(
        f"export PATH={commands}:$PATH\n"
        f'module() {{ case $1 in load) shift; for m; do case " {there} " in *" $m "*) ;; *) return 1 ;; esac; done ;;\n'
        f'-t) printf "%s\\n" {there} | grep -i "^$3/" ;; esac; }}\n'
    )
    return commands


# --- sbatch


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            name, value, equals = SHORT.get(word[1:2], word[1:2]), word[2:], "=" if word[2:] else ""
        if name not in OPTIONS.split():
            raise Refused(f"unrecognized option '{word}'")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name] = value
    return found


def _script(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in Path(path).read_text().splitlines():
        if line.startswith("#SBATCH "):
            found |= _options(shlex.split(line.removeprefix("#SBATCH "), comments=True))
        elif line and not line.startswith("#"):
            break
    return found


def _hours(text: str) -> float:
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return int(days or 0) * 24 + hours + minutes / 60 + seconds / 3600


def _gib(text: str) -> float:
    return float(text[:-1]) * {"M": 1 / 1024, "G": 1, "T": 1024}[text[-1]]


def sbatch(words: list[str], facts: dict[str, Any]) -> None:
    script = words.pop() if words and not words[-1].startswith("-") else ""
    options = {**(_script(script) if script else {}), **_options(words)}
    part = _partition(options, facts)
    nodes, gpus = int(options.get("nodes", 1)), _gpus(options, part)
    quality = facts["qualities"].get(options.get("qos", ""), {})
    if facts["needs_account"] and "account" not in options:
        raise Refused("Batch job submission failed: Invalid account or account/partition combination specified")
    if "account" in options and facts["accounts"] and options["account"] not in facts["accounts"]:
        raise Refused("Batch job submission failed: Invalid account or account/partition combination specified")
    limit = quality.get("hours") or part["hours"]
    if limit and _hours(options.get("time", "00:00:00")) > limit:
        raise Refused("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)")
    if nodes > (quality.get("nodes") or part["nodes"] or nodes) or nodes < part["least"]:
        raise Refused("Batch job submission failed: Node count specification invalid")
    total = gpus * nodes
    if gpus > (part["gpus"] or gpus) or total > (quality.get("gpus") or part["max_gpus"] or total):
        raise Refused("Batch job submission failed: Requested node configuration is not available")
    if part["gpu"] and "array" not in options and total < part["min_gpus"]:
        raise Refused("Batch job submission failed: Requested node configuration is not available")
    tasks = int(options.get("ntasks-per-node", 1))
    cores = int(options.get("cpus-per-task", 1)) * tasks
    if cores > (part["cores"] or cores):
        raise Refused("Batch job submission failed: CPU count per node can not be satisfied")
    _memory(options, part, cores, gpus)
    if "test-only" in options:
        print("sbatch: Job 7 to start at 2026-12-01T00:00:00 a partition", file=sys.stderr)
    else:
        print(7 if "parsable" in options else "Submitted batch job 7")


def _partition(options: dict[str, str], facts: dict[str, Any]) -> dict[str, Any]:
    quality = options.get("qos", "")
    if quality and quality not in facts["qualities"]:
        raise Refused("Batch job submission failed: Invalid qos specification")
    name, feature = options.get("partition", ""), options.get("constraint", "")
    if name:
        here = [part for part in facts["partitions"] if part["queue"] == name]
    else:
        of = facts["qualities"].get(quality, {}).get("of", [])
        here = [part for part in facts["partitions"] if part["name"] in of]
        here = here or [part for part in facts["partitions"] if part["usual"]]
    if not here:
        raise Refused("Batch job submission failed: Invalid partition name specified")
    if feature:
        here = [part for part in here if feature in part["features"]]
        if not here:
            raise Refused("Batch job submission failed: Invalid feature specification")
    return next((part for part in here if feature or not part["features"]), here[0])


def _gpus(options: dict[str, str], part: dict[str, Any]) -> int:
    """Of each node."""
    count = options.get("gpus-per-node", "0")
    if gres := options.get("gres", ""):
        kind, _, count = gres.removeprefix("gpu:").rpartition(":")
        if kind and kind != part["gpu"]:
            raise Refused("Batch job submission failed: Invalid generic resource (gres) specification")
    if "gpus" in options:
        count = str(int(options["gpus"]) // int(options.get("nodes", 1)))
    if int(count) and not part["gpu"]:
        raise Refused("Batch job submission failed: Requested node configuration is not available")
    return int(count)


def _memory(options: dict[str, str], part: dict[str, Any], cores: int, gpus: int) -> None:
    asked = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in options]
    if len(asked) > 1:
        raise Refused("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
    if asked and part["ask_memory"] == "fixed":
        raise Refused("error: memory is not to be specified in this partition")
    if not asked and part["ask_memory"] == "required":
        raise Refused("error: you must specify how much memory the job needs, --mem or --mem-per-cpu")
    if asked and part["memory"]:
        times = {"mem": 1, "mem-per-cpu": cores, "mem-per-gpu": gpus}[asked[0]]
        if _gib(options[asked[0]]) * times > part["memory"] + 1e-6:
            raise Refused("Batch job submission failed: Memory specification can not be satisfied")


# --- what asks


def _limit(hours: float | None) -> str:
    if not hours:
        return "infinite"
    days, rest = divmod(round(hours * 60), 1440)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


def sinfo(words: list[str], facts: dict[str, Any]) -> None:
    [form] = [word.removeprefix("--format=") for word in words if word.startswith("--format=")]
    for part in facts["partitions"]:
        gres = f"gpu:{part['gpu']}:{part['gpus'] or 1}(S:0-1)" if part["gpu"] else "(null)"
        values = {
            "P": part["queue"] + ("*" if part["usual"] else ""),
            "R": part["queue"],
            "a": part["up"],
            "l": _limit(part["hours"]),
            "c": str(part["cores"] or 64),
            "m": str(round((part["memory"] or 256) * 1024)),
            "G": gres,
            "s": f"{part['least']}-{part['nodes'] or 'infinite'}",
            "D": "10",
            "T": "idle",
            "h": "EXCLUSIVE" if part["whole"] else "NO",
            "f": ",".join(part["features"]) or "(null)",
        }
        print("|".join(values[letter] for letter in re.findall(r"%(\w)", form)))


def scontrol(words: list[str], facts: dict[str, Any]) -> None:
    for number, part in enumerate(facts["partitions"]):
        if "partition" in words:
            print(
                f"PartitionName={part['queue']} Default={'YES' if part['usual'] else 'NO'} "
                f"MaxNodes={part['nodes'] or 'UNLIMITED'} MinNodes={part['least']} MaxTime={_limit(part['hours'])} "
                f"OverSubscribe={'EXCLUSIVE' if part['whole'] else 'NO'}"
            )
        else:
            gres = f"gpu:{part['gpu']}:{part['gpus'] or 1}" if part["gpu"] else "(null)"
            print(
                f"NodeName=n{number} Arch={part['arch']} CPUTot={part['cores'] or 64} "
                f"RealMemory={round((part['memory'] or 256) * 1024)} Gres={gres} Partitions={part['queue']}"
            )


def sacctmgr(words: list[str], facts: dict[str, Any]) -> None:
    if not facts["keeps_accounts"]:
        raise Refused("You are not running a supported accounting_storage plugin")
    if "qos" in words:
        print("normal|")
        for name, quality in facts["qualities"].items():
            print(f"{name}|{_limit(quality['hours']) if quality['hours'] else ''}")
    else:
        print("\n".join(f"{name}|normal" for name in facts["accounts"]))


if __name__ == "__main__":
    name, path, *rest = sys.argv[1:]
    try:
        {"sbatch": sbatch, "sinfo": sinfo, "scontrol": scontrol, "sacctmgr": sacctmgr}[name](
            rest, json.loads(Path(path).read_text())
        )
    except Refused as refused:
        print(f"{name}: error: {refused}".replace("error: error:", "error:"), file=sys.stderr)
        sys.exit(1)

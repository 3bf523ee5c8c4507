"""Snapshots of a training: numbered folders, complete or absent, checked by the checksums in their state.json.

    checkpoints/step-000000500/  state.json  {"step": 500, ..., "checksums": {"model.safetensors": "1a2b3c4d", ...}}

Of several processes, each writes its own files: model-00002-of-00004.safetensors, optimizer-...; index.json lists what
each file holds.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say

KINDS = ("model", "optimizer")
INDEX = "index.json"  # which file of several holds what


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}"


def file_of(kind: str, rank: int, world: int) -> str:
    return f"{kind}.safetensors" if world == 1 else f"{kind}-{rank + 1:05d}-of-{world:05d}.safetensors"


def kind_of(name: str) -> str:
    return name.split(".")[0].split("-")[0]


def steps(folder: Path) -> list[int]:
    numbers = (p.name.removeprefix("step-") for p in folder.glob("step-*") if p.is_dir())
    return sorted(int(n) for n in numbers if n.isdigit())


def latest(folder: Path, *, place: object, kinds: Sequence[str] = KINDS) -> tuple[Path, dict[str, Any]] | None:
    """Return the path and state of the last intact snapshot; None if there is no snapshot.

    A message is printed for each damaged one that is skipped. If all are damaged, raise an error.
    """
    candidates = [s for s in steps(folder) if len(kinds) == 1 or not is_stripped(path_of(folder, s))]
    for step in reversed(candidates):
        path = path_of(folder, step)
        wrong = damage(path, kinds)
        if not wrong:
            return path, files.read_table(path / "state.json")
        say(f"{path}: {wrong}; using the checkpoint before it")
    if candidates:
        count = len(candidates)
        damaged = "the only checkpoint is" if count == 1 else f"all {many(count, 'checkpoint')} are"
        raise DataError(place, f"{damaged} damaged", "an intact checkpoint", "start again with another `out`")
    return None


def strip(path: Path) -> None:
    """Delete all files of a snapshot except the weights. It can still be evaluated, but not resumed."""
    state = files.read_table(path / "state.json")
    moments = [name for name in state["checksums"] if kind_of(name) != KINDS[0]]
    if moments:
        kept = {name: total for name, total in state["checksums"].items() if name not in moments}
        rest = {key: value for key, value in state.items() if key != "index"}  # the index lists deleted files
        files.write_json(path / "state.json", {**rest, "checksums": kept})
        for name in (INDEX, *moments):
            (path / name).unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete a snapshot. Rename it first, so that a partly deleted snapshot is never used."""
    aside = path.with_name(f".{path.name}.old.part")
    path.rename(aside)
    shutil.rmtree(aside)


def clean(folder: Path) -> None:
    """Remove partly written and partly deleted snapshots. No other process may be writing one."""
    for left in folder.glob(".step-*.part"):
        shutil.rmtree(left, ignore_errors=True)


def is_stripped(path: Path) -> bool:
    try:
        return {kind_of(name) for name in files.read_table(path / "state.json")["checksums"]} == {KINDS[0]}
    except (DataError, KeyError, TypeError, AttributeError):
        return False


def reached(folder: Path) -> list[tuple[str, int]]:
    """Return (label, step) for each label for which a snapshot is kept, in order of steps."""
    return [(label, step) for step in steps(folder) for label in labels(path_of(folder, step))]


def labels(path: Path) -> list[str]:
    """Return the labels for which a snapshot is kept; none if its state is damaged."""
    try:
        return list(files.read_table(path / "state.json").get("reached", []))
    except DataError:
        return []


def damage(path: Path, kinds: Sequence[str] = KINDS) -> str:
    """Return the first problem with the files of these kinds in a snapshot; "" if they are intact."""
    try:
        state = files.read_table(path / "state.json")
        sums = state["checksums"]
        if "index" in state and files.checksum(path / INDEX) != state["index"]:
            return f"{INDEX} is damaged"
        if {kind_of(name) for name in sums} < set(kinds):
            return "state.json has no " + " or ".join(sorted(set(kinds) - {kind_of(name) for name in sums}))
        for name in (n for n in sums if kind_of(n) in kinds):
            if not (path / name).exists():
                return f"{name} is missing"
            if files.checksum(path / name) != sums[name]:
                return f"{name} is damaged (checksum {files.checksum(path / name)}, wanted {sums[name]})"
    except (DataError, KeyError, TypeError, AttributeError, OSError) as error:
        return f"state.json is damaged ({error})"
    return ""

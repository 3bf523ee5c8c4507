"""Snapshots: numbered folders that are whole or absent, known by the checksums in their state.json; how they are found.

checkpoints/step-000000500/  state.json  {"step": 500, ..., "checksums": {"model.safetensors": "1a2b3c4d", ...}}

Several processes write a file of each kind each: model-00002-of-00004.safetensors, optimizer-...; index.json says which
of them holds what.
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
    """Where the snapshot of a step stands."""
    return folder / f"step-{step:09d}"


def file_of(kind: str, rank: int, world: int) -> str:
    """What the file of a kind is called that a rank writes."""
    return f"{kind}.safetensors" if world == 1 else f"{kind}-{rank + 1:05d}-of-{world:05d}.safetensors"


def kind_of(name: str) -> str:
    """Which kind a file is of."""
    return name.split(".")[0].split("-")[0]


def steps(folder: Path) -> list[int]:
    """The steps that have a snapshot, oldest first."""
    numbers = (p.name.removeprefix("step-") for p in folder.glob("step-*") if p.is_dir())
    return sorted(int(n) for n in numbers if n.isdigit())


def latest(folder: Path, *, place: object, kinds: Sequence[str] = KINDS) -> tuple[Path, dict[str, Any]] | None:
    """The last whole snapshot and its state; damaged ones are passed over, saying so. None: there never was one."""
    whole = [s for s in steps(folder) if len(kinds) == 1 or not is_stripped(path_of(folder, s))]
    for step in reversed(whole):
        path = path_of(folder, step)
        wrong = damage(path, kinds)
        if not wrong:
            return path, files.read_table(path / "state.json")
        say(f"{path}: {wrong}; the checkpoint before it is used")
    if whole:
        damaged = "the only checkpoint is" if len(whole) == 1 else f"all {many(len(whole), 'checkpoint')} are"
        raise DataError(place, f"{damaged} damaged", "one that is whole", "start anew: name another `out`")
    return None


def strip(path: Path) -> None:
    """Leave nothing but the weights of a snapshot: a revision to look at, not to go on from."""
    state = files.read_table(path / "state.json")
    moments = [name for name in state["checksums"] if kind_of(name) != KINDS[0]]
    if moments:
        kept = {name: total for name, total in state["checksums"].items() if name not in moments}
        rest = {key: value for key, value in state.items() if key != "index"}  # it names files that go
        files.write_json(path / "state.json", {**rest, "checksums": kept})
        for name in (INDEX, *moments):
            (path / name).unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete a snapshot; it loses its name first, so that one half deleted is not taken for one."""
    aside = path.with_name(f".{path.name}.old.part")
    path.rename(aside)
    shutil.rmtree(aside)


def clean(folder: Path) -> None:
    """Take away what was left half written or half deleted; while nobody writes."""
    for left in folder.glob(".step-*.part"):
        shutil.rmtree(left, ignore_errors=True)


def is_stripped(path: Path) -> bool:
    """Does a snapshot hold weights alone?"""
    try:
        return {kind_of(name) for name in files.read_table(path / "state.json")["checksums"]} == {KINDS[0]}
    except (DataError, KeyError, TypeError, AttributeError):
        return False


def reached(folder: Path) -> list[tuple[str, int]]:
    """What snapshots are kept for, by label, each with its step, in the order in which a run came to them."""
    return [(label, step) for step in steps(folder) for label in labels(path_of(folder, step))]


def labels(path: Path) -> list[str]:
    """What a snapshot is kept for; nothing where its state cannot be read, for it is damaged."""
    try:
        return list(files.read_table(path / "state.json").get("reached", []))
    except DataError:
        return []


def damage(path: Path, kinds: Sequence[str] = KINDS) -> str:
    """What is wrong with the files of these kinds in a snapshot; empty where they are whole."""
    try:
        state = files.read_table(path / "state.json")
        sums = state["checksums"]
        if "index" in state and files.checksum(path / INDEX) != state["index"]:
            return f"{INDEX} is damaged"
        if {kind_of(name) for name in sums} < set(kinds):
            return "state.json names no " + " or ".join(sorted(set(kinds) - {kind_of(name) for name in sums}))
        for name in (n for n in sums if kind_of(n) in kinds):
            if not (path / name).exists():
                return f"{name} is missing"
            if files.checksum(path / name) != sums[name]:
                return f"{name} is damaged (checksum {files.checksum(path / name)}, wanted {sums[name]})"
    except (DataError, KeyError, TypeError, AttributeError, OSError) as error:
        return f"state.json is damaged ({error})"
    return ""

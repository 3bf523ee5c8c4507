"""Snapshots: numbered folders that are whole or absent, known by the checksums in their state.json; how they are found.

checkpoints/step-000000500/  state.json  {"step": 500, ..., "checksums": {"model.safetensors": "1a2b3c4d", ...}}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.say import say

PARTS = ("model.safetensors", "optimizer.safetensors")


def path_of(folder: Path, step: int) -> Path:
    """Where the snapshot of a step stands."""
    return folder / f"step-{step:09d}"


def steps(folder: Path) -> list[int]:
    """The steps that have a snapshot, oldest first."""
    numbers = (p.name.removeprefix("step-") for p in folder.glob("step-*") if p.is_dir())
    return sorted(int(n) for n in numbers if n.isdigit())


def latest(folder: Path, *, place: object, parts: Sequence[str] = PARTS) -> tuple[Path, dict[str, Any]] | None:
    """The last whole snapshot and its state; damaged ones are passed over, saying so. None: there never was one."""
    found = steps(folder)
    for step in reversed(found):
        path = path_of(folder, step)
        wrong = damage(path, parts)
        if not wrong:
            return path, files.read_json(path / "state.json")
        say(f"{path}: {wrong}; the checkpoint before it is used")
    if found:
        raise DataError(
            place, f"all {len(found)} checkpoints are damaged", "one that is whole", "start anew: name another `out`"
        )
    return None


def damage(path: Path, parts: Sequence[str] = PARTS) -> str:
    """What is wrong with these parts of a snapshot; empty where they are whole."""
    try:
        sums = files.read_json(path / "state.json")["checksums"]
        for part in parts:
            if not (path / part).exists():
                return f"{part} is missing"
            if files.checksum(path / part) != sums[part]:
                return f"{part} is damaged (checksum {files.checksum(path / part)}, wanted {sums[part]})"
    except (DataError, KeyError, TypeError, OSError) as error:
        return f"state.json is damaged ({error})"
    return ""

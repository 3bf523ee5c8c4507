"""Checkpoints: whole or absent, checked when read, the last few kept.

checkpoints/step-000000500/
  model.safetensors       every tensor of the objective, once
  optimizer.safetensors   `<moment>/<parameter>`
  state.json              step, phase, versions, checksums of the two: written last, then the folder is renamed
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base.errors import OrdsmedError, RunError
from ordsmed.base.snapshots import PARTS, damage, latest, steps
from ordsmed.learn.objective import Objective
from ordsmed.nn import weights

__all__ = ["PARTS", "damage", "latest", "restore", "restore_moments", "save", "steps"]


def save(
    folder: Path, step: int, objective: Objective, optimizer: torch.optim.Optimizer, keep: int, **facts: Any
) -> Path:
    """Write one checkpoint, then drop the oldest beyond `keep`; what stood before stays until the new one is whole."""
    path = folder / f"step-{step:09d}"
    beside = folder / f".{path.name}.part"
    with files.survive_disk(path):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
    try:
        weights.write(beside / PARTS[0], {**weights.own_tensors(objective), **_carried(objective)})
        weights.write(beside / PARTS[1], _moments(objective, optimizer))
        sums = {part: files.checksum(beside / part) for part in PARTS}
        files.write_json(beside / "state.json", {"step": step, **facts, "checksums": sums})
    except OrdsmedError as error:
        shutil.rmtree(beside, ignore_errors=True)
        last = steps(folder)
        stands = f"checkpoint of step {last[-1]} stands" if last else "no checkpoint stands"
        raise RunError(error.place, f"{error.found} ({stands})", error.wanted, error.remedy) from None
    if path.exists():
        shutil.rmtree(path)
    beside.rename(path)
    files.sync(folder)
    stand = steps(folder)  # those after this step were passed over as damaged: they hold nothing to keep
    for old in [s for s in stand if s > step] + [s for s in stand if s <= step][:-keep]:
        shutil.rmtree(folder / f"step-{old:09d}")
    return path


def restore(path: Path, objective: Objective, optimizer: torch.optim.Optimizer) -> None:
    """Put a checkpoint back into networks, carried state and optimizer."""
    tensors = weights.read(path / PARTS[0])
    for name in objective.state:
        objective.state[name].copy_(tensors.pop(f"state/{name}"))
    weights.load_into(objective, tensors, path)
    restore_moments(path, objective, optimizer)


def restore_moments(path: Path, objective: Objective, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's moments, by parameter name."""
    moments = weights.read(path / PARTS[1])
    fused = {p: g.get("fused") or g.get("capturable") for g in optimizer.param_groups for p in g["params"]}
    for name, parameter in weights.own_tensors(objective).items():
        own = {key.split("/")[0]: value for key, value in moments.items() if key.partition("/")[2] == name}
        if own:
            optimizer.state[parameter] = {
                k: v.to(parameter.device) if k != "step" or fused[parameter] else v for k, v in own.items()
            }  # the count of steps stays on the CPU unless a fused kernel reads it


def _moments(objective: Objective, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{key}/{name}": value
        for name, parameter in weights.own_tensors(objective).items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def _carried(objective: Objective) -> dict[str, Tensor]:
    return {f"state/{name}": value for name, value in objective.state.items()}

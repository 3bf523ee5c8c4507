"""What tests of families make: a network of theirs with every number random, ours read from its folder, packed rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ordsmed.data.batch import Batch, batch_of
from ordsmed.learn.objectives import mlm
from ordsmed.nn.model import own_tensors
from ordsmed.weights import foreign, weights
from ordsmed.weights.hub_files import config, tensors

WORDS = 97
LENGTHS = (5, 9, 3)  # of documents in a packed row, padding after them


@dataclass
class Signs:
    """As much of a tokenizer as networks ask for."""

    vocabulary: int = WORDS
    pad: int | None = 0
    start: int | None = 2
    stop: int | None = 3
    end: int | None = 5
    separator: int | None = 5


def shaken(module: Any, spread: float = 0.15) -> Any:
    """Every parameter moved at random: no bias is 0 and no norm is 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    return module.eval()


def masked(settings: Any) -> Any:
    """Masked prediction by such a network."""
    return mlm.Mlm().build(settings, Signs()).eval()  # type: ignore[arg-type]


def ours_of(folder: Path) -> Any:
    """What is read back from their folder."""
    objective = masked(foreign.settings(folder))
    foreign.load_into(objective, folder, Signs())
    return objective


def hub_folder(objective: Any, folder: Path) -> Path:
    """What export writes of a network."""
    folder.mkdir()
    [network] = objective.networks().values()
    signs = Signs(pad=max(getattr(network.settings, "offset", 1) - 1, 0))  # RoBERTa counts from its number
    (folder / "config.json").write_text(json.dumps(config(network, signs)))
    weights.write(folder / "model.safetensors", tensors(network))
    return folder


def state(objective: nn.Module) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in own_tensors(objective).items()}


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    return bool((one - other).abs().max() <= tolerance * other.abs().max())


def sentence(rows: int = 3, length: int = 17) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and which tokens count (the rest is padding)."""
    ids = torch.randint(6, WORDS, (rows, length), generator=torch.Generator().manual_seed(1))
    kept = torch.ones(rows, length, dtype=torch.int32)
    kept[1, 11:], kept[2, 5:] = 0, 0
    return ids, torch.arange(length).repeat(rows, 1), kept


def masked_batch(ids: Tensor, positions: Tensor, kept: Tensor, asked: Tensor) -> Batch:
    """Rows that are asked about some of their own tokens."""
    slots = int(asked.sum(1).max())
    places, used = np.zeros((len(ids), slots), np.int64), np.zeros((len(ids), slots), np.float32)
    for row, which in enumerate(asked):
        found = which.nonzero().flatten().numpy()
        places[row, : len(found)], used[row, : len(found)] = found, 1
    targets = np.take_along_axis(ids.numpy(), places, 1)
    return batch_of(
        numbers=np.arange(len(ids)),
        tokens=ids.numpy(),
        positions=positions.numpy(),
        documents=kept.numpy(),
        targets=targets,
        weights=used,
        predicted_positions=places,
    )


def packed(rows: int = 2, length: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of three documents and some padding: ids, positions, documents."""
    ids = torch.randint(6, WORDS, (rows, length), generator=torch.Generator().manual_seed(4))
    documents = torch.zeros(rows, length, dtype=torch.int32)
    positions = torch.zeros(rows, length, dtype=torch.int64)
    start = 0
    for number, size in enumerate(LENGTHS, 1):
        documents[:, start : start + size] = number
        positions[:, start : start + size] = torch.arange(size)
        start += size
    return ids, positions, documents


@torch.no_grad()
def hidden(settings: Any, *inputs: Tensor | None) -> Tensor:
    """What a network with weights drawn from a seed makes of rows."""
    torch.manual_seed(8)
    found: Tensor = shaken(settings.build(WORDS))(*inputs)
    return found


def count(*modules: nn.Module) -> int:
    """Numbers to learn, each once."""
    return sum(p.numel() for p in {id(p): p for m in modules for p in m.parameters()}.values())

"""Parameter groups: which weights decay and at which share of the rate they learn, decided by shape, place and name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ordsmed.nn.shards import LocalParameter


@dataclass(frozen=True)
class Rule:
    """Weights that are treated in a way of their own; the first rule that fits a name counts."""

    match: str
    """a regular expression, searched for in the names of weights (model.words.weight, model.blocks.3.up.bias...)"""
    rate: float = 1.0
    """factor of the phase's learning rate"""
    decay: bool | None = None
    """whether the optimizer's weight decay applies; left out: to matrices and tables, not to biases and norms"""

    def __post_init__(self) -> None:
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"match: found {self.match}, {error}; wanted a regular expression") from None
        if not 0 <= self.rate < float("inf"):
            raise ValueError(f"rate: found {self.rate}; wanted 0 or more")


def groups(
    module: nn.Module, *, rules: Sequence[Rule] = (), layer_decay: float = 1.0, rows: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Groups of equal treatment, in the network's order; each parameter once. `rows`: of those that have padding.

    A group has `params` (what lies on this rank), their `parts` and `names`, `kind` (matrix, table: rows looked up by
    id, or vector), `decayed`, and `share`: its rate as a share of the phase's.
    """
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    height = levels([name for name, _ in named])
    groups: dict[tuple[str, bool, float], list[LocalParameter]] = {}
    for name, parameter in named:
        rule = next((r for r in rules if re.search(r.match, name)), Rule(""))
        kind = "table" if id(parameter) in tables else "matrix" if parameter.ndim > 1 else "vector"
        decayed = kind != "vector" if rule.decay is None else rule.decay
        share = rule.rate * layer_decay ** (height["heads"] - height[name])
        groups.setdefault((kind, decayed, share), []).append(LocalParameter.of(name, parameter, (rows or {}).get(name)))
    return [
        {"kind": kind, "decayed": decayed, "share": share, "names": [p.name for p in parts], "parts": parts,
         "params": [p.local for p in parts]}
        for (kind, decayed, share), parts in groups.items()
    ]  # fmt: skip


def levels(names: Sequence[str]) -> dict[str, int]:
    """How far from the words each weight stands: embeddings 0, block i at i + 1, what follows the blocks one on, and
    `heads` one more (ELECTRA's rule: rate x decay^(layers + 2 - level), so the last block has decay^2... heads all)."""
    blocks = {name: int(m[1]) for name in names if (m := re.search(r"(?:^|\.)blocks\.(\d+)\.", name))}
    last = max(blocks.values(), default=-1)
    heights, passed = {"heads": last + 3}, set()
    for name in names:
        network = name.split(".")[0]  # model, or a generator beside it
        if name in blocks:
            passed.add(network)
            heights[name] = blocks[name] + 1
        elif network in ("model", "generator"):
            heights[name] = last + 2 if network in passed else 0
        else:
            heights[name] = last + 3
    return heights

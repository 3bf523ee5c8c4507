"""Parameter groups: weight decay and learning-rate share of each weight, by its shape, its layer and its name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ordsmed.nn.shards import LocalParameter


@dataclass(frozen=True)
class Rule:
    """Learning-rate factor and weight decay of the weights whose names match; the first match applies."""

    match: str
    """a regular expression, searched for in the names of weights (model.words.weight, model.blocks.3.up.bias...)"""
    rate: float = 1.0
    """factor of the phase's learning rate"""
    decay: bool | None = None
    """whether weights decay (the optimizer's `decay`); left out: matrices and tables do, biases and norms do not"""

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
    """Return the optimizer's parameter groups, in the network's order; each parameter is in exactly one group.

    A group has `params` (this rank's part of each weight), their `parts` and `names`, `kind` (matrix, vector, or table:
    an embedding), `decayed`, and `share`, the factor of the phase's learning rate.

    Args:
        rules: exceptions, from the recipe.
        layer_decay: factor of the learning rate from each layer to the one below it.
        rows: of padded weights: name -> number of rows without padding.
    """
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    level_of = levels([name for name, _ in named])
    groups: dict[tuple[str, bool, float], list[LocalParameter]] = {}
    for name, parameter in named:
        rule = next((r for r in rules if re.search(r.match, name)), Rule(""))
        kind = "table" if id(parameter) in tables else "matrix" if parameter.ndim > 1 else "vector"
        decayed = kind != "vector" if rule.decay is None else rule.decay
        share = rule.rate * layer_decay ** (level_of["heads"] - level_of[name])
        groups.setdefault((kind, decayed, share), []).append(LocalParameter.of(name, parameter, (rows or {}).get(name)))
    return [
        {
            "kind": kind,
            "decayed": decayed,
            "share": share,
            "names": [p.name for p in parts],
            "parts": parts,
            "params": [p.local for p in parts],
        }
        for (kind, decayed, share), parts in groups.items()
    ]


def levels(names: Sequence[str]) -> dict[str, int]:
    """Return the level of each weight: embeddings 0, block i at i + 1, weights after the blocks next, heads last.

    The key `heads` has the highest level, at which weights learn at the full rate: in ELECTRA's layer-wise decay the
    rate of a weight is rate * decay ** (layers + 2 - level).
    """
    blocks = {name: int(m[1]) for name in names if (m := re.search(r"(?:^|\.)blocks\.(\d+)\.", name))}
    last = max(blocks.values(), default=-1)
    level_of, passed = {"heads": last + 3}, set()  # passed: networks whose blocks have begun
    for name in names:
        network = name.split(".")[0]  # model or generator
        if name in blocks:
            passed.add(network)
            level_of[name] = blocks[name] + 1
        elif network in ("model", "generator"):
            level_of[name] = last + 2 if network in passed else 0
        else:
            level_of[name] = last + 3
    return level_of

"""The data types and sizes that a network will pass to the project's kernels."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ordsmed.nn.dropout import Dropout
from ordsmed.nn.kernels.trial import Shapes
from ordsmed.nn.lstm import Lstm
from ordsmed.nn.model import Block
from ordsmed.nn.residual import WIDEST


def shapes_of(network: nn.Module, dtype: torch.dtype, exact: Sequence[str] = ()) -> Shapes:
    """Return the shapes of a network whose products have this `dtype`. `exact`: names of parts that stay in fp32."""
    every = list(network.modules())
    within = [part for block in every if isinstance(block, Block) for part in block.modules()]
    norms = [part for part in within if isinstance(part, nn.LayerNorm) and part.normalized_shape[-1] <= WIDEST]
    lstms = [part for part in every if isinstance(part, Lstm) and part.project is not None]
    words = [part.num_embeddings for part in every if isinstance(part, nn.Embedding)]
    return Shapes(
        dtype=dtype,
        residuals=(dtype, torch.float32) if set(exact) & {"embeddings", "norms"} else (dtype,),
        normed=torch.float32 if "norms" in exact else dtype,
        widths=_unique(norm.normalized_shape[-1] for norm in norms),
        shifts=_unique(norm.bias is not None for norm in norms),
        drops=_unique(part.rate > 0 for part in within if isinstance(part, Dropout)),
        inner=_unique(part.out_features for part in within if isinstance(part, nn.Linear)),
        vocabulary=(max(words),) if words else (),
        cells=_unique((part.cells, part.carry.shape[1]) for part in lstms),
    )


def _unique(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))

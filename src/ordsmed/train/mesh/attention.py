"""Report which attention kernels a network uses on a device, and why faster ones are not used."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ordsmed.base.ranks import Ranks
from ordsmed.nn.attention import MIN_RATIO
from ordsmed.nn.cpu_attention import QUERIES
from ordsmed.nn.model import ModelSettings
from ordsmed.nn.varlen import why_not
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import DTYPES

FLASH = "flash kernels for texts of any length"


def attention_lines(
    network: ModelSettings, layout: Layout, ranks: Ranks, lengths: Sequence[int], *, mixed: bool = False
) -> list[str]:
    """Return one line on the attention of rows of these lengths; none for a network without attention.

    `mixed`: some rows are causal and some bidirectional.
    """
    heads, dropout, reach = (getattr(network, name, None) for name in ("heads", "attention_dropout", "reach"))
    if heads is None or dropout is None:
        return []
    dtype = DTYPES[layout.precision] if layout.half else torch.float32
    lack = why_not(ranks.device, dtype, network.width // heads, ranks.card)
    if ranks.device.type == "cpu":
        return [f"attention: {_on_a_cpu(network, layout, lengths, reach, dropout, mixed=mixed)}"]
    if not lack and not mixed:
        options = "; dropout in torch's operator" if dropout else ""
        return [f"attention: {FLASH}, no mask{options}"]
    wanted = f"need {lack}" if lack else "need rows of one direction"
    local = ", and where layers are local" if reach is not None else ""
    masked = f"a mask where rows hold several texts or padding{local}"
    return [f"attention: torch's kernel; {masked} ({FLASH} {wanted})"]


def _on_a_cpu(
    network: ModelSettings, layout: Layout, lengths: Sequence[int], reach: int | None, dropout: float, *, mixed: bool
) -> str:
    products = "plain products, because torch's kernel is slower with dropout" if dropout else "torch's kernel"
    if layout.precision == "bf16" and not dropout and not layout.compile:
        long = network.capabilities.causal and max(lengths) > QUERIES
        products += f", gradients by plain products, which are faster in bf16{f' to {QUERIES} tokens' if long else ''}"
    if layout.compile:
        return f"{products}; masks, because blocks are compiled"
    if mixed:
        return f"{products}; masks where rows are read from left to right"
    parts = [products, "texts one by one where that costs less than a mask"]
    if reach is not None:
        near = [f"{length:,}" for length in lengths if 0 < MIN_RATIO * reach <= length]
        parts.append(f"local layers by neighbors at length {' and '.join(near)}" if near else "local layers by masks")
    return "; ".join(parts)

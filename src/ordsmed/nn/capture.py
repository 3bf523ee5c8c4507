"""Capture the hidden states between the blocks of a network during a forward pass."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from ordsmed.nn.model import Block


@contextlib.contextmanager
def capture_layers(model: nn.Module, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect hidden states of the forward passes within this context, by layer.

    Layer 0 is the first block's input, layer n the output of block n, except the last block's.
    """
    if not layers:
        yield {}
        return
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    states: dict[int, Tensor] = {}

    def hook(number: int) -> Any:
        if number == 0:
            return blocks[0].register_forward_pre_hook(lambda block, inputs: states.__setitem__(0, inputs[0]))
        return blocks[number - 1].register_forward_hook(lambda block, inputs, out: states.__setitem__(number, out))

    hooks = [hook(number) for number in set(layers) if number < len(blocks)]
    try:
        yield states
    finally:
        for handle in hooks:
            handle.remove()

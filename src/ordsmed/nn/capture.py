"""Capturing the hidden states between the blocks of a network during a forward pass."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from ordsmed.nn.model import Block


@contextlib.contextmanager
def capture_layers(model: nn.Module, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect hidden states of the forward passes within this context: layer 0 is the first block's input.

    Layer n is the output of block n; the last block's output is not collected.
    """
    if not layers:
        yield {}
        return
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    heard: dict[int, Tensor] = {}

    def listen(number: int) -> Any:
        if number == 0:
            return blocks[0].register_forward_pre_hook(lambda block, inputs: heard.__setitem__(0, inputs[0]))
        return blocks[number - 1].register_forward_hook(lambda block, inputs, out: heard.__setitem__(number, out))

    hooks = [listen(number) for number in set(layers) if number < len(blocks)]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()

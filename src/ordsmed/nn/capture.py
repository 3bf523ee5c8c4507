"""Listening: what the blocks of a network make of its rows, while it reads them."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from ordsmed.nn.model import Block


@contextlib.contextmanager
def capture_layers(model: nn.Module, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """While a network reads: what goes into its first block, by 0; what comes out of each but the last, by 1, 2..."""
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

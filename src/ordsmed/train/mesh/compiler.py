"""torch.compile, block by block. Compiled graphs are counted, and exceeding the limit is an error, not a slow fallback.

All blocks share one code object, so one limit applies to all networks, masks and phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ordsmed.base.errors import Trouble
from ordsmed.base.say import detail
from ordsmed.nn.dropout import Dropout

BACKEND = "inductor"  # of torch.compile
LIMIT = 64  # most graphs of one code object; torch's 8 are too few for two networks and two phases

Forward = Callable[..., Tensor]


@dataclass
class Compiler:
    """The backend that torch calls for each graph; it logs each new graph, because compiling takes time."""

    backend: str
    graphs: int = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs += 1
        detail(f"compile: graph {self.graphs} by {self.backend}")
        ready: Callable[..., Sequence[Tensor]] = lookup_backend(self.backend)(graph, inputs)
        return ready


def compile_blocks(blocks: Sequence[nn.Module], compiler: Compiler) -> None:
    """Compile blocks for training. Validation has other shapes and is not compiled."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = LIMIT
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # else it would continue without compiling
    for block in blocks:
        for layer in block.modules():
            if isinstance(layer, Dropout):  # on a CPU numpy draws the mask, from a key of each micro-batch
                layer.mask = torch.compiler.disable(layer.mask)  # type: ignore[method-assign]
        block.compile(backend=compiler)
        block._compiled_call_impl = _only_in_training(block, cast("Forward", block._compiled_call_impl))


def _only_in_training(block: nn.Module, compiled: Forward) -> Forward:
    def call(*inputs: object, **more: object) -> Tensor:
        from torch._dynamo.exc import FailOnRecompileLimitHit

        if not block.training:
            return cast("Tensor", block._call_impl(*inputs, **more))
        try:
            return compiled(*inputs, **more)
        except FailOnRecompileLimitHit:
            problem = f"torch compiled a block {LIMIT} times for different shapes"
            raise Trouble("layout.compile", problem, "fewer row shapes", "set layout.compile = false") from None

    return call

"""Parallelism: the complete policy in one place, outside every model; spreads an objective over a mesh.

    tensor plan of each block -> recompute -> compile, block by block -> FSDP2, or copies that sum their gradients

Each block has a table of its layers to split by column or by row (nn/model.py); everything else is here.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.learn.objective import Comparing
from ordsmed.nn import products
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.fp8 import use_fp8
from ordsmed.nn.kernels import switch
from ordsmed.nn.model import Block, Model, TokenHead
from ordsmed.nn.shards import LocalParameter
from ordsmed.train.mesh import compiler
from ordsmed.train.mesh.compiler import Compiler, compile_blocks
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.precision import DTYPES, cast_at_once
from ordsmed.train.mesh.replicas import Replicas


@dataclass
class Parallel:
    """What the training loop needs to know about the objective's parallelism."""

    rows: dict[str, int] = field(default_factory=dict)  # rows without padding of padded tensors
    factor: float = 1.0  # multiplies the loss: FSDP2 averages over ranks, the loop needs sums
    replicas: Replicas | None = None
    compiler: Compiler | None = None

    def before_micro_batch(self, last: bool) -> None:
        if self.replicas:
            self.replicas.before_micro_batch(last)

    def sum_gradients(self, parts: list[LocalParameter]) -> None:
        """Sum gradients over all ranks, after the step's last backward pass."""
        for part in parts:
            part.hand_over_gradient()
        if self.replicas:
            self.replicas.sum_gradients()


def spread(objective: nn.Module, layout: Layout, ranks: Ranks) -> Parallel:
    blocks = [module for module in objective.modules() if isinstance(module, Block)]
    parallel, (replicate, shard, tensor) = Parallel(), ranks.shape
    if ranks.world > 1:
        _broadcast_weights(objective)
    if tensor > 1:
        parallel.rows = split_layers(objective, layout, ranks)
    if layout.fp8 and not sum(map(use_fp8, blocks)):
        raise RecipeError("layout.fp8", "found true, but no layer of this network has products that fit", "false")
    at_once = layout.half and not layout.compile and ranks.device.type != "cpu" and (shard, tensor) == (1, 1)
    cast_norms = "norms" not in layout.exact and not switch.runs("residual_norm", ranks.device)  # it needs fp32
    products.take(objective)
    for block in blocks:
        if at_once:
            cast_at_once(block, DTYPES[layout.precision], norms=cast_norms)
        if layout.recompute:
            block.forward = functools.partial(_recompute, block.forward)
    if layout.compile:
        parallel.compiler = Compiler(compiler.BACKEND)
        compile_blocks(blocks, parallel.compiler)
    if shard > 1:
        parallel.factor = float(ranks.data_world)
        if ranks.device.type == "cpu":
            check_gloo_averages()
        mesh = ranks.mesh["replicate", "shard"] if replicate > 1 else ranks.mesh["shard"]
        split_weights(objective, blocks, layout, mesh)
    return parallel


def sum_copies(parallel: Parallel, parts: list[LocalParameter], layout: Layout, ranks: Ranks) -> None:
    """If ranks hold copies, let them sum gradients; under tensor parallelism after the backward pass."""
    if ranks.shape[0] > 1 and ranks.shape[1] == 1:
        overlap = layout.overlap and ranks.shape[2] == 1
        parallel.replicas = Replicas(parts, ranks.data_group, overlap=overlap, reduce=layout.reduce)


def check_gloo_averages() -> None:
    """Raise if Gloo cannot average gradients, as FSDP2 needs: it could not in torch 2.7. NCCL always could."""
    try:
        torch.distributed.all_reduce(torch.zeros(1), op=torch.distributed.ReduceOp.AVG)
    except RuntimeError as error:
        if "ReduceOp.AVG" not in str(error):
            raise
        problem = f"found more than 1 on CPUs, which torch {torch.__version__} cannot do (Gloo has no averages)"
        raise RecipeError("layout.shard", problem, "1", "use a newer torch, or GPUs") from None


def split_weights(objective: nn.Module, blocks: list[Block], layout: Layout, mesh: DeviceMesh) -> None:
    """Apply FSDP2 to each block, and to the rest of the objective as one more unit."""
    # under tensor parallelism a block returns a view; torch warns about in-place changes, which do not occur
    warnings.filterwarnings("ignore", message=".*returned a view tensor", category=UserWarning)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    half = DTYPES[layout.precision] if layout.half else None  # None: keep the dtype
    reduce = DTYPES[layout.reduce]
    inner = MixedPrecisionPolicy(None if "norms" in layout.exact else half, reduce, cast_forward_inputs=False)
    outer = MixedPrecisionPolicy(None if layout.exact else half, reduce, cast_forward_inputs=False)
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard, mp_policy=inner)
    fully_shard(objective, mesh=mesh, reshard_after_forward=False, mp_policy=outer)
    for method in ("validate", *(["view"] if isinstance(objective, Comparing) else [])):
        register_fsdp_forward_method(objective, method)


def free_memory(objective: nn.Module) -> None:
    """Free weights that FSDP2 gathered, so that the next pass uses values written to the shards."""
    reshard = getattr(objective, "reshard", None)
    if reshard is not None:
        reshard()


def split_layers(objective: nn.Module, layout: Layout, ranks: Ranks) -> dict[str, int]:
    """Apply tensor parallelism by torch's DTensor: blocks by their plans, the vocabulary by rows."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        PrepareModuleOutput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh, whole = ranks.mesh["tensor"], Replicate()
    between = Shard(1) if layout.sequence else whole
    styles: dict[str, Any] = {
        "column": lambda: ColwiseParallel(input_layouts=between),
        "row": lambda: RowwiseParallel(output_layouts=between),
        "norm": lambda: SequenceParallel(use_local_output=True),
    }
    rows = _split_vocabulary(objective, layout, mesh)
    for model in objective.modules():
        if not isinstance(model, Model):
            continue
        blocks = [module for module in model.modules() if isinstance(module, Block)]
        for block in blocks:
            plan = {
                name: styles[style]()
                for name, style in block.tensor_plan.items()
                if style in ("column", "row") or (style == "norm" and layout.sequence)
            }
            parallelize_module(block, mesh, plan)
            _split_dropout(block, layout, ranks.tensor_rank)
        if layout.sequence and blocks:
            enter = PrepareModuleInput(
                input_layouts=(whole, None), desired_input_layouts=(between, None), use_local_output=True
            )
            parallelize_module(blocks[0], mesh, enter)
            parallelize_module(
                blocks[-1], mesh, PrepareModuleOutput(output_layouts=between, desired_output_layouts=whole)
            )
    return rows


def _split_vocabulary(objective: nn.Module, layout: Layout, mesh: DeviceMesh) -> dict[str, int]:
    """Split word tables and head biases by rows; return the row counts without padding.

    Rows of zeros at the end make the parts equal in size. They do not take part in scores.
    """
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    names = {id(p): name for name, p in objective.named_parameters()}
    rows: dict[str, int] = {}
    split: set[int] = set()
    for module in list(objective.modules()):
        if isinstance(module, Model | TokenHead) and id(module.words) not in split:  # most networks share one table
            table = module.words
            split.add(id(table))
            rows[names[id(table.weight)]] = len(table.weight)
            table.weight = nn.Parameter(_padded(table.weight, layout.divisible * mesh.size()))
            parallelize_module(table, mesh, RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()))
        if isinstance(module, TokenHead) and module.bias is not None:
            rows[names[id(module.bias)]] = len(module.bias)
            padded = _padded(module.bias, layout.divisible * mesh.size())
            module.bias = nn.Parameter(distribute_tensor(padded, mesh, [Shard(0)], src_data_rank=None))
    return rows


def weights_of_rank(objective: nn.Module, layout: Layout) -> int:
    """Return about how many weights each rank holds."""
    split: set[int] = set()
    if layout.tensor > 1:
        for module in objective.modules():
            if isinstance(module, Block):
                named = dict(module.named_modules())
                inner = [named[n] for n, style in module.tensor_plan.items() if style in ("column", "row")]
                split |= {id(layer.weight) for layer in inner}
            if isinstance(module, Model | TokenHead):
                split.add(id(module.words.weight))
    return sum(
        -(-p.numel() // ((layout.tensor if id(p) in split else 1) * layout.shard)) for p in objective.parameters()
    )


def padded_rows(rows: int, multiple: int) -> int:
    """Return `rows` rounded up to a multiple (`divisible` x tensor), as Megatron does."""
    return -(-rows // multiple) * multiple


def _padded(table: Tensor, multiple: int) -> Tensor:
    more = table.new_zeros(padded_rows(len(table), multiple) - len(table), *table.shape[1:])
    return torch.cat([table.detach(), more])


def _split_dropout(block: Block, layout: Layout, tensor_rank: int) -> None:
    """Give ranks of a tensor group different dropout where activations are split, and the same elsewhere."""
    for name, module in block.named_modules():
        if isinstance(module, Dropout):
            apart = layout.sequence or block.tensor_plan.get(name) == "split"
            module.stream = 1 + tensor_rank if apart else 0


def _recompute(forward: Callable[..., Tensor], *inputs: object, **more: Any) -> Tensor:
    """Run a block and keep only its inputs.

    On a CPU dropout is a function of a key, so it repeats; on a GPU torch restores the random state.
    """
    from torch.utils.checkpoint import checkpoint

    states: Tensor = checkpoint(forward, *inputs, use_reentrant=False, **more)
    return states


def _broadcast_weights(objective: nn.Module) -> None:
    """Broadcast the first rank's weights, in case another machine drew different random numbers."""
    for tensor in objective.state_dict(keep_vars=True).values():
        torch.distributed.broadcast(tensor.detach(), src=0)

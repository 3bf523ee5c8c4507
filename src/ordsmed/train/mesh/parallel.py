"""Parallel: the whole policy on one page, outside every model; objective -> the same objective, spread over a mesh.

    tensor plan of each block -> recompute -> compile, block by block -> FSDP2, or copies that sum their gradients

A block says in a table which of its layers are split by column or by row (nn/model.py); everything else is here.
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
    """What the loop has to know of how an objective is spread."""

    rows: dict[str, int] = field(default_factory=dict)  # of tensors with padding at their end: how many count
    factor: float = 1.0  # of the loss: FSDP2 takes the mean over ranks where the loop wants the sum
    replicas: Replicas | None = None
    compiler: Compiler | None = None

    def before_micro_batch(self, last: bool) -> None:
        """Before a micro-batch: is it the step's last?"""
        if self.replicas:
            self.replicas.before_micro_batch(last)

    def sum_gradients(self, parts: list[LocalParameter]) -> None:
        """After the step's last backward pass: gradients are sums over all ranks from here on."""
        for part in parts:
            part.hand_over_gradient()
        if self.replicas:
            self.replicas.sum_gradients()


def spread(objective: nn.Module, layout: Layout, ranks: Ranks) -> Parallel:
    """Put an objective onto the mesh of its ranks."""
    blocks = [module for module in objective.modules() if isinstance(module, Block)]
    parallel, (replicate, shard, tensor) = Parallel(), ranks.shape
    if ranks.world > 1:
        _same_start(objective)
    if tensor > 1:
        parallel.rows = split_layers(objective, layout, ranks)
    if layout.fp8 and not sum(map(use_fp8, blocks)):
        raise RecipeError("layout.fp8", "found true, but no layer of this network has products that fit", "false")
    at_once = layout.half and not layout.compile and ranks.device.type != "cpu" and (shard, tensor) == (1, 1)
    cast_norms = "norms" not in layout.exact and not switch.runs("residual_norm", ranks.device)  # ours reads fp32
    products.take(objective)
    for block in blocks:
        if at_once:
            cast_at_once(block, DTYPES[layout.precision], norms=cast_norms)
        if layout.recompute:
            block.forward = functools.partial(_recomputed, block.forward)
    if layout.compile:
        parallel.compiler = Compiler(compiler.BACKEND)
        compile_blocks(blocks, parallel.compiler)
    if shard > 1:
        parallel.factor = float(ranks.data_world)
        if ranks.device.type == "cpu":
            gloo_takes_means()
        mesh = ranks.mesh["replicate", "shard"] if replicate > 1 else ranks.mesh["shard"]
        split_weights(objective, blocks, layout, mesh)
    return parallel


def sum_copies(parallel: Parallel, parts: list[LocalParameter], layout: Layout, ranks: Ranks) -> None:
    """Where ranks hold copies: let them sum gradients; under tensor parallelism after the backward pass."""
    if ranks.shape[0] > 1 and ranks.shape[1] == 1:
        overlap = layout.overlap and ranks.shape[2] == 1
        parallel.replicas = Replicas(parts, ranks.data_group, overlap=overlap, reduce=layout.reduce)


def gloo_takes_means() -> None:
    """FSDP2 asks for means of gradients, which Gloo does not make in torch 2.7; on GPUs NCCL always did."""
    try:
        torch.distributed.all_reduce(torch.zeros(1), op=torch.distributed.ReduceOp.AVG)
    except RuntimeError as error:
        if "ReduceOp.AVG" not in str(error):
            raise
        problem = f"found more than 1 on CPUs, which torch {torch.__version__} cannot (no means by Gloo)"
        raise RecipeError("layout.shard", problem, "1", "a newer torch can; so can GPUs with this one") from None


def split_weights(objective: nn.Module, blocks: list[Block], layout: Layout, mesh: DeviceMesh) -> None:
    """FSDP2: each block's weights are gathered for its pass; the rest of the objective is one more such unit."""
    # under tensor parallelism a block's result is a view; nothing here changes one in place, which is what torch fears
    warnings.filterwarnings("ignore", message=".*returned a view tensor", category=UserWarning)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    half = DTYPES[layout.precision] if layout.half else None  # None: as they are
    reduce = DTYPES[layout.reduce]
    inner = MixedPrecisionPolicy(None if "norms" in layout.exact else half, reduce, cast_forward_inputs=False)
    outer = MixedPrecisionPolicy(None if layout.exact else half, reduce, cast_forward_inputs=False)
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard, mp_policy=inner)
    fully_shard(objective, mesh=mesh, reshard_after_forward=False, mp_policy=outer)
    for method in ("validate", *(["view"] if isinstance(objective, Comparing) else [])):
        register_fsdp_forward_method(objective, method)


def let_go(objective: nn.Module) -> None:
    """Of split weights what was gathered for a pass, so that the next one sees what was written into the parts."""
    reshard = getattr(objective, "reshard", None)
    if reshard is not None:
        reshard()


def split_layers(objective: nn.Module, layout: Layout, ranks: Ranks) -> dict[str, int]:
    """Tensor parallelism by torch's DTensor: blocks by their plans, the vocabulary by rows."""
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
    """Word tables and the heads' biases by rows; rows of padding make the parts equal, are 0 and score nothing."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    names = {id(p): name for name, p in objective.named_parameters()}
    rows: dict[str, int] = {}
    split: set[int] = set()
    for module in list(objective.modules()):
        if isinstance(module, Model | TokenHead) and id(module.words) not in split:  # most share a table
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


def held_by_rank(objective: nn.Module, layout: Layout) -> int:
    """About how many numbers of the weights a rank holds: some are split over tensor ranks, all over shard ranks."""
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
    """Megatron's rule: the smallest multiple that holds them (`divisible` x tensor)."""
    return -(-rows // multiple) * multiple


def _padded(table: Tensor, multiple: int) -> Tensor:
    more = table.new_zeros(padded_rows(len(table), multiple) - len(table), *table.shape[1:])
    return torch.cat([table.detach(), more])


def _split_dropout(block: Block, layout: Layout, tensor_rank: int) -> None:
    """Where activations are split the ranks of a tensor group draw apart; where they are equal, alike."""
    for name, module in block.named_modules():
        if isinstance(module, Dropout):
            apart = layout.sequence or block.tensor_plan.get(name) == "split"
            module.stream = 1 + tensor_rank if apart else 0


def _recomputed(forward: Callable[..., Tensor], *inputs: object, **more: Any) -> Tensor:
    """A block that keeps its inputs alone. On a CPU dropout is a function of its key; else torch restores chance."""
    from torch.utils.checkpoint import checkpoint

    states: Tensor = checkpoint(forward, *inputs, use_reentrant=False, **more)
    return states


def _same_start(objective: nn.Module) -> None:
    """All ranks have drawn the same weights; should a machine draw otherwise, the first rank's count."""
    for tensor in objective.state_dict(keep_vars=True).values():
        torch.distributed.broadcast(tensor.detach(), src=0)

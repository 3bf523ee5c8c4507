"""How an objective is spread, as far as one process can tell: padding, what a rank holds, dropout's streams, copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.learn.objectives import mlm
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.model import Block
from ordsmed.nn.models import bert
from ordsmed.nn.shards import LocalParameter
from ordsmed.train.mesh import parallel
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.mesh.parallel import Parallel, padded_rows, spread, sum_copies, weights_of_rank


class Signs:
    vocabulary = 50


def objective() -> Any:
    torch.manual_seed(0)
    return mlm.Mlm().build(bert.Bert(width=16, layers=2, heads=2, inner=32, positions=8), Signs())


def at(*shape: int, rank: int = 0) -> Ranks:
    world = shape[0] * shape[1] * shape[2]
    return Ranks(torch.device("cpu"), rank, world, shape=(shape[0], shape[1], shape[2]))


@pytest.mark.parametrize(("rows", "multiple", "wanted"), [(1, 128, 128), (128, 128, 128), (129, 128, 256), (50, 1, 50)])
def test_a_table_is_padded_to_a_multiple(rows: int, multiple: int, wanted: int) -> None:
    assert padded_rows(rows, multiple) == wanted
    table = torch.ones(rows, 3)
    padded = parallel._padded(table, multiple)
    assert padded.shape == (wanted, 3)
    assert torch.equal(padded[:rows], table)
    assert not padded[rows:].any(), "what is not learned is 0"
    assert parallel._padded(torch.ones(rows), multiple).shape == (wanted,)


def test_what_a_rank_holds_is_its_share() -> None:
    made = objective()
    whole = sum(p.numel() for p in made.parameters())
    assert weights_of_rank(made, Layout()) == whole
    half = weights_of_rank(made, Layout(shard=2))
    assert half == sum(-(-p.numel() // 2) for p in made.parameters())
    named = dict(made.named_parameters())
    blocks = [name for name, module in made.named_modules() if isinstance(module, Block)]
    split = []
    for block in blocks:
        plan = made.get_submodule(block).tensor_plan
        split += [f"{block}.{name}.weight" for name, style in plan.items() if style in ("column", "row")]
    split.append("model.words.weight")
    assert len(split) == 2 * 4 + 1
    rest = whole - sum(named[name].numel() for name in split)
    assert weights_of_rank(made, Layout(tensor=2)) == rest + sum(named[name].numel() // 2 for name in split)
    both = weights_of_rank(made, Layout(tensor=2, shard=2))
    assert half // 2 < both < half


def test_ranks_of_a_tensor_group_drop_apart_where_activations_are_split() -> None:
    """With rows split between the layers everywhere, else where the plan says `split` alone."""
    (block, *_), rank = [m for m in objective().modules() if isinstance(m, Block)], 3
    layers = {name: module for name, module in block.named_modules() if isinstance(module, Dropout)}
    for sequence in (True, False):
        parallel._split_dropout(block, Layout(tensor=4, sequence=sequence), rank)
        for name, layer in layers.items():
            apart = sequence or block.tensor_plan.get(name) == "split"
            assert layer.stream == (1 + rank if apart else 0), name
    assert {layer.stream for layer in layers.values()} == {0, 1 + rank}


def test_recomputed_blocks_give_the_same() -> None:
    ids, positions = torch.arange(8)[None], torch.arange(8)[None]
    plain, again = objective().eval(), objective().eval()
    calls: list[int] = []
    for block in [m for m in again.modules() if isinstance(m, Block)]:
        real = block.forward
        block.forward = lambda *given, real=real, **more: calls.append(1) or real(*given, **more)
    spread(again, Layout(recompute=True), at(1, 1, 1))
    grads = []
    for made in (plain, again):
        out = made.model(ids, positions)
        out.square().sum().backward()
        grads.append([p.grad for p in made.model.parameters() if p.grad is not None])
    assert len(calls) == 4, "each block twice"
    assert len(grads[0]) == len(grads[1]) > 10
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_alone_nothing_is_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("_broadcast_weights", "split_layers", "split_weights"):
        monkeypatch.setattr(parallel, name, lambda *_, name=name: asked.append(name) or {"rows": 1})
    found = spread(objective(), Layout(), at(1, 1, 1))
    assert (asked, found.rows, found.factor, found.replicas) == ([], {}, 1.0, None)


@pytest.mark.parametrize(
    ("shape", "wanted", "factor", "mesh"),
    [
        ((2, 1, 1), ["_broadcast_weights"], 1.0, None),
        ((1, 1, 2), ["_broadcast_weights", "split_layers"], 1.0, None),
        ((1, 2, 1), ["_broadcast_weights", "split_weights"], 2.0, "shard"),
        ((3, 2, 2), ["_broadcast_weights", "split_layers", "split_weights"], 6.0, ("replicate", "shard")),
    ],
)
def test_it_is_spread_in_order_as_the_mesh_says(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], wanted: list[str], factor: float, mesh: Any
) -> None:
    """FSDP takes the mean over the ranks that see other rows: the loss is multiplied by so many."""
    asked: list[str] = []
    meshes: list[Any] = []
    monkeypatch.setattr(parallel, "_broadcast_weights", lambda made: asked.append("_broadcast_weights"))
    monkeypatch.setattr(parallel, "split_layers", lambda *_: asked.append("split_layers") or {"words": 50})
    monkeypatch.setattr(
        parallel, "split_weights", lambda *given: asked.append("split_weights") or meshes.append(given[3])
    )
    monkeypatch.setattr(parallel, "check_gloo_averages", lambda: None)
    ranks = dataclasses.replace(at(*shape), mesh={"shard": "shard", ("replicate", "shard"): ("replicate", "shard")})
    found = spread(objective(), Layout(), ranks)
    assert (asked, found.factor) == (wanted, factor)
    assert found.rows == ({"words": 50} if "split_layers" in wanted else {})
    assert meshes == ([mesh] if mesh else [])


def test_an_old_gloo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def refused(values: torch.Tensor, op: Any) -> None:
        asked.append(op)
        raise RuntimeError(problem)

    monkeypatch.setattr(torch.distributed, "all_reduce", refused)
    problem = "Cannot use ReduceOp.AVG with Gloo"
    monkeypatch.setattr(parallel, "split_weights", lambda *_: asked.append("split"))
    monkeypatch.setattr(parallel, "_broadcast_weights", lambda made: None)
    with pytest.raises(RecipeError, match=r"layout.shard: found more than 1 on CPUs, which torch .*; wanted 1"):
        spread(objective(), Layout(), at(1, 2, 1))
    assert asked == [torch.distributed.ReduceOp.AVG]
    problem = "Connection reset by peer"
    with pytest.raises(RuntimeError, match="Connection reset"):
        parallel.check_gloo_averages()


@pytest.mark.parametrize(
    ("shape", "overlap", "wanted"),
    [
        ((2, 1, 1), True, True),
        ((2, 1, 1), False, False),
        ((2, 1, 2), True, False),
        ((2, 2, 1), True, None),
        ((1, 1, 2), True, None),
        ((1, 1, 1), True, None),
    ],
)
def test_copies_sum_where_weights_are_not_split(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], overlap: bool, wanted: bool | None
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(parallel, "Replicas", lambda *given, **how: made.append((given, how)))
    ranks = dataclasses.replace(at(*shape), data_group="data")
    parts = [LocalParameter.of("p", torch.nn.Parameter(torch.zeros(1)))]
    sum_copies(Parallel(), parts, Layout(overlap=overlap, reduce="bf16"), ranks)
    assert made == ([] if wanted is None else [((parts, "data"), {"overlap": wanted, "reduce": "bf16"})])


def test_the_first_ranks_weights_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every parameter and buffer."""
    sent: list[int] = []

    def broadcast(tensor: torch.Tensor, src: int) -> None:
        assert src == 0
        sent.append(tensor.data_ptr())
        tensor.zero_()

    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    made = objective()
    parallel._broadcast_weights(made)
    assert {tensor.data_ptr() for tensor in made.state_dict().values()} == set(sent)
    assert not any(p.any() for p in made.parameters())


def test_gradients_are_handed_over_before_copies_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(LocalParameter, "hand_over_gradient", lambda self: done.append(self.name))

    class Copies:
        def before_micro_batch(self, last: bool) -> None:
            done.append(f"listen {last}")

        def sum_gradients(self) -> None:
            done.append("sum_gradients")

    spreads = Parallel(replicas=Copies())  # type: ignore[arg-type]
    spreads.before_micro_batch(False)
    spreads.before_micro_batch(True)
    spreads.sum_gradients([LocalParameter.of(name, torch.nn.Parameter(torch.zeros(1))) for name in "ab"])
    assert done == ["listen False", "listen True", "a", "b", "sum_gradients"]


@pytest.mark.parametrize(
    ("how", "inner", "outer"),
    [
        ({}, None, None),
        ({"precision": "bf16"}, torch.bfloat16, torch.bfloat16),
        ({"precision": "fp16", "exact": ("norms",)}, None, None),
        ({"precision": "bf16", "exact": ("types",)}, torch.bfloat16, None),
    ],
)
def test_split_weights_are_fetched_block_by_block(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], inner: Any, outer: Any
) -> None:
    """In 16 bits where products are, unless something inside is to stay exact; the rest is kept till the end."""
    import torch.distributed.fsdp as fsdp

    asked: list[Any] = []
    methods: list[str] = []
    monkeypatch.setattr(fsdp, "fully_shard", lambda module, **given: asked.append((module, given)))
    monkeypatch.setattr(fsdp, "register_fsdp_forward_method", lambda module, name: methods.append(name))
    made = objective()
    blocks = [m for m in made.modules() if isinstance(m, Block)]
    parallel.split_weights(made, blocks, Layout(reshard=True, reduce="bf16", **how), "the mesh")
    assert [module for module, _ in asked] == [*blocks, made]
    assert [given["reshard_after_forward"] for _, given in asked] == [True, True, False]
    assert {given["mesh"] for _, given in asked} == {"the mesh"}
    policies = [given["mp_policy"] for _, given in asked]
    assert [policy.param_dtype for policy in policies] == [inner, inner, outer]
    assert {policy.reduce_dtype for policy in policies} == {torch.bfloat16}
    assert not any(policy.cast_forward_inputs for policy in policies)
    assert methods == ["validate"]
    parallel.split_weights(made, blocks, Layout(reshard=False), "the mesh")
    assert [given["reshard_after_forward"] for _, given in asked[3:]] == [False] * 3


@pytest.fixture
def mesh() -> Iterator[Ranks]:
    """One process that stands in a mesh of 1 x 1 x 1: splits without another half."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        made = dist.init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("replicate", "shard", "tensor"))
        yield dataclasses.replace(at(1, 1, 1), mesh=made)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("sequence", [True, False])
def test_layers_are_split_by_their_plans(mesh: Ranks, sequence: bool) -> None:
    """Layers by column and row, the vocabulary by rows, padded; norms only where rows are split too; same results."""
    ids, positions = torch.arange(8)[None] % 50, torch.arange(8)[None]
    plain, made = objective().eval(), objective().eval()
    rows = parallel.split_layers(made, Layout(sequence=sequence, divisible=64), mesh)
    wanted = {"model.words.weight": 50, "head.bias": 50}
    assert rows == wanted
    found = {name: str(p.placements[0]) for name, p in made.named_parameters() if hasattr(p, "placements")}
    for name in wanted:
        del found[name]
        assert made.get_parameter(name).placements[0].is_shard(0)  # type: ignore[attr-defined]
        assert len(made.get_parameter(name)) == 64
    plans = [
        (f"{name}.{key}", style)
        for name, block in made.named_modules()
        if isinstance(block, Block)
        for key, style in block.tensor_plan.items()
    ]
    of = lambda style: {name for name, own in plans if own == style}  # noqa: E731
    owners = {name.rpartition(".")[0] for name in found}
    assert owners == of("column") | of("row") | (of("norm") if sequence else set())
    dims = {name: made.get_parameter(f"{name}.weight").placements[0] for name in of("column") | of("row")}  # type: ignore[attr-defined]
    assert all(place.is_shard(0 if name in of("column") else 1) for name, place in dims.items())
    assert torch.allclose(plain.model(ids, positions), made.model(ids, positions), atol=1e-5)


@pytest.mark.parametrize("sequence", [True, False])
def test_rows_between_layers_are_split_where_that_is_asked(monkeypatch: pytest.MonkeyPatch, sequence: bool) -> None:
    """What enters a layer split by columns, and what leaves one split by rows; and tables are padded for all ranks."""
    from torch.distributed import tensor
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as of_torch

    plans: list[Any] = []
    monkeypatch.setattr(of_torch, "parallelize_module", lambda module, mesh, plan: plans.append(plan))
    monkeypatch.setattr(tensor, "distribute_tensor", lambda found, mesh, place, **_: found)
    made, three = objective(), SimpleNamespace(size=lambda: 3)
    ranks = SimpleNamespace(mesh={"tensor": three}, tensor_rank=1)
    rows = parallel.split_layers(made, Layout(tensor=3, sequence=sequence, divisible=8), ranks)  # type: ignore[arg-type]
    assert rows == {"model.words.weight": 50, "head.bias": 50}
    assert len(made.model.words.weight) == len(made.head.bias) == 72
    styles = [style for plan in plans if isinstance(plan, dict) for style in plan.values()]
    enter = {style.input_layouts for style in styles if type(style).__name__ == "ColwiseParallel"}
    leave = {style.output_layouts for style in styles if type(style).__name__ == "RowwiseParallel"}
    wanted = {(Shard(1) if sequence else Replicate(),)}
    assert (enter, leave) == (wanted, wanted)
    assert len(plans) - len([plan for plan in plans if isinstance(plan, dict)]) == (3 if sequence else 1)


def test_what_a_recomputed_block_is_given_by_name_reaches_it() -> None:
    x = torch.ones(2, requires_grad=True)
    found = parallel._recompute(lambda x, *, by: x * by, x, by=3)
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]

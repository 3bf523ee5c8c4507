"""Every optimizer over two processes that each hold a part of every tensor: the weights are those of one process.

The two processes are this file, run as a script: once for all cases.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kit.processes import Process
from ordsmed.learn.groups import groups
from ordsmed.learn.optimizers import adagrad, adamw, lamb, muon, stableadamw

CASES: dict[str, Any] = {
    "adamw": adamw.AdamW(),
    "adamw-bert": adamw.AdamW(variant="bert"),
    "adamw-keras": adamw.AdamW(variant="keras"),
    "lamb": lamb.Lamb(),
    "lamb-clamp": lamb.Lamb(adapt="matrices", clamp=(0.5, 1.5)),
    "lamb-decayed": lamb.Lamb(adapt="decayed", correct=False),
    "muon": muon.Muon(),
    "muon-original": muon.Muon(adjust="original", rest_rate=0.1),
    "adamw-cautious-updates": adamw.AdamW(cautious="updates"),
    "adamw-cautious-decay": adamw.AdamW(cautious="decay"),
    "muon-neurons": muon.Muon(neurons=0.9, momentum_warmup=2, cautious="decay"),
    "muon-cautious-updates": muon.Muon(cautious="updates"),
    "stableadamw": stableadamw.StableAdamW(),
    "adagrad": adagrad.Adagrad(),
}
WAYS = ("plain", "fsdp", "columns")
STEPS, RATE, WORLD = 4, 0.05, 2


class Net(nn.Module):
    """Sizes that two ranks cannot share evenly, and first dimensions of 1."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.up, self.norm = nn.Embedding(7, 4), nn.Linear(4, 5), nn.LayerNorm(5)
        self.narrow, self.wide, self.even = nn.Linear(5, 1), nn.Linear(1, 3), nn.Linear(3, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.even(self.wide(self.narrow(self.norm(self.up(self.words(ids))))).tanh())


def loss(network: nn.Module, step: int) -> Tensor:
    chance = torch.Generator().manual_seed(step)
    ids, target = torch.randint(7, (16,), generator=chance), torch.randn(16, 4, generator=chance)
    return (network(ids) - target).square().mean() * (1 + 9 * (step == 2))  # once steep: StableAdamW has to slow down


def train(network: nn.Module, how: Any, slope: Callable[[int], None]) -> tuple[dict[str, Tensor], int]:
    """Some steps as the loop takes them; the whole weights, and how often the ranks spoke in a step."""
    optimizer = how.build(groups(network))
    with counted() as talks:
        for step in range(STEPS):
            slope(step)
            for group in optimizer.param_groups:
                group["lr"] = RATE * group["share"]
                for part in group["parts"]:
                    part.hand_over_gradient()
            talks.clear()
            optimizer.step()
            network.zero_grad()
    return {n: whole(p.detach()).clone() for n, p in network.named_parameters()}, len(talks)


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """The all-reduces meanwhile."""
    real, talks = torch.distributed.all_reduce, []

    def told(*given: Any, **named: Any) -> Any:
        talks.append(1)
        return real(*given, **named)

    torch.distributed.all_reduce = told
    try:
        yield talks
    finally:
        torch.distributed.all_reduce = real


def whole(tensor: Any) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def plain(how: Any, mesh: Any) -> tuple[dict[str, Tensor], int]:
    network = Net()
    return train(network, how, lambda step: loss(network, step).backward())


def fsdp(how: Any, mesh: Any) -> tuple[dict[str, Tensor], int]:
    """Both ranks see the same rows, so that the mean of their gradients is that of one process."""
    from torch.distributed.fsdp import fully_shard

    network = Net()
    for layer in (network.up, network.narrow):
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return train(network, how, lambda step: loss(network, step).backward())


def columns(how: Any, mesh: Any) -> tuple[dict[str, Tensor], int]:
    """Matrices cut between columns, vectors whole, gradients as sums still to be made: tensor parallelism's ways.

    The slopes are those of a network of one process that stands at the same weights.
    """
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    network, twin = Net(), Net()
    for module in network.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            place = Shard(1) if p.ndim > 1 else Replicate()
            setattr(module, name, nn.Parameter(distribute_tensor(p.detach(), mesh, [place])))

    def slope(step: int) -> None:
        for p, q in zip(network.parameters(), twin.parameters(), strict=True):
            q.data.copy_(whole(p.detach()))
        twin.zero_grad()
        loss(twin, step).backward()
        for p, q in zip(network.parameters(), twin.parameters(), strict=True):
            p.grad = DTensor.from_local(q.grad / WORLD, mesh, [Partial()])

    return train(network, how, slope)


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder.as_posix()}/meet", rank=rank, world_size=WORLD
    )
    mesh = torch.distributed.init_device_mesh("cpu", (WORLD,))
    for case, how in CASES.items():
        for way in (plain, fsdp, columns):
            weights, talks = way(how, mesh)
            tensors = {**weights, "talks": torch.tensor(talks)}
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{case}.{way.__name__}.{rank}")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, nursery: Any) -> Callable[..., dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("ranks")
    ranks = list[Process]()
    for rank in range(WORLD):
        out = folder / f"said-{rank}"
        script = [str(Path(__file__).resolve()), str(folder), str(rank)]
        pid = nursery(script=script, env={"SAID": str(out)})
        ranks.append(Process(pid, lambda pid=pid: nursery(poll=pid), out))
    try:
        ended = [rank.wait() for rank in ranks]
    finally:
        for rank in ranks:
            rank.end()
    assert ended == [0] * WORLD, "\n".join(rank.said for rank in ranks)
    return lambda case, way, rank=0: load_file(folder / f"{case}.{way}.{rank}")


@pytest.mark.long
@pytest.mark.parametrize("way", ["fsdp", "columns"])
@pytest.mark.parametrize("case", CASES)
def test_sharded_is_as_one_process(trained: Callable[..., dict[str, Tensor]], case: str, way: str) -> None:
    found, wanted = trained(case, way), trained(case, "plain")
    start = dict(Net().named_parameters())
    for name, there in start.items():
        assert torch.allclose(found[name], wanted[name], rtol=1e-5, atol=1e-7), (name, found[name], wanted[name])
        assert not torch.allclose(found[name], there, rtol=1e-3), name
    other = trained(case, way, 1)
    assert all(torch.equal(found[name], other[name]) for name in start)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_the_ranks_speak_at_most_once_a_step(trained: Callable[..., dict[str, Tensor]], case: str) -> None:
    """For norms; what Muon gathers goes another way. Cautious updates are lengthened group by group."""
    speaks = case.startswith(("lamb", "stableadamw")) or case == "muon-neurons"
    if case.endswith("cautious-updates"):
        return
    assert [int(trained(case, way)["talks"]) for way in WAYS] == [0, speaks, speaks]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

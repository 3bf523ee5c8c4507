"""Ranks: what torchrun, mpirun and srun say is understood, what cannot be is one line, a mesh has a place for all."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import timedelta
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore

from ordsmed.base import ranks
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.base.ranks import (
    ProcessInfo,
    Ranks,
    RanksAbsent,
    attempt_token,
    first_node,
    on_rank0,
    process_info,
    second_connection,
)
from ordsmed.cli import main

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "big7",
    "MASTER_PORT": "1234",
}
MPIRUN = {
    f"OMPI_COMM_WORLD_{k}": v for k, v in {"RANK": "2", "SIZE": "4", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"}.items()
}
SRUN = {
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_STEP_NODELIST": "gpu[003-010,015]",
    "SLURM_JOB_ID": "1234567",
}


@pytest.mark.parametrize(
    ("told", "counts"), [("4", [4]), ("4(x3)", [4, 4, 4]), ("4(x2),3", [4, 4, 3]), ("1,12(x2),7", [1, 12, 12, 7])]
)
def test_how_many_processes_slurm_puts_on_each_machine(told: str, counts: list[int]) -> None:
    assert ranks._per_node(told) == counts


def test_a_process_alone() -> None:
    assert process_info({}) == ProcessInfo(0, 1, 0, 1)
    assert process_info({"MASTER_ADDR": "elsewhere", "SLURM_JOB_ID": "7"}).world == 1


def test_torchrun() -> None:
    assert process_info(TORCHRUN) == ProcessInfo(5, 8, 1, 4, "big7", 1234)


def test_torchrun_comes_before_what_a_scheduler_says() -> None:
    """torchrun inside srun: the processes are torchrun's."""
    assert process_info({**SRUN, **TORCHRUN}) == ProcessInfo(5, 8, 1, 4, "big7", 1234)


def test_a_plain_rank_and_size_are_one_machine() -> None:
    assert process_info({"RANK": "1", "WORLD_SIZE": "2"}) == ProcessInfo(1, 2, 1, 2, "127.0.0.1", 29500)


def test_mpirun_on_one_machine_and_on_several() -> None:
    alone = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
    assert process_info(alone) == ProcessInfo(2, 4, 2, 4, "127.0.0.1", 29500)
    assert process_info({**MPIRUN, "MASTER_ADDR": "a"}) == ProcessInfo(2, 4, 0, 2, "a", 29500)
    with pytest.raises(RecipeError, match=r"MASTER_ADDR: missing.*mpirun -x MASTER_ADDR"):
        process_info(MPIRUN)


def test_srun_on_several_machines() -> None:
    """Ranks find the first machine by themselves, and all of them the same port."""
    assert process_info(SRUN) == ProcessInfo(9, 11, 1, 3, "gpu003", 20_000 + 4567)
    first = {**SRUN, "SLURM_PROCID": "1", "SLURM_NODEID": "0"}
    assert process_info(first) == ProcessInfo(1, 11, 1, 4, "gpu003", 20_000 + 4567)
    assert process_info({**SRUN, "MASTER_ADDR": "ib3", "MASTER_PORT": "77"}) == ProcessInfo(9, 11, 1, 3, "ib3", 77)


def test_srun_on_one_machine() -> None:
    here = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_JOB_ID": "8",
        "SLURM_STEP_NODELIST": "gpu3",
    }
    assert process_info(here) == ProcessInfo(1, 2, 1, 2, "127.0.0.1", 20_008)


def test_a_batch_script_without_srun_is_one_process() -> None:
    """What sbatch sets is about the job, not about this process."""
    job = {
        "SLURM_JOB_ID": "8",
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "gpu[1-2]",
        "SLURM_TASKS_PER_NODE": "2(x2)",
    }
    assert process_info(job).world == 1


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu[003-010,015]", "gpu003"),
        ("gpu[7,9-12],big1", "gpu7"),
        ("gpu3", "gpu3"),
        ("a,b[1-2]", "a"),
        ("big1,gpu[1-2]", "big1"),
        ("node-12[08-09]", "node-1208"),
        ("rack[2-3]n[01-16]", "rack2n01"),
        ("n[1-2]-ib", "n1-ib"),
        ("", "127.0.0.1"),
    ],
)
def test_the_first_machine_of_a_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({**TORCHRUN, "RANK": "first"}, "RANK"),
        ({**TORCHRUN, "WORLD_SIZE": "8.0"}, "WORLD_SIZE"),
        ({**TORCHRUN, "LOCAL_RANK": "x"}, "LOCAL_RANK"),
        ({**TORCHRUN, "MASTER_PORT": "tcp"}, "MASTER_PORT"),
        ({**TORCHRUN, "RANK": "8"}, "RANK"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK"),
        ({k: v for k, v in TORCHRUN.items() if k != "WORLD_SIZE"}, "WORLD_SIZE"),
        ({k: v for k, v in MPIRUN.items() if k != "OMPI_COMM_WORLD_LOCAL_SIZE"}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ({k: v for k, v in SRUN.items() if k != "SLURM_PROCID"}, "SLURM_PROCID"),
        ({**SRUN, "SLURM_LOCALID": ""}, "SLURM_LOCALID"),
        ({**SRUN, "SLURM_NODEID": "gpu3"}, "SLURM_NODEID"),
    ],
)
def test_a_number_that_is_missing_or_none_is_one_line(given: dict[str, str], name: str) -> None:
    with pytest.raises(RecipeError, match=f"^{name}: found ") as caught:
        process_info(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(2, 3, 2), (1, 1, 1), (1, 4, 1), (3, 1, 2)])
def test_a_mesh_has_one_place_for_each_rank(shape: tuple[int, int, int]) -> None:
    replicate, shard, tensor = shape
    world = replicate * shard * tensor
    all_of_them = [Ranks(torch.device("cpu"), rank, world, shape=shape) for rank in range(world)]
    places = itertools.product(*map(range, shape))
    assert [r.coordinates for r in all_of_them] == list(places)  # in order: a tensor group is neighbours
    assert {r.data_world for r in all_of_them} == {replicate * shard}
    rows = sorted((r.data_rank, r.tensor_rank) for r in all_of_them)
    assert rows == list(itertools.product(range(replicate * shard), range(tensor)))
    assert all(r.data_rank == r.coordinates[0] * shard + r.coordinates[1] for r in all_of_them)
    assert all(r.tensor_rank == r.coordinates[2] for r in all_of_them)
    assert [r.first for r in all_of_them] == [True] + [False] * (world - 1)


class Board:
    """A store as the processes share one."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.awaited: list[list[str]] = []

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value

    def get(self, key: str) -> bytes:
        return self.kept[key].encode()

    def wait(self, keys: list[str], patience: object) -> None:
        self.awaited.append(keys)
        if not all(key in self.kept for key in keys):
            raise RuntimeError("Connection reset by peer\nmore of it")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[Ranks, Ranks]:
    """Two ranks of this process; `turn` lets the second ask what the first answered."""
    board = Board()
    monkeypatch.setattr(ranks, "_answers", 0)
    first, second = (Ranks(torch.device("cpu"), rank, 2, store=board) for rank in (0, 1))
    return first, second


def turn() -> None:
    ranks._answers -= 1


def test_what_the_first_finds_is_everybodys(two: tuple[Ranks, Ranks]) -> None:
    assert on_rank0(two[0], lambda: {"step": 3, "of": [1, None]}) == {"step": 3, "of": [1, None]}
    turn()
    assert on_rank0(two[1], lambda: pytest.fail("the second acts")) == {"step": 3, "of": [1, None]}


@pytest.mark.parametrize("kind", [RecipeError, DataError, RunError])
def test_what_the_first_complains_of_is_told_once(two: tuple[Ranks, Ranks], kind: type[RecipeError]) -> None:
    """Every rank ends with the same complaint; those after the first know that it is an echo."""
    complaint = kind("here", "found that", "this", "do so")

    def act() -> None:
        raise complaint

    with pytest.raises(kind) as told:
        on_rank0(two[0], act)
    turn()
    with pytest.raises(kind) as heard:
        on_rank0(two[1], act)
    assert str(heard.value) == str(told.value) == "here: found that; wanted this; do so"
    assert (told.value.echo, heard.value.echo) == (False, True)
    board = cast(Board, two[0].store)
    assert board.awaited[-2:] == [["agreed/1/1"], ["agreed/1"]]  # rank 0 waits for rank 1 before it ends the store
    assert "agreed/1/1" in board.kept


def test_a_fault_of_the_first_ends_the_others_too(two: tuple[Ranks, Ranks]) -> None:
    with pytest.raises(ZeroDivisionError):
        on_rank0(two[0], lambda: 1 / 0)
    turn()
    with pytest.raises(RunError, match="rank 0: division by zero"):
        on_rank0(two[1], lambda: None)


def test_the_first_is_gone_without_a_word(two: tuple[Ranks, Ranks]) -> None:
    with pytest.raises(RunError, match=r"^rank 0: has ended: Connection reset by peer; its error") as caught:
        on_rank0(two[1], lambda: None)
    assert "\n" not in str(caught.value)


def test_every_attempt_has_a_word_of_its_own() -> None:
    """torchrun's store outlives the processes: what an attempt left there misleads none that comes after."""
    store, words = HashStore(), []
    for late in (0, 2, 1):  # whoever comes last
        heard: dict[int, str] = {}

        def come(rank: int, heard: dict[int, str] = heard, late: int = late) -> None:
            time.sleep(0.1 * (rank == late))
            ranks = Ranks(torch.device("cpu"), rank, 3, store=store)
            heard[rank] = attempt_token(store, ranks, time.monotonic() + 480)

        threads = [threading.Thread(target=come, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(heard) == [0, 1, 2]
        assert len(set(heard.values())) == 1
        words.append(heard[0])
    assert len(set(words)) == 3


@pytest.mark.parametrize(("rank", "missing"), [(0, "1, 2"), (1, "0")])
def test_who_does_not_come_is_named(rank: int, missing: str) -> None:
    with pytest.raises(RuntimeError, match=f"^rank {missing} did not come$"):
        attempt_token(HashStore(), Ranks(torch.device("cpu"), rank, 3), time.monotonic() + 0.05)


def test_who_came_is_told_by_the_first_who_did_not() -> None:
    """At once, and in the same words; the first says it, for the others it is an echo."""
    store, heard = HashStore(), dict[int, RanksAbsent]()

    def come(rank: int) -> None:
        try:
            attempt_token(store, Ranks(torch.device("cpu"), rank, 4), time.monotonic() + (480 if rank else 0.3))
        except RanksAbsent as absent:
            heard[rank] = absent

    threads = [threading.Thread(target=come, args=(rank,)) for rank in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert {rank: (absent.ranks, absent.echo) for rank, absent in heard.items()} == {
        0: ([1, 3], False),
        2: ([1, 3], True),
    }


def test_a_rank_that_is_no_number_ends_the_command_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who speaks for all cannot be known then: each does, and none shows a stack."""
    monkeypatch.setenv("RANK", "x")
    with pytest.raises(SystemExit, match="1"):
        main(["pretrain", "no-such-recipe"])
    assert capsys.readouterr().err.startswith("ordsmed: rank x: `no-such-recipe`: no recipe")


def test_numbers_are_summed_over_those_who_see_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, or where all share every row, they stand as they are."""
    import torch.distributed

    asked: list[object] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda values, group: asked.append(group) or values.mul_(3))
    totals = []
    for shape in ((1, 1, 1), (1, 1, 4), (2, 1, 2), (1, 3, 1)):
        world = shape[0] * shape[1] * shape[2]
        own = Ranks(torch.device("cpu"), 0, world, shape=shape, data_group="those")
        totals.append(own.total(torch.ones(2)).tolist())
    assert totals == [[1, 1], [1, 1], [3, 3], [3, 3]]
    assert asked == ["those", "those"]


@pytest.mark.parametrize(("rank", "group"), [(0, [0, 2, 4]), (3, [1, 3, 5])])
def test_a_rank_stands_among_those_who_share_no_layer_with_it(
    monkeypatch: pytest.MonkeyPatch, rank: int, group: list[int]
) -> None:
    """Every rank makes every group, in the same order, or torch would wait for ever."""
    import torch.distributed as dist

    made: list[list[int]] = []
    monkeypatch.setattr(dist, "init_device_mesh", lambda kind, shape, mesh_dim_names: (kind, shape, mesh_dim_names))
    monkeypatch.setattr(dist, "new_group", lambda own: made.append(own) or own)
    own = ranks.init_mesh(Ranks(torch.device("cpu"), rank, 6, store="a store"), (3, 1, 2))
    assert made == [[0, 2, 4], [1, 3, 5]]
    assert (own.data_group, own.shape) == (group, (3, 1, 2))
    assert own.mesh == ("cpu", (3, 2), ("replicate", "tensor")), "nobody meets alone"
    own = ranks.init_mesh(Ranks(torch.device("cpu"), 1, 4, store="a store"), (1, 4, 1))
    assert own.mesh == ("cpu", (4,), ("shard",))
    alone = ranks.init_mesh(Ranks(torch.device("cpu")), (1, 1, 1))
    assert (alone.mesh, alone.data_group) == (None, None)


@pytest.mark.parametrize(("patience", "limit"), [(3000, 6000), (1, 1800)])
def test_every_group_waits_as_long_as_the_recipe_says(
    monkeypatch: pytest.MonkeyPatch, patience: float, limit: float
) -> None:
    """Those of a mesh, by which gradients are summed, too, and of another one later; never before the watch speaks."""
    monkeypatch.setattr(ranks.ending, "note_connected", lambda: None)  # this process is not the command's own
    own = ranks.connect(Ranks(torch.device("cpu"), store=HashStore()), patience)
    try:
        for _ in range(2):
            own = ranks.init_mesh(own, (1, 1, 1))
            groups = {own.data_group, *own.mesh.get_all_groups()} - {dist.group.WORLD}
            assert {group._get_backend(own.device).options._timeout for group in groups} == {timedelta(seconds=limit)}
            assert dist.group.WORLD._get_backend(own.device).options._timeout == timedelta(seconds=2 * patience)
    finally:
        ranks.disconnect(own)


@pytest.mark.parametrize(
    ("rank", "well", "wanted"),
    [
        (0, True, ["wait left/1 left/2", "end"]),
        (0, False, ["end"]),
        (2, True, ["left/2", "end"]),
        (2, False, ["left/2", "end"]),
    ],
)
def test_the_first_leaves_last(monkeypatch: pytest.MonkeyPatch, rank: int, well: bool, wanted: list[str]) -> None:
    """It keeps the store; where something went wrong nobody is waited for, and each may speak again."""
    import torch.distributed as dist

    done: list[str] = []

    class Store:
        def set(self, key: str, value: str) -> None:
            done.append(key)

        def wait(self, keys: list[str], patience: object) -> None:
            done.append("wait " + " ".join(keys))
            raise RuntimeError("Connection reset by peer")

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist.distributed_c10d, "destroy_process_group", lambda: done.append("end"))
    monkeypatch.setattr(ranks, "allow_output", lambda aloud: done.append(f"speak {aloud}"))
    ranks.disconnect(Ranks(torch.device("cpu"), rank, 3, store=Store()), well=well)
    assert done == [*wanted, "speak True"]
    done.clear()
    ranks.disconnect(Ranks(torch.device("cpu")))
    assert done == ["speak True"]


@pytest.mark.parametrize(
    ("kind", "well", "wanted"), [("cuda", False, "abort"), ("cuda", True, "end"), ("cpu", False, "end")]
)
def test_who_leaves_a_gpu_by_an_error_waits_for_no_kernel(monkeypatch, kind: str, well: bool, wanted: str) -> None:
    import torch.distributed as dist

    done: list[str] = []
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist.distributed_c10d, "destroy_process_group", lambda: done.append("end"))
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: done.append("abort"))
    ranks.disconnect(Ranks(torch.device(kind), 1, 2, store=dist.HashStore()), well=well)
    assert done == [wanted]


class Unclonable:
    """A store of torch 2.7: all but `clone`."""

    def __init__(self, store: dist.Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        if name == "clone":
            raise AttributeError(name)
        return getattr(self.store, name)


def test_a_store_that_cannot_be_cloned_is_reached_a_second_time() -> None:
    """All ranks of an attempt meet behind one word; what an attempt before them wrote is not seen."""
    board = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    one, two = (second_connection(Unclonable(dist.PrefixStore("1", board))) for _ in range(2))
    other = second_connection(Unclonable(dist.PrefixStore("2", board)))
    one.set("gone", "why")
    assert two.get("gone") == b"why"
    assert not other.check(["gone"])
    assert not board.check(["gone"])
    assert one._underlying_non_prefix_store is not board

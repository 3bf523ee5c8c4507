"""Ranks: which process of how many this is, its device and threads, the mesh it stands in, and how processes agree.

torchrun's, OpenMPI's or Slurm's variables -> Place -> prepare -> Ranks -> join -> Ranks with groups and a mesh

A mesh is replicate x shard x tensor; ranks count through tensor first, so that a tensor group is neighbors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ordsmed.base import ending, errors
from ordsmed.base.errors import Lost, OrdsmedError, RecipeError, RunError
from ordsmed.base.machine import devices, memory
from ordsmed.base.machine.devices import Accelerator
from ordsmed.base.machine.threads import stay_on_socket, threads_of
from ordsmed.base.meeting import WaitingLine, interruptible, resolve
from ordsmed.base.say import many, speak

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup, Store
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")
LAUNCHED = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
DIMENSIONS = ("replicate", "shard", "tensor")
MEETING = 60.0  # seconds that processes have to find each other, at least
ASKED = 5_000  # times a second that all ranks together ask the first one's store while they meet
NAMED = 8  # ranks or machines of one complaint
LEAVE = timedelta(seconds=30)
AGES = timedelta(days=7)  # what only the first rank does may take as long as a corpus takes
GO_ON = "start the same command again: the run goes on from its last checkpoint"
ABSENT = "look at their machines and at what they said, leave out those that are lost (`--exclude`), start again"
SILENT = Lost("rank 0", "does not answer: lost or hanging", "", GO_ON)


@dataclass(frozen=True)
class Place:
    """This process among those that were started together."""

    rank: int = 0
    world: int = 1
    local: int = 0  # its number on this machine
    local_world: int = 1  # how many there are on this machine
    address: str = "127.0.0.1"  # where the first rank listens
    port: int = 29500

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise RecipeError("RANK", f"found {self.rank}", f"0 to {self.world - 1}", "let the launcher set it")


@dataclass(frozen=True)
class Ranks:
    """One process among `world`, and where it stands in the mesh."""

    device: torch.device
    rank: int = 0
    world: int = 1
    threads: int = 1
    shape: tuple[int, int, int] = (1, 1, 1)  # replicate, shard, tensor
    place: Place = field(default_factory=Place)
    mesh: DeviceMesh = None  # type: ignore[assignment]  # None: alone; as the next two
    data_group: ProcessGroup = None  # type: ignore[assignment]  # the ranks that see other rows: one of every tensor group
    store: Store = None  # type: ignore[assignment]  # a small key-value store that all ranks reach
    card: Accelerator | None = None  # the GPU of a site that is planned for; None: that of this machine
    limit: timedelta = timedelta(0)  # of what a group does together, where that is longer than torch's own

    @property
    def first(self) -> bool:
        """Is this the main process, which writes files and logs?"""
        return self.rank == 0

    @property
    def tensor_rank(self) -> int:
        """Its number among those that share every layer."""
        return self.rank % self.shape[2]

    @property
    def data_rank(self) -> int:
        """Its number among those that see different rows."""
        return self.rank // self.shape[2]

    @property
    def data_world(self) -> int:
        """How many see different rows."""
        return self.world // self.shape[2]

    @property
    def coordinates(self) -> tuple[int, int, int]:
        """Its place in the mesh: replicate, shard, tensor."""
        _, shard, tensor = self.shape
        return self.rank // (shard * tensor), self.rank // tensor % shard, self.rank % tensor

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers summed over all ranks that see different rows, in place."""
        if self.data_world > 1:
            import torch.distributed

            torch.distributed.all_reduce(values, group=self.data_group)
        return values


def place_of(variables: Mapping[str, str]) -> Place:
    """What the variables of torchrun, mpirun or srun say; one process alone where there are none."""
    env = {k: v for k, v in variables.items() if v}
    address = env.get("MASTER_ADDR", "127.0.0.1")
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, world = _number(env, "RANK"), _number(env, "WORLD_SIZE")
        local, there = _number(env, "LOCAL_RANK", rank), _number(env, "LOCAL_WORLD_SIZE", world)
        return Place(rank, world, local, there, address, _number(env, "MASTER_PORT", 29500))
    if "OMPI_COMM_WORLD_SIZE" in env:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        rank, world, local, there = (_number(env, f"OMPI_COMM_WORLD_{name}") for name in names)
        if world > there and "MASTER_ADDR" not in env:
            raise RecipeError("MASTER_ADDR", "missing", "the first machine's name", "mpirun -x MASTER_ADDR=...")
        return Place(rank, world, local, there, address, _number(env, "MASTER_PORT", 29500))
    if "SLURM_STEP_NUM_TASKS" in env:  # srun sets it; a batch script by itself has none and is one process
        world = _number(env, "SLURM_STEP_NUM_TASKS")
        per_node = _per_node(env.get("SLURM_STEP_TASKS_PER_NODE", str(world)))
        here = per_node[min(_number(env, "SLURM_NODEID", 0), len(per_node) - 1)]
        nodes = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))
        address = env.get("MASTER_ADDR") or (first_node(nodes) if len(per_node) > 1 else "127.0.0.1")
        port = _number(env, "MASTER_PORT", 20_000 + _number(env, "SLURM_JOB_ID", 0) % 10_000)
        return Place(_number(env, "SLURM_PROCID"), world, _number(env, "SLURM_LOCALID"), here, address, port)
    if "RANK" in env:  # of how many? nobody says
        _number(env, "WORLD_SIZE")
    return Place()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """This process by itself for a while, whatever started it: what `place_of` looks for is hidden."""
    hidden = {name: os.environ.pop(name) for name in LAUNCHED if name in os.environ}
    try:
        yield
    finally:
        os.environ |= hidden


def first_node(nodes: str) -> str:
    """The first machine of a Slurm list: `gpu[003-010,015],big1` -> gpu003."""
    return next(node_names(nodes), "127.0.0.1")


def node_names(nodes: str) -> Iterator[str]:
    """The machines of a Slurm list, in its order."""
    for group in re.findall(r"(?:[^,\[]|\[[^]]*\])+", nodes):
        parts = re.split(r"\[([^]]*)\]", group)  # every second one is of numbers
        yield from map("".join, itertools.product(*(_expanded(p) if n % 2 else [p] for n, p in enumerate(parts))))


def _expanded(ranges: str) -> list[str]:
    """`003-005,015` -> 003, 004, 005, 015."""
    numbers = []
    for first, _, last in (part.partition("-") for part in ranges.split(",")):
        numbers += [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)] if last else [first]
    return numbers


def in_words(missing: Sequence[int], variables: Mapping[str, str]) -> str:
    """Ranks in words, each behind its machine where Slurm tells which that is: n2 (rank 4, 5), n7 (rank 24)."""
    nodes: dict[str, list[int]] = {}
    per_node = _per_node(variables.get("SLURM_STEP_TASKS_PER_NODE", ""))
    # other distributions deal tasks out in turns
    if per_node and variables.get("SLURM_DISTRIBUTION", "block").startswith("block"):
        names = node_names(variables.get("SLURM_STEP_NODELIST", ""))
        of_rank = [name for name, count in zip(names, per_node, strict=False) for _ in range(count)]
        for rank in missing:
            nodes.setdefault(of_rank[rank] if rank < len(of_rank) else "", []).append(rank)
    nodes = nodes if nodes and "" not in nodes else {"": list(missing)}
    words = [f"{name} ({_listed(ranks)})" if name else _listed(ranks) for name, ranks in nodes.items()]
    return ", ".join(words[:NAMED]) + (f" and {len(words) - NAMED} others" if len(words) > NAMED else "")


def _listed(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - NAMED} others" if len(ranks) > NAMED else ""
    return f"rank {', '.join(map(str, ranks[:NAMED]))}{more}"


def plan(device: str = "auto", place: str = "layout.device") -> Ranks:
    """This process and the device it would take; nothing is set up."""
    import torch

    position = place_of(os.environ)
    chosen = devices.device_of(device, position.local, position.local_world, position.world, place)
    return Ranks(torch.device(chosen), position.rank, position.world, shape=(position.world, 1, 1), place=position)


def prepare(device: str = "auto", threads: int | None = None, *, kept: int | None = None, flags: bool = False) -> Ranks:
    """Choose the device and set this process up for it.

    `kept`: threads that a run was made with; `flags`: device and threads were asked for by --device and --threads.
    """
    import torch

    devices.let_segments_grow()
    ranks = plan(device, "--device" if flags else "layout.device")
    speak(ranks.first)
    named = "--threads" if flags else "layout.threads"
    torch.set_num_threads(threads_of(threads, local_world=ranks.place.local_world, kept=kept, place=named))
    torch.set_flush_denormal(True)  # subnormal gradients make a CPU ten times slower
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    else:
        memory.keep_memory()
        stay_on_socket(ranks.place.local, ranks.place.local_world, torch.get_num_threads())
    return dataclasses.replace(ranks, threads=torch.get_num_threads())


def join(ranks: Ranks, shape: tuple[int, int, int], patience: float) -> Ranks:
    """Connect to the other processes, in a mesh of this shape; alone there is nothing to do."""
    return init_mesh(connect(rendezvous(ranks, patience), patience), shape)


def rendezvous(ranks: Ranks, patience: float, *, least: float = MEETING) -> Ranks:
    """Find the other processes: from now on all reach one store. They have `patience` seconds for it, and `least`."""
    if ranks.world == 1:
        return ranks
    import torch.distributed as dist

    if dist.is_initialized():
        raise RunError("process group", "stands already", "one run at a time in a process")
    os.environ |= {"RANK": str(ranks.rank), "WORLD_SIZE": str(ranks.world), "LOCAL_RANK": str(ranks.place.local)}
    os.environ |= {"MASTER_ADDR": ranks.place.address, "MASTER_PORT": str(ranks.place.port)}
    seconds = max(patience, least)
    place = f"rank {ranks.rank} at {_address(ranks.place)}"
    line = WaitingLine(ranks.rank, seconds, silent=ranks.place.local != 0)
    try:
        resolve(ranks.place.address, ranks.rank)
    except RunError as error:
        error.echo = ranks.place.local != 0  # one process of each machine reports it
        raise
    try:
        with answered_within(2 * seconds, ranks):
            connecting = functools.partial(_first_store, ranks.place, timedelta(seconds=seconds))
            store = interruptible(connecting, lambda: line.tell(lambda: f"the first rank at {_address(ranks.place)}"))
            store = dist.PrefixStore(word_of_attempt(store, ranks, time.monotonic() + seconds, line), store)
    except Absent as absent:
        problem = f"{in_words(absent.ranks, os.environ)} did not come within {seconds:g} s"
        complaint = Lost(place, problem, many(ranks.world, "process"), ABSENT)
        complaint.echo = absent.echo
        raise complaint from None
    except (RuntimeError, dist.DistError) as error:
        if "EADDRINUSE" in str(error):
            wanted, remedy = "a free one to meet at", "set MASTER_PORT to another, on all ranks the same"
            raise RunError(f"port {ranks.place.port}", "is in use on the first machine", wanted, remedy) from None
        raise Lost(place, f"did not meet the others: {_line(error)}", f"{many(ranks.world, 'process')}") from None
    return dataclasses.replace(ranks, store=store)


def _address(place: Place) -> str:
    return f"{place.address}:{place.port}"


def _first_store(place: Place, limit: timedelta) -> Store:
    """The first rank's store, or where torchrun keeps one that; who is missing is told by `word_of_attempt`."""
    import torch.distributed as dist

    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    at, first = (place.address, place.port, place.world), place.rank == 0
    return dist.TCPStore(*at, first and not kept, limit, wait_for_workers=False, multi_tenant=not kept)


@contextlib.contextmanager
def answered_within(seconds: float, ranks: Ranks) -> Iterator[None]:
    """The first rank keeps the store, and may stand still: a question to it that takes longer ends this process."""

    def end() -> None:
        print(f"ordsmed: rank {ranks.rank}: {SILENT}", file=sys.stderr, flush=True)
        os._exit(SILENT.status)  # nothing else ends a thread that waits inside the store

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    if not ranks.first:
        clock.start()
    try:
        yield
    finally:
        clock.cancel()


def connect(ranks: Ranks, patience: float) -> Ranks:
    """Connect the processes that met, each with each; one that stops meanwhile is waited for, but for a watch."""
    if ranks.store is None:
        return ranks
    import torch.distributed as dist

    ending.connected()
    limit = timedelta(seconds=2 * patience)  # the watch (train/watch.py) speaks first
    backend, device = ("cpu:gloo,cuda:nccl", ranks.device) if ranks.device.type == "cuda" else ("gloo", None)
    store = dist.PrefixStore("groups", ranks.store)
    dist.init_process_group(  # with a device NCCL splits groups off
        backend, timeout=limit, world_size=ranks.world, rank=ranks.rank, store=store, device_id=device
    )
    return dataclasses.replace(ranks, limit=limit)


def init_mesh(ranks: Ranks, shape: tuple[int, int, int]) -> Ranks:
    """These ranks in a device mesh of this shape."""
    if ranks.store is None:
        return dataclasses.replace(ranks, shape=shape)
    import torch.distributed as dist

    sizes = {name: size for name, size in zip(DIMENSIONS, shape, strict=True) if size > 1} or {DIMENSIONS[0]: 1}
    mesh = dist.init_device_mesh(ranks.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    tensor = shape[2]
    data: ProcessGroup = None  # type: ignore[assignment]  # until its own is made
    for first in range(tensor):
        group = dist.new_group(list(range(first, ranks.world, tensor)))
        data = group if ranks.rank % tensor == first else data
    if ranks.limit > dist.default_pg_timeout:  # a mesh's groups cannot be told when they are made
        for group in dist.distributed_c10d._world.pg_map:
            dist.distributed_c10d._set_pg_timeout(ranks.limit, group)
    return dataclasses.replace(ranks, shape=shape, mesh=mesh, data_group=data)


def second_connection(store: Store) -> Store:
    """To the same store, for a thread of one's own; torch 2.7 has no `clone`: then under a word all agree on."""
    if hasattr(store, "clone"):
        return store.clone()
    import torch.distributed as dist

    word = store.compare_set("second", "", os.urandom(8).hex()).decode()
    first = cast(dist.TCPStore, getattr(store, "_underlying_non_prefix_store", store))
    limit = store.timeout  # type: ignore[attr-defined]
    return dist.PrefixStore(word, dist.TCPStore(first.host, first.port, is_master=False, timeout=limit))


class Absent(RuntimeError):
    """Ranks did not come; `echo`: the first rank says so itself."""

    def __init__(self, ranks: Sequence[int], *, echo: bool = False) -> None:
        super().__init__(f"{_listed(ranks)} did not come")
        self.ranks, self.echo = ranks, echo


def word_of_attempt(store: Store, ranks: Ranks, until: float, line: WaitingLine | None = None) -> str:
    """A word that only the processes of this attempt share: the first draws it and gives it to who asks.

    torchrun keeps its store, with all that stands in it, when it begins again; and it counts restarts a machine.
    All wait until all have it, or the first gives up and tells who is absent.
    """
    drawn, pause = secrets.token_hex(8), max(0.01, ranks.world / ASKED)
    if not ranks.first:
        return _given_word(store, ranks.rank, drawn, until, pause)
    missing = list(range(1, ranks.world))
    while (missing := [rank for rank in missing if not _has(store, rank, drawn)]) and time.monotonic() < until:
        time.sleep(pause)
        if line:
            line.tell(lambda: in_words(missing, os.environ))
    store.set(f"met/{drawn}", json.dumps(missing))
    if missing:
        time.sleep(10 * pause)  # the first rank keeps the store, where the others read it
        raise Absent(missing)
    return drawn


def _given_word(store: Store, rank: int, drawn: str, until: float, pause: float) -> str:
    """The word for a rank that is not the first; once it has one, the first says when to go on."""
    store.set(f"asks/{rank}", drawn)
    word = ""
    while word or time.monotonic() < until:
        answered, _, answer = _read(store, f"given/{rank}").partition(" ")
        if answered == drawn and answer != word:
            word = answer
            store.set(f"has/{rank}", word)
        if word and (met := _read(store, f"met/{word}")):
            if missing := json.loads(met):
                raise Absent(missing, echo=True)
            return word
        time.sleep(pause)
    raise Absent([0])


def _has(store: Store, rank: int, word: str) -> bool:
    """Give a rank the word; does it have it?"""
    if asks := _read(store, f"asks/{rank}"):
        store.set(f"given/{rank}", f"{asks} {word}")
    return _read(store, f"has/{rank}") == word


def _read(store: Store, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""


def disconnect(ranks: Ranks, *, well: bool = True) -> None:
    """Destroy the process group; if all went well the first process, which keeps the store, leaves last."""
    if ranks.store is not None:
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):
            if not ranks.first:
                ranks.store.set(f"left/{ranks.rank}", "")
            elif well:
                ranks.store.wait([f"left/{rank}" for rank in range(1, ranks.world)], LEAVE)
        if dist.is_initialized():
            # NCCL would wait for all that is begun, and for the others: who leaves by an error breaks it off
            broken = not well and ranks.device.type == "cuda"
            getattr(dist.distributed_c10d, "_abort_process_group" if broken else "destroy_process_group")()
    speak(True)


_agreed = 0


def wait(ranks: Ranks) -> None:
    """For all processes."""
    if ranks.world > 1:
        import torch.distributed

        torch.distributed.barrier()


def first_alone(ranks: Ranks, act: Callable[[], T]) -> T:
    """What the first rank does alone; its answer (anything JSON holds), or its complaint, is everybody's."""
    global _agreed
    if ranks.store is None:
        return act()
    _agreed += 1
    key = f"agreed/{_agreed}"
    if ranks.first:
        try:
            answer: dict[str, Any] = {"is": act()}
        except BaseException as error:
            named = error if isinstance(error, OrdsmedError) else errors.lost_process(error)
            failed = named or RunError("rank 0", _line(error))
            answer = {"error": [type(failed).__name__, *failed.__reduce__()[1]]}
            raise
        finally:
            ranks.store.set(key, json.dumps(answer))
        return answer["is"]
    try:
        ranks.store.wait([key], AGES)
        answer = json.loads(ranks.store.get(key))
    except RuntimeError as error:
        remedy = "its own complaint stands above or in log.txt"
        raise Lost("rank 0", f"is gone: {_line(error)}", "", remedy) from None
    if "error" in answer:
        kind, *parts = answer["error"]
        complaint = getattr(errors, kind)(*parts)
        complaint.echo = True
        raise complaint
    return answer["is"]


def _number(env: Mapping[str, str], name: str, usual: int | None = None) -> int:
    if name not in env and usual is not None:
        return usual
    try:
        return int(env[name])
    except (KeyError, ValueError):
        raise RecipeError(name, f"found {env.get(name, 'nothing')}", "a number", "let the launcher set it") from None


def _per_node(text: str) -> list[int]:
    """Slurm's `4(x2),3` -> [4, 4, 3]."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(count) for count, times in groups for _ in range(int(times or 1))]


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]

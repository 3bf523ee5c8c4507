"""The processes of a run: rank, device and threads of this process, its position in the mesh, and collective steps.

    variables of torchrun, OpenMPI or Slurm -> Place -> prepare -> Ranks -> join -> Ranks with groups and a mesh

A mesh is replicate x shard x tensor. Ranks count along tensor first, so the ranks of a tensor group are neighbors.
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
MEETING = 60.0  # least seconds that processes have to find each other
ASKED = 5_000  # most requests per second to the store, of all ranks together, while they meet
NAMED = 8  # most ranks or machines to name in a message
LEAVE = timedelta(seconds=30)  # time for all ranks to leave the store
HEARD = timedelta(seconds=10)  # time for all ranks to read an error of rank 0
AGES = timedelta(days=7)  # work of rank 0 alone may take as long as making a corpus
GO_ON = "start the same command again to resume from the last checkpoint"
ABSENT = "check their machines and logs, exclude lost ones (`--exclude`), start again"
SILENT = Lost("rank 0", "does not answer: lost or hanging", "", GO_ON)


@dataclass(frozen=True)
class Place:
    """The number of this process among those that were started together."""

    rank: int = 0
    world: int = 1
    local: int = 0  # its number on this machine
    local_world: int = 1  # processes on this machine
    address: str = "127.0.0.1"  # of rank 0
    port: int = 29500

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise RecipeError("RANK", f"found {self.rank}", f"0 to {self.world - 1}", "let the launcher set it")


@dataclass(frozen=True)
class Ranks:
    """One of `world` processes, with its device and its position in the mesh."""

    device: torch.device
    rank: int = 0
    world: int = 1
    threads: int = 1
    shape: tuple[int, int, int] = (1, 1, 1)  # replicate, shard, tensor
    place: Place = field(default_factory=Place)
    mesh: DeviceMesh = None  # type: ignore[assignment]  # None: a single process, as for the next two
    data_group: ProcessGroup = None  # type: ignore[assignment]  # ranks with other rows: one of each tensor group
    store: Store = None  # type: ignore[assignment]  # a key-value store that all ranks share
    card: Accelerator | None = None  # the GPU of the site for which a job is planned; None: that of this machine
    limit: timedelta = timedelta(0)  # timeout of collectives, if longer than torch's default

    @property
    def first(self) -> bool:
        """Return whether this is rank 0, which writes files and logs."""
        return self.rank == 0

    @property
    def tensor_rank(self) -> int:
        """Return the index of this rank in its tensor-parallel group: the ranks among which every layer is split."""
        return self.rank % self.shape[2]

    @property
    def data_rank(self) -> int:
        """Return its rank among those that see different rows."""
        return self.rank // self.shape[2]

    @property
    def data_world(self) -> int:
        """Return the number of ranks that see different rows."""
        return self.world // self.shape[2]

    @property
    def coordinates(self) -> tuple[int, int, int]:
        """Return its coordinates in the mesh: replicate, shard, tensor."""
        _, shard, tensor = self.shape
        return self.rank // (shard * tensor), self.rank // tensor % shard, self.rank % tensor

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum numbers in place over all ranks that see different rows, and return them."""
        if self.data_world > 1:
            import torch.distributed

            torch.distributed.all_reduce(values, group=self.data_group)
        return values


def place_of(variables: Mapping[str, str]) -> Place:
    """Return the place that the variables of torchrun, mpirun or srun say; without any, a single process."""
    env = {k: v for k, v in variables.items() if v}
    address = env.get("MASTER_ADDR", "127.0.0.1")
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, world = _number(env, "RANK"), _number(env, "WORLD_SIZE")
        local, local_world = _number(env, "LOCAL_RANK", rank), _number(env, "LOCAL_WORLD_SIZE", world)
        return Place(rank, world, local, local_world, address, _number(env, "MASTER_PORT", 29500))
    if "OMPI_COMM_WORLD_SIZE" in env:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        rank, world, local, local_world = (_number(env, f"OMPI_COMM_WORLD_{name}") for name in names)
        if world > local_world and "MASTER_ADDR" not in env:
            raise RecipeError("MASTER_ADDR", "missing", "the first machine's name", "mpirun -x MASTER_ADDR=...")
        return Place(rank, world, local, local_world, address, _number(env, "MASTER_PORT", 29500))
    if "SLURM_STEP_NUM_TASKS" in env:  # srun sets it; a batch script by itself has none and is one process
        world = _number(env, "SLURM_STEP_NUM_TASKS")
        per_node = _per_node(env.get("SLURM_STEP_TASKS_PER_NODE", str(world)))
        here = per_node[min(_number(env, "SLURM_NODEID", 0), len(per_node) - 1)]
        nodes = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))
        address = env.get("MASTER_ADDR") or (first_node(nodes) if len(per_node) > 1 else "127.0.0.1")
        port = _number(env, "MASTER_PORT", 20_000 + _number(env, "SLURM_JOB_ID", 0) % 10_000)
        return Place(_number(env, "SLURM_PROCID"), world, _number(env, "SLURM_LOCALID"), here, address, port)
    if "RANK" in env:  # raises an error about the missing WORLD_SIZE
        _number(env, "WORLD_SIZE")
    return Place()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hide the variables that `place_of` reads, so that this process is a single one for a while."""
    hidden = {name: os.environ.pop(name) for name in LAUNCHED if name in os.environ}
    try:
        yield
    finally:
        os.environ |= hidden


def first_node(nodes: str) -> str:
    """Return the first machine of a Slurm node list: `gpu[003-010,015],big1` -> gpu003."""
    return next(node_names(nodes), "127.0.0.1")


def node_names(nodes: str) -> Iterator[str]:
    """Yield the machines of a Slurm node list in order."""
    for group in re.findall(r"(?:[^,\[]|\[[^]]*\])+", nodes):
        parts = re.split(r"\[([^]]*)\]", group)  # every second part has numbers
        yield from map("".join, itertools.product(*(_expanded(p) if n % 2 else [p] for n, p in enumerate(parts))))


def _expanded(ranges: str) -> list[str]:
    """Expand `003-005,015` to 003, 004, 005, 015."""
    numbers = []
    for first, _, last in (part.partition("-") for part in ranges.split(",")):
        numbers += [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)] if last else [first]
    return numbers


def in_words(missing: Sequence[int], variables: Mapping[str, str]) -> str:
    """Return ranks as text, by machine if Slurm names it: n2 (rank 4, 5), n7 (rank 24)."""
    nodes: dict[str, list[int]] = {}
    per_node = _per_node(variables.get("SLURM_STEP_TASKS_PER_NODE", ""))
    # other distributions assign tasks to machines in turn
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


def plan(device: str = "auto", location: str = "layout.device") -> Ranks:
    """Return this process with the device it would use, without setting anything up."""
    import torch

    position = place_of(os.environ)
    chosen = devices.device_of(device, position.local, position.local_world, position.world, location)
    return Ranks(torch.device(chosen), position.rank, position.world, shape=(position.world, 1, 1), place=position)


def prepare(device: str = "auto", threads: int | None = None, *, kept: int | None = None, flags: bool = False) -> Ranks:
    """Choose the device and set this process up for it.

    `kept` is the number of threads a run was started with. `flags` says that device and threads come from --device and
    --threads, for error messages.
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
    """Connect to the other processes in a mesh of this shape. A single process has nothing to do."""
    return init_mesh(connect(rendezvous(ranks, patience), patience), shape)


def rendezvous(ranks: Ranks, patience: float, *, least: float = MEETING) -> Ranks:
    """Find the other processes, within `patience` seconds, at least `least`. Afterwards all share one store."""
    if ranks.world == 1:
        return ranks
    import torch.distributed as dist

    if dist.is_initialized():
        raise RunError("process group", "already exists", "one run at a time in a process")
    os.environ |= {"RANK": str(ranks.rank), "WORLD_SIZE": str(ranks.world), "LOCAL_RANK": str(ranks.place.local)}
    os.environ |= {"MASTER_ADDR": ranks.place.address, "MASTER_PORT": str(ranks.place.port)}
    seconds = max(patience, least)
    location = f"rank {ranks.rank} at {_address(ranks.place)}"
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
        problem = f"{in_words(absent.ranks, os.environ)} did not connect within {seconds:g} s"
        complaint = Lost(location, problem, many(ranks.world, "process"), ABSENT)
        complaint.echo = absent.echo
        raise complaint from None
    except (RuntimeError, dist.DistError) as error:
        if "EADDRINUSE" in str(error):
            wanted, remedy = "a free port", "set MASTER_PORT to the same other port on all ranks"
            raise RunError(f"port {ranks.place.port}", "is in use on the first machine", wanted, remedy) from None
        raise Lost(location, f"could not connect: {_line(error)}", f"{many(ranks.world, 'process')}") from None
    return dataclasses.replace(ranks, store=store)


def _address(process: Place) -> str:
    return f"{process.address}:{process.port}"


def _first_store(process: Place, limit: timedelta) -> Store:
    """Return the store of rank 0, or that of torchrun. It does not wait for ranks: `word_of_attempt` does."""
    import torch.distributed as dist

    of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    at, first = (process.address, process.port, process.world), process.rank == 0
    return dist.TCPStore(*at, first and not of_torchrun, limit, wait_for_workers=False, multi_tenant=not of_torchrun)


@contextlib.contextmanager
def answered_within(seconds: float, ranks: Ranks) -> Iterator[None]:
    """End this process if rank 0, which has the store, does not answer within `seconds`."""

    def end() -> None:
        print(f"ordsmed: rank {ranks.rank}: {SILENT}", file=sys.stderr, flush=True)
        os._exit(SILENT.status)  # nothing else can end a thread that waits inside the store

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    if not ranks.first:
        clock.start()
    try:
        yield
    finally:
        clock.cancel()


def connect(ranks: Ranks, patience: float) -> Ranks:
    """Connect every process with every other. One that hangs meanwhile is waited for, up to the watch's limit."""
    if ranks.store is None:
        return ranks
    import torch.distributed as dist

    ending.connected()
    limit = timedelta(seconds=2 * patience)  # so that the watch (train/watch.py) reports first
    backend, device = ("cpu:gloo,cuda:nccl", ranks.device) if ranks.device.type == "cuda" else ("gloo", None)
    store = dist.PrefixStore("groups", ranks.store)
    dist.init_process_group(  # with a device, NCCL makes subgroups by splitting
        backend, timeout=limit, world_size=ranks.world, rank=ranks.rank, store=store, device_id=device
    )
    return dataclasses.replace(ranks, limit=limit)


def init_mesh(ranks: Ranks, shape: tuple[int, int, int]) -> Ranks:
    if ranks.store is None:
        return dataclasses.replace(ranks, shape=shape)
    import torch.distributed as dist

    sizes = {name: size for name, size in zip(DIMENSIONS, shape, strict=True) if size > 1} or {DIMENSIONS[0]: 1}
    mesh = dist.init_device_mesh(ranks.device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    tensor = shape[2]
    data: ProcessGroup = None  # type: ignore[assignment]  # set in the loop
    for first in range(tensor):
        group = dist.new_group(list(range(first, ranks.world, tensor)))
        data = group if ranks.rank % tensor == first else data
    if ranks.limit > dist.default_pg_timeout:  # a mesh's groups take no timeout when they are made
        for group in dist.distributed_c10d._world.pg_map:
            dist.distributed_c10d._set_pg_timeout(ranks.limit, group)
    return dataclasses.replace(ranks, shape=shape, mesh=mesh, data_group=data)


def second_connection(store: Store) -> Store:
    """Return a second connection to the store, for a thread.

    torch 2.7 has no `clone`; there a new connection with a shared prefix is made.
    """
    if hasattr(store, "clone"):
        return store.clone()
    import torch.distributed as dist

    word = store.compare_set("second", "", os.urandom(8).hex()).decode()
    first = cast(dist.TCPStore, getattr(store, "_underlying_non_prefix_store", store))
    limit = store.timeout  # type: ignore[attr-defined]
    return dist.PrefixStore(word, dist.TCPStore(first.host, first.port, is_master=False, timeout=limit))


class Absent(RuntimeError):
    """Some ranks did not connect. `echo` says that rank 0 reports it."""

    def __init__(self, ranks: Sequence[int], *, echo: bool = False) -> None:
        super().__init__(f"{_listed(ranks)} did not come")
        self.ranks, self.echo = ranks, echo


def word_of_attempt(store: Store, ranks: Ranks, until: float, line: WaitingLine | None = None) -> str:
    """Return a word that only the processes of this attempt share. Rank 0 draws it and sends it to the others.

    torchrun keeps its store with all its contents when it restarts, and counts restarts per machine, so keys need such
    a prefix. All wait until every rank has the word, or rank 0 gives up and reports who is absent.
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
        time.sleep(10 * pause)  # rank 0 has the store, and the others must read it first
        raise Absent(missing)
    return drawn


def _given_word(store: Store, rank: int, drawn: str, until: float, pause: float) -> str:
    """Return the word on another rank than 0, once rank 0 says that all ranks have it."""
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
    """Send the word to a rank, and return whether it has it."""
    if asks := _read(store, f"asks/{rank}"):
        store.set(f"given/{rank}", f"{asks} {word}")
    return _read(store, f"has/{rank}") == word


def _read(store: Store, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""


def disconnect(ranks: Ranks, *, well: bool = True) -> None:
    """Destroy the process group. If all went well, rank 0, which has the store, leaves last."""
    if ranks.store is not None:
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):
            if not ranks.first:
                ranks.store.set(f"left/{ranks.rank}", "")
            elif well:
                ranks.store.wait([f"left/{rank}" for rank in range(1, ranks.world)], LEAVE)
        if dist.is_initialized():
            # after an error, abort: NCCL would wait for running collectives and for other ranks
            aborted = not well and ranks.device.type == "cuda"
            getattr(dist.distributed_c10d, "_abort_process_group" if aborted else "destroy_process_group")()
    speak(True)


_agreed = 0  # number of answers of rank 0 so far


def wait(ranks: Ranks) -> None:
    if ranks.world > 1:
        import torch.distributed

        torch.distributed.barrier()


def first_alone(ranks: Ranks, act: Callable[[], T]) -> T:
    """Run `act` on rank 0 only. Its result (any JSON value) or error is returned or raised on all ranks."""
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
            ranks.store.set(key, json.dumps({"error": [type(failed).__name__, *failed.__reduce__()[1]]}))
            if isinstance(error, Exception):  # the store ends with rank 0: the others would report a lost rank instead
                with contextlib.suppress(RuntimeError):
                    ranks.store.wait([f"{key}/{rank}" for rank in range(1, ranks.world)], HEARD)
            raise
        ranks.store.set(key, json.dumps(answer))
        return answer["is"]
    try:
        ranks.store.wait([key], AGES)
        answer = json.loads(ranks.store.get(key))
    except RuntimeError as error:
        remedy = "its own error is above or in log.txt"
        raise Lost("rank 0", f"is gone: {_line(error)}", "", remedy) from None
    if "error" in answer:
        with contextlib.suppress(RuntimeError):
            ranks.store.set(f"{key}/{ranks.rank}", "")
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
    """Expand Slurm's `4(x2),3` to [4, 4, 3]."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(count) for count, times in groups for _ in range(int(times or 1))]


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]

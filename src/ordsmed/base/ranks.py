"""The processes of a run: rank, device and threads of this process, its coordinates in the mesh, and collectives.

    variables of torchrun, OpenMPI or Slurm -> Place -> prepare -> Ranks -> join -> Ranks with groups and a mesh

A mesh is replicate x shard x tensor. The tensor index changes fastest, so a tensor group has consecutive ranks.
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
from ordsmed.base.meeting import WaitingLine, interruptible, resolve_address
from ordsmed.base.say import allow_output, many

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup, Store
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
DIMENSIONS = ("replicate", "shard", "tensor")
MIN_RENDEZVOUS = 60.0  # least timeout of the rendezvous in seconds
MAX_REQUESTS = 5_000  # requests per second to the store during the rendezvous, of all ranks together
MAX_NAMED = 8  # ranks or machines to name in a message
LEAVE_TIMEOUT = timedelta(seconds=30)  # time for all ranks to leave the store
ERROR_READ_TIMEOUT = timedelta(seconds=10)  # time for all ranks to read an error of rank 0
RANK0_TIMEOUT = timedelta(days=7)  # rank 0 may make a whole corpus while the others wait
RESUME_REMEDY = "start the same command again to resume from the last checkpoint"
ABSENT_REMEDY = "check their machines and logs, exclude lost machines (`--exclude`), and start again"
NO_ANSWER = Lost("rank 0", "does not answer: lost or hanging", "", RESUME_REMEDY)


@dataclass(frozen=True)
class ProcessInfo:
    """Rank of this process and number of processes, as the launcher set them."""

    rank: int = 0
    world: int = 1
    local: int = 0  # index of this process on its machine
    local_world: int = 1  # processes on this machine
    address: str = "127.0.0.1"  # of rank 0
    port: int = 29500

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise RecipeError("RANK", f"found {self.rank}", f"0 to {self.world - 1}", "let the launcher set it")


@dataclass(frozen=True)
class Ranks:
    """One of `world` processes, with its device and its coordinates in the mesh."""

    device: torch.device
    rank: int = 0
    world: int = 1
    threads: int = 1
    shape: tuple[int, int, int] = (1, 1, 1)  # replicate, shard, tensor
    process: ProcessInfo = field(default_factory=ProcessInfo)
    mesh: DeviceMesh = None  # type: ignore[assignment]  # None: a single process, as for the next two
    data_group: ProcessGroup = None  # type: ignore[assignment]  # ranks with different rows: one per tensor group
    store: Store = None  # type: ignore[assignment]  # a key-value store that all ranks share
    card: Accelerator | None = None  # the GPU of the site for which a job is planned; None: this machine's GPU
    limit: timedelta = timedelta(0)  # timeout of collectives, if longer than torch's default

    @property
    def first(self) -> bool:
        """Return whether this is rank 0, which writes files and logs."""
        return self.rank == 0

    @property
    def tensor_rank(self) -> int:
        """Return the index of this rank in its tensor-parallel group, whose ranks split every layer."""
        return self.rank % self.shape[2]

    @property
    def data_rank(self) -> int:
        """Return the index of this rank's tensor-parallel group. Ranks of one group process the same rows."""
        return self.rank // self.shape[2]

    @property
    def data_world(self) -> int:
        """Return the number of tensor-parallel groups."""
        return self.world // self.shape[2]

    @property
    def coordinates(self) -> tuple[int, int, int]:
        """Return the coordinates of this rank in the mesh: replicate, shard, tensor."""
        _, shard, tensor = self.shape
        return self.rank // (shard * tensor), self.rank // tensor % shard, self.rank % tensor

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum `values` in place over the ranks that process different rows, and return them."""
        if self.data_world > 1:
            import torch.distributed

            torch.distributed.all_reduce(values, group=self.data_group)
        return values


def process_info(variables: Mapping[str, str]) -> ProcessInfo:
    """Read the variables of torchrun, mpirun or srun. Without any, return a single process."""
    env = {k: v for k, v in variables.items() if v}
    address = env.get("MASTER_ADDR", "127.0.0.1")
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, world = _number(env, "RANK"), _number(env, "WORLD_SIZE")
        local, local_world = _number(env, "LOCAL_RANK", rank), _number(env, "LOCAL_WORLD_SIZE", world)
        return ProcessInfo(rank, world, local, local_world, address, _number(env, "MASTER_PORT", 29500))
    if "OMPI_COMM_WORLD_SIZE" in env:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        rank, world, local, local_world = (_number(env, f"OMPI_COMM_WORLD_{name}") for name in names)
        if world > local_world and "MASTER_ADDR" not in env:
            raise RecipeError("MASTER_ADDR", "missing", "the first machine's name", "mpirun -x MASTER_ADDR=...")
        return ProcessInfo(rank, world, local, local_world, address, _number(env, "MASTER_PORT", 29500))
    if "SLURM_STEP_NUM_TASKS" in env:  # srun sets it; it is not set in the batch script itself, which is one process
        world = _number(env, "SLURM_STEP_NUM_TASKS")
        per_node = _per_node(env.get("SLURM_STEP_TASKS_PER_NODE", str(world)))
        here = per_node[min(_number(env, "SLURM_NODEID", 0), len(per_node) - 1)]
        nodes = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))
        address = env.get("MASTER_ADDR") or (first_node(nodes) if len(per_node) > 1 else "127.0.0.1")
        port = _number(env, "MASTER_PORT", 20_000 + _number(env, "SLURM_JOB_ID", 0) % 10_000)
        return ProcessInfo(_number(env, "SLURM_PROCID"), world, _number(env, "SLURM_LOCALID"), here, address, port)
    if "RANK" in env:  # raises an error about the missing WORLD_SIZE
        _number(env, "WORLD_SIZE")
    return ProcessInfo()


@contextlib.contextmanager
def as_single_process() -> Iterator[None]:
    """In this block, remove the launcher's variables, so that this process counts as a single one."""
    hidden = {name: os.environ.pop(name) for name in LAUNCHER_VARIABLES if name in os.environ}
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


def name_ranks(missing: Sequence[int], variables: Mapping[str, str]) -> str:
    """Return ranks as text, grouped by machine if Slurm's variables name it: n2 (rank 4, 5), n7 (rank 24)."""
    nodes: dict[str, list[int]] = {}
    per_node = _per_node(variables.get("SLURM_STEP_TASKS_PER_NODE", ""))
    # with another distribution, the machine of a rank is unknown
    if per_node and variables.get("SLURM_DISTRIBUTION", "block").startswith("block"):
        names = node_names(variables.get("SLURM_STEP_NODELIST", ""))
        of_rank = [name for name, count in zip(names, per_node, strict=False) for _ in range(count)]
        for rank in missing:
            nodes.setdefault(of_rank[rank] if rank < len(of_rank) else "", []).append(rank)
    nodes = nodes if nodes and "" not in nodes else {"": list(missing)}
    words = [f"{name} ({_list_ranks(ranks)})" if name else _list_ranks(ranks) for name, ranks in nodes.items()]
    return ", ".join(words[:MAX_NAMED]) + (f" and {len(words) - MAX_NAMED} others" if len(words) > MAX_NAMED else "")


def _list_ranks(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - MAX_NAMED} others" if len(ranks) > MAX_NAMED else ""
    return f"rank {', '.join(map(str, ranks[:MAX_NAMED]))}{more}"


def plan(device: str = "auto", location: str = "layout.device") -> Ranks:
    """Return this process with the device it would use. Nothing is set up."""
    import torch

    info = process_info(os.environ)
    chosen = devices.device_of(device, info.local, info.local_world, info.world, location)
    return Ranks(torch.device(chosen), info.rank, info.world, shape=(info.world, 1, 1), process=info)


def prepare(device: str = "auto", threads: int | None = None, *, kept: int | None = None, flags: bool = False) -> Ranks:
    """Choose the device and the number of threads, and set them for this process.

    `kept` is the number of threads a run was started with. With `flags`, errors name --device and --threads instead of
    `layout.device` and `layout.threads`.
    """
    import torch

    devices.use_expandable_segments()
    ranks = plan(device, "--device" if flags else "layout.device")
    allow_output(ranks.first)
    named = "--threads" if flags else "layout.threads"
    torch.set_num_threads(threads_of(threads, local_world=ranks.process.local_world, kept=kept, place=named))
    torch.set_flush_denormal(True)  # subnormal gradients make a CPU ten times slower
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    else:
        memory.keep_freed_memory()
        stay_on_socket(ranks.process.local, ranks.process.local_world, torch.get_num_threads())
    return dataclasses.replace(ranks, threads=torch.get_num_threads())


def join(ranks: Ranks, shape: tuple[int, int, int], patience: float) -> Ranks:
    """Connect to the other processes, and set up a mesh of this shape."""
    return init_mesh(connect(rendezvous(ranks, patience), patience), shape)


def rendezvous(ranks: Ranks, patience: float, *, least: float = MIN_RENDEZVOUS) -> Ranks:
    """Connect to the key-value store of rank 0, and wait until all ranks are there.

    The timeout is `patience` seconds, but at least `least`.
    """
    if ranks.world == 1:
        return ranks
    import torch.distributed as dist

    if dist.is_initialized():
        raise RunError("process group", "already exists", "one run at a time in a process")
    os.environ |= {"RANK": str(ranks.rank), "WORLD_SIZE": str(ranks.world), "LOCAL_RANK": str(ranks.process.local)}
    os.environ |= {"MASTER_ADDR": ranks.process.address, "MASTER_PORT": str(ranks.process.port)}
    seconds = max(patience, least)
    location = f"rank {ranks.rank} at {_address(ranks.process)}"
    line = WaitingLine(ranks.rank, seconds, silent=ranks.process.local != 0)
    try:
        resolve_address(ranks.process.address, ranks.rank)
    except RunError as error:
        error.echo = ranks.process.local != 0  # one process of each machine reports it
        raise
    try:
        with end_unless_answered(2 * seconds, ranks):
            connecting = functools.partial(_first_store, ranks.process, timedelta(seconds=seconds))
            store = interruptible(connecting, lambda: line.tell(lambda: f"the first rank at {_address(ranks.process)}"))
            store = dist.PrefixStore(attempt_token(store, ranks, time.monotonic() + seconds, line), store)
    except RanksAbsent as absent:
        problem = f"{name_ranks(absent.ranks, os.environ)} did not connect within {seconds:g} s"
        complaint = Lost(location, problem, many(ranks.world, "process"), ABSENT_REMEDY)
        complaint.echo = absent.echo
        raise complaint from None
    except (RuntimeError, dist.DistError) as error:
        if "EADDRINUSE" in str(error):
            wanted, remedy = "a free port", "set MASTER_PORT to the same other port on all ranks"
            raise RunError(f"port {ranks.process.port}", "is in use on the first machine", wanted, remedy) from None
        raise Lost(location, f"could not connect: {_first_line(error)}", many(ranks.world, "process")) from None
    return dataclasses.replace(ranks, store=store)


def _address(process: ProcessInfo) -> str:
    return f"{process.address}:{process.port}"


def _first_store(process: ProcessInfo, limit: timedelta) -> Store:
    """Return a connection to the store of rank 0 or of torchrun. It does not wait for ranks; `attempt_token` does."""
    import torch.distributed as dist

    of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    at, first = (process.address, process.port, process.world), process.rank == 0
    return dist.TCPStore(*at, first and not of_torchrun, limit, wait_for_workers=False, multi_tenant=not of_torchrun)


@contextlib.contextmanager
def end_unless_answered(seconds: float, ranks: Ranks) -> Iterator[None]:
    """End this process if this block takes longer than `seconds`, because the store on rank 0 does not answer."""

    def end() -> None:
        print(f"ordsmed: rank {ranks.rank}: {NO_ANSWER}", file=sys.stderr, flush=True)
        os._exit(NO_ANSWER.status)  # the main thread may be blocked in C++ code of the store

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    if not ranks.first:
        clock.start()
    try:
        yield
    finally:
        clock.cancel()


def connect(ranks: Ranks, patience: float) -> Ranks:
    """Create the process group of torch. Its timeout is twice `patience`."""
    if ranks.store is None:
        return ranks
    import torch.distributed as dist

    ending.note_connected()
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
    if ranks.limit > dist.default_pg_timeout:  # init_device_mesh has no argument for a timeout
        for group in dist.distributed_c10d._world.pg_map:
            dist.distributed_c10d._set_pg_timeout(ranks.limit, group)
    return dataclasses.replace(ranks, shape=shape, mesh=mesh, data_group=data)


def second_connection(store: Store) -> Store:
    """Return a second connection to the store, for a thread. torch 2.7 has no `clone`, so make a new connection."""
    if hasattr(store, "clone"):
        return store.clone()
    import torch.distributed as dist

    word = store.compare_set("second", "", os.urandom(8).hex()).decode()
    first = cast(dist.TCPStore, getattr(store, "_underlying_non_prefix_store", store))
    limit = store.timeout  # type: ignore[attr-defined]
    return dist.PrefixStore(word, dist.TCPStore(first.host, first.port, is_master=False, timeout=limit))


class RanksAbsent(RuntimeError):
    """Some ranks did not connect. `echo`: rank 0 reports the error, so this rank need not."""

    def __init__(self, ranks: Sequence[int], *, echo: bool = False) -> None:
        super().__init__(f"{_list_ranks(ranks)} did not come")
        self.ranks, self.echo = ranks, echo


def attempt_token(store: Store, ranks: Ranks, until: float, line: WaitingLine | None = None) -> str:
    """Return a random token that all processes of this attempt share, as a prefix of their keys in the store.

    torchrun keeps the contents of its store when it restarts the processes, and counts restarts per machine. Rank 0
    draws the token and sends it to the others. All wait until every rank has it, or until rank 0 reports absent ranks.
    """
    drawn, pause = secrets.token_hex(8), max(0.01, ranks.world / MAX_REQUESTS)
    if not ranks.first:
        return _receive_token(store, ranks.rank, drawn, until, pause)
    missing = list(range(1, ranks.world))
    while (missing := [rank for rank in missing if not _send_token(store, rank, drawn)]) and time.monotonic() < until:
        time.sleep(pause)
        if line:
            line.tell(lambda: name_ranks(missing, os.environ))
    store.set(f"met/{drawn}", json.dumps(missing))
    if missing:
        time.sleep(10 * pause)  # the store ends with rank 0, and the others must read the answer first
        raise RanksAbsent(missing)
    return drawn


def _receive_token(store: Store, rank: int, drawn: str, until: float, pause: float) -> str:
    """Return the token from rank 0, once rank 0 has confirmed that all ranks have it."""
    store.set(f"asks/{rank}", drawn)
    word = ""
    while word or time.monotonic() < until:
        answered, _, answer = _read(store, f"given/{rank}").partition(" ")
        if answered == drawn and answer != word:
            word = answer
            store.set(f"has/{rank}", word)
        if word and (met := _read(store, f"met/{word}")):
            if missing := json.loads(met):
                raise RanksAbsent(missing, echo=True)
            return word
        time.sleep(pause)
    raise RanksAbsent([0])


def _send_token(store: Store, rank: int, word: str) -> bool:
    """Send the token to a rank, and return whether the rank has confirmed it."""
    if asks := _read(store, f"asks/{rank}"):
        store.set(f"given/{rank}", f"{asks} {word}")
    return _read(store, f"has/{rank}") == word


def _read(store: Store, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""


def disconnect(ranks: Ranks, *, well: bool = True) -> None:
    """Destroy the process group. After success (`well`), rank 0 leaves last, because the store ends with it."""
    if ranks.store is not None:
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):
            if not ranks.first:
                ranks.store.set(f"left/{ranks.rank}", "")
            elif well:
                ranks.store.wait([f"left/{rank}" for rank in range(1, ranks.world)], LEAVE_TIMEOUT)
        if dist.is_initialized():
            # after an error, abort: NCCL would wait for running collectives and for other ranks
            aborted = not well and ranks.device.type == "cuda"
            getattr(dist.distributed_c10d, "_abort_process_group" if aborted else "destroy_process_group")()
    allow_output(True)


_answers = 0  # number of calls of `on_rank0` so far


def barrier(ranks: Ranks) -> None:
    if ranks.world > 1:
        import torch.distributed

        torch.distributed.barrier()


def on_rank0(ranks: Ranks, act: Callable[[], T]) -> T:
    """Run `act` on rank 0 only, and return its result (a JSON value) or raise its error on all ranks."""
    global _answers
    if ranks.store is None:
        return act()
    _answers += 1
    key = f"agreed/{_answers}"
    if ranks.first:
        try:
            answer: dict[str, Any] = {"is": act()}
        except BaseException as error:
            named = error if isinstance(error, OrdsmedError) else errors.lost_process(error)
            failed = named or RunError("rank 0", _first_line(error))
            ranks.store.set(key, json.dumps({"error": [type(failed).__name__, *failed.__reduce__()[1]]}))
            if isinstance(error, Exception):  # keep the store until the others have read the error
                with contextlib.suppress(RuntimeError):
                    ranks.store.wait([f"{key}/{rank}" for rank in range(1, ranks.world)], ERROR_READ_TIMEOUT)
            raise
        ranks.store.set(key, json.dumps(answer))
        return answer["is"]
    try:
        ranks.store.wait([key], RANK0_TIMEOUT)
        answer = json.loads(ranks.store.get(key))
    except RuntimeError as error:
        remedy = "its error is above or in log.txt"
        raise Lost("rank 0", f"has ended: {_first_line(error)}", "", remedy) from None
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


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]

"""Checks of several processes: differences between their machines, and the correctness of all-reduce.

each rank: facts, outcomes -> the store -> the first rank: differences      sums: each element is verified
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordsmed.base import files
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import many
from ordsmed.machines.doctor.disks import clock_of
from ordsmed.machines.doctor.host import Host
from ordsmed.machines.doctor.job import allotted_cores
from ordsmed.machines.doctor.outcome import Outcome, error, ok, warning

if TYPE_CHECKING:
    import torch

SIZES = (1, 1_000, 65_537, 1 << 20, (1 << 22) + 3)  # elements; NCCL's protocol depends on the size
TYPES = ("float32", "bfloat16", "float16", "float64", "int64")
MODULUS = 3  # values are 0, 1 and 2
EXACT = {"bfloat16": 256, "float16": 2048}  # integers up to which a type is exact in any order of addition
SETTINGS = (
    "NCCL_",
    "FI_",
    "RCCL_",
    "UCX_",
    "GLOO_",
    "TORCH_NCCL_",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF",
)
PROCESS_SETTINGS = ("NCCL_HOSTID", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")  # differ between processes by design

COMPARED = ("FLOP/s", "memory GB/s")  # the speed of a shared disk depends on the load of others, so it is not compared

Sum = Callable[["torch.Tensor"], None]


@dataclass(frozen=True)
class Member:
    rank: int
    node: str
    facts: Mapping[str, str]
    clock: float
    bound: Sequence[int] = ()  # cores that the process may run on
    allotted: int = 0  # number of cores that its job gives it; 0 if unknown

    @property
    def name(self) -> str:
        return f"{self.node} (rank {self.rank})"


def facts(host: Host) -> dict[str, str]:
    torch = host.torch
    cards = ", ".join(sorted({card.name for card in torch.cards}))
    named = {
        "Python": host.python,
        "torch": torch.version,
        "CUDA": torch.cuda,
        "ROCm": torch.hip,
        "NCCL": torch.nccl,
        "driver": torch.driver,
        "arch": host.arch,
        "GPUs": cards,
        **host.versions,
    }
    settings = {
        key: value for key, value in host.env.items() if key.startswith(SETTINGS) and key not in PROCESS_SETTINGS
    }
    return {key: value for key, value in {**named, **settings}.items() if value}


def gather(ranks: Ranks, key: str, value: object, patience: float) -> list[Any]:
    """Return the JSON value of each rank, in rank order."""
    store, limit = ranks.store, timedelta(seconds=patience)
    store.set(f"{key}/{ranks.rank}", json.dumps(value))
    keys = [f"{key}/{rank}" for rank in range(ranks.world)]
    store.wait(keys, limit)
    return [json.loads(store.get(name)) for name in keys]


def members(ranks: Ranks, host: Host, patience: float) -> list[Member]:
    """Return the facts of all ranks. Ranks meet first, so that all clocks are read at about the same time."""
    gather(ranks, "here", True, patience)
    clock = host.clock()
    rows = gather(ranks, "member", [host.name, facts(host), clock, host.bound, allotted_cores(host)], patience)
    return [Member(rank, *row) for rank, row in enumerate(rows)]


def disk(ranks: Ranks, host: Host, patience: float) -> Iterator[Outcome]:
    """Check that all ranks reach the same shared disk, and that a lock of one rank excludes the others."""
    secret = secrets.token_hex(8)
    folder = host.shared / f".ordsmed-doctor-{secret}"
    lock = None
    try:
        if ranks.first:
            folder.mkdir()
            files.write_text(folder / "word", secret)
            lock = (folder / "word").open()
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        location, word = gather(ranks, "disk", [str(folder), secret], patience)[0]
        answers = gather(
            ranks, "disk/seen", "" if ranks.first else _check_locked_file(Path(location) / "word", word), patience
        )
    finally:
        if lock:
            lock.close()
            shutil.rmtree(folder, ignore_errors=True)
    if ranks.first:
        yield from _disk_outcome(host.shared, answers)


def _check_locked_file(path: Path, word: str) -> str:
    """Return the problem that a rank finds with a file that the first rank wrote and locked; empty if none."""
    try:
        with path.open() as file:
            if file.read() != word:
                return "reads other contents"
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ""
    except OSError as failure:
        return str(failure.strerror)
    return "gets a lock that rank 0 holds"


def _disk_outcome(path: Path, answers: list[str]) -> Iterator[Outcome]:
    remedy = "start from a folder that all machines share, with locks (Lustre: mounted with `flock`)"
    wrong = [f"rank {rank} {reason}" for rank, reason in enumerate(answers) if reason]
    if wrong:
        yield error(f"{path}: {'; '.join(wrong[:4])}", remedy)
    else:
        yield ok(f"{path} is one disk, and its locks work between {len(answers)} ranks")


def compare_facts(every: list[Member]) -> Iterator[Outcome]:
    """Report the ranks whose versions or settings differ from the majority."""
    lines = []
    for fact in sorted({key for member in every for key in member.facts}):
        values = [member.facts.get(fact, "none") for member in every]
        usual = max(Counter(values), key=lambda value: (values.count(value), -values.index(value)))
        differs = [member for member, value in zip(every, values, strict=True) if value != usual]
        if not differs:
            continue
        usual_member = next(member for member in every if member.facts.get(fact, "none") == usual)
        has = ", ".join(f"{member.name} has {member.facts.get(fact, 'none')}" for member in differs[:4])
        rest = f" and {len(differs) - 4} others" if len(differs) > 4 else ""
        lines.append(f"{fact}: {has}{rest}, {usual_member.name} has {usual}")
    remedy = "start all ranks from one environment on a shared disk"
    yield from (error(line, remedy) for line in lines)
    if not lines:
        nodes = len({member.node for member in every})
        yield ok(f"{len(every)} ranks on {nodes} {'node' if nodes == 1 else 'nodes'} have the same")


def clocks(every: list[Member]) -> Iterator[Outcome]:
    middle = sorted(member.clock for member in every)[(len(every) - 1) // 2]
    furthest = max(every, key=lambda member: abs(member.clock - middle))
    off = abs(furthest.clock - middle)
    result = clock_of(f"the others', on {furthest.name}", off)
    yield result if result.state != "ok" else ok(f"of {len(every)} ranks agree", **result.figures)


def cores(every: list[Member]) -> Iterator[Outcome]:
    """Report machines whose ranks are bound to fewer cores than they should have together."""
    nodes: dict[str, list[Member]] = {}
    for member in every:
        nodes.setdefault(member.node, []).append(member)
    crowded = []
    for node, members in nodes.items():
        shared, wanted = len({core for member in members for core in member.bound}), sum(m.allotted for m in members)
        if shared < wanted:
            crowded.append(
                f"{node}: {many(len(members), 'rank')} share {many(shared, 'core')}, but should have {wanted}"
            )
    if crowded:
        remedy = "bind each rank to separate cores (`srun --cpu-bind=cores`), or none (`mpirun --bind-to none`)"
        yield warning("; ".join(crowded[:4]) + (f" and {len(crowded) - 4} others" if crowded[4:] else ""), remedy)
    else:
        yield ok(f"{len(every)} ranks have the cores they should have")


def sums(
    world: int, rank: int, device: str, add: Sum, *, at: Callable[[int], None] = lambda step: None
) -> Iterator[Outcome]:
    """All-reduce tensors of several sizes and types, and compare each element with the expected sum."""
    import torch

    step, slowest, wrong = 0, 0.0, list[str]()
    for kind in TYPES:
        dtype, period = getattr(torch, kind), period_of(kind, world)
        for size in SIZES:
            step += 1
            at(step)
            wanted = expected(size, world, device, period)
            numbers = share(size, rank, device, period).to(dtype)
            began = time.perf_counter()
            add(numbers)
            if torch.device(device).type == "cuda":
                torch.cuda.synchronize()
            spent = time.perf_counter() - began
            if problem := difference(numbers, wanted):  # continue, because the other ranks continue with the next sum
                wrong.append(f"rank {rank}: {size:,} numbers of {kind} summed over {world} ranks: {problem}")
            if kind == "float32" and size == SIZES[-1]:
                slowest = spent
    if wrong:
        yield error(wrong[0] + (f"; and {len(wrong) - 1} of {step} sums more" if wrong[1:] else ""), WRONG_REMEDY)
        return
    rate = SIZES[-1] * 4 / slowest / 1e9 if slowest else 0.0
    yield ok(f"{step} sums over {world} ranks are exact; {rate:.3g} GB/s", **{"all-reduce GB/s": round(rate, 4)})


WRONG_REMEDY = (
    "sums are wrong: load the site's NCCL module or set the variables that `collectives` names, "
    "try NCCL_PROTO=^LL128; do not train before this is fixed"
)


def period_of(kind: str, world: int) -> int:
    """Return the period, in ranks, of the values at one position of the tensors.

    A period holds 0, 1, 2 and then zeros, so it adds up to 3. It is long enough for the type to hold the sum over all
    ranks exactly.
    """
    turns = EXACT.get(kind, 1 << 24) // sum(range(MODULUS))
    return max(MODULUS, -(-world // turns))


def share(size: int, rank: int, device: str, period: int = MODULUS) -> torch.Tensor:
    import torch

    numbers = (torch.arange(size, device=device) + rank) % period
    return numbers * (numbers < MODULUS)


def expected(size: int, world: int, device: str, period: int = MODULUS) -> torch.Tensor:
    import torch

    numbers = torch.arange(period, device=device)
    counts = world // period + (numbers < world % period).long()  # number of ranks per remainder
    cycle = torch.stack([value * counts[(value - numbers) % period] for value in range(MODULUS)]).sum(0)
    return cycle[torch.arange(size, device=device) % period]


def difference(numbers: torch.Tensor, wanted: torch.Tensor) -> str:
    """Return how many elements are wrong, and the first of them; empty if all are right."""
    wrong = numbers.double() != wanted.double()  # compare as floats: as integers, 1.5 would equal 1
    if not bool(wrong.any()):
        return ""
    first = int(wrong.nonzero()[0])
    return f"{int(wrong.sum()):,} are wrong, number {first:,} is {numbers[first].item():g} and not {int(wanted[first])}"


def slower(every: Sequence[Mapping[str, float]], names: list[str], share: float = 0.5) -> Iterator[Outcome]:
    """Report the ranks whose speed is below `share` of the median."""
    for figure in sorted({key for figures in every for key in figures if key.endswith(COMPARED)}):
        values = [figures.get(figure, 0.0) for figures in every]
        middle = sorted(values)[len(values) // 2]
        behind = [f"{name} {value:.3g}" for name, value in zip(names, values, strict=True) if value < share * middle]
        if behind:
            remedy = "check what else runs there, or exclude it (`--exclude`)"
            yield warning(f"{figure}: {', '.join(behind)}, the others about {middle:.3g}", remedy)

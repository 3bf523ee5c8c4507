"""What the machine lends a process: a device, threads, memory, and how fast it multiplies.

the environment, cores, the cgroup's quota, what others do -> threads      asked, GPUs in sight -> device
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import mmap
import os
import platform
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordsmed.base import files
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.say import say, size

if TYPE_CHECKING:
    import torch

ROOT = Path("/")
MOST_THREADS = 1024
FEW, EACH = 64, 8  # processes that may be started anywhere, and for each core
DEVICES = r"auto|cpu|cuda(:\d+)?"
MAKERS = {"NVIDIA": ("dev/nvidia0", "proc/driver/nvidia/version"), "AMD": ("dev/kfd",)}  # what the system shows
LEAST_SHARE = 4  # of the cores a process takes one in so many, however busy the others are
LOOK = 0.05  # seconds over which others are watched
PATIENCE = 0.1  # seconds that a measurement of products may take
SHORT = 0.01  # a product that takes so long is long enough
WIDE = ("AuthenticAMD", 26)  # from Zen 5 on 512 bits are one step, and MKL multiplies 256 there
LEAST, LARGEST = 128, {"cpu": 4096, "cuda": 8192}  # products, by their side
ALONE = 0.5  # cores that others may keep busy beside a measurement that is kept
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")  # by which users bind threads to cores
SLOWER = 1.5  # 16 bits that take so many times as long are told
FULL = (  # words of errors that have no class of their own: torch's on a CPU, a GPU's outside of torch's allocator
    r"can't allocate memory|\b(CUDA|HIP) ((driver )?error|failure).*out of memory"
    r"|Triton Error \[(CUDA|HIP)\].*out of memory"
    r"|(CUBLAS|CUDNN|HIPBLAS)_STATUS_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed"
)
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # how torch is told

_known: dict[str, float] = {}  # speeds this process knows


def device_of(asked: str, local: int = 0, local_world: int = 1, world: int = 1, place: str = "layout.device") -> str:
    """The device of a process, with its number: the one asked for, or the GPU of its own among its neighbors."""
    import torch

    if not re.fullmatch(DEVICES, asked):
        raise RecipeError(place, f"found {asked}", "auto, cpu or cuda")
    there = torch.cuda.is_available()
    hidden = "CUDA_VISIBLE_DEVICES" in os.environ and not os.environ["CUDA_VISIBLE_DEVICES"].strip()
    if asked == "cpu" or (asked == "auto" and not there):
        if asked == "auto" and not hidden:
            _tell_of_gpus(place)
        return "cpu"
    if not there:
        why = "which CUDA_VISIBLE_DEVICES hides" if hidden else "but torch sees no GPU"
        raise RecipeError(place, f"found {asked}, {why}", "", "name `cpu` or `auto`")
    count = torch.cuda.device_count()
    if ":" in asked:
        number = int(asked.partition(":")[2])
        if world > 1:
            raise RecipeError(place, f"found {asked} for {world} processes", "cuda: each takes a GPU of its own")
        if number >= count:
            raise RecipeError(place, f"found {asked}", f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0")
        return _with_code(number, place)
    own = world > 1 and "SLURM_STEP_NUM_TASKS" in os.environ and count == 1  # srun --gpus-per-task
    if local_world > count and not own:
        problem = f"found {local_world} processes on {socket.gethostname()}"
        raise RecipeError("--devices", problem, f"at most its {count} GPU{'s' if count > 1 else ''}")
    return _with_code(0 if own else local, place)


@functools.cache
def _tell_of_gpus(place: str) -> None:
    """A machine with GPUs whose CPU is taken: the driver may be too old, or torch built without them."""
    import torch

    if (maker := gpus_of(Path("/"))) != "none":
        say(
            f"{place}: the CPU, for torch {torch.__version__} sees none of {maker}'s GPUs that are here; "
            "`ordsmed doctor` says why"
        )


def _with_code(number: int, place: str) -> str:
    """A GPU's name; one that torch was not built for is refused before its first kernel fails."""
    import torch

    codes = tuple(torch.cuda.get_arch_list())
    if codes:
        own = torch.cuda.get_device_properties(number)
        code = getattr(own, "gcnArchName", "").partition(":")[0] if torch.version.hip else ""
        code = code or f"{own.major}.{own.minor}"
        if not has_code(code, codes):
            problem = f"found {own.name} ({code}), for which torch {torch.__version__} holds no code"
            raise RecipeError(place, problem, f"one of {' '.join(codes)}", "name `cpu`; `ordsmed doctor` says more")
    return f"cuda:{number}"


def has_code(capability: str, codes: tuple[str, ...]) -> bool:
    """Is there code for a GPU: of its own architecture, an earlier one of its generation, or one to be compiled?"""
    if capability.startswith("gfx"):
        return capability in codes
    major, _, minor = capability.partition(".")
    own = (int(major), int(minor or 0))
    for code in codes:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", code)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        if built == own or (not match[4] and built <= own and (match[1] == "compute" or built[0] == own[0])):
            return True
    return False


def let_segments_grow() -> None:
    """Of a GPU's memory let what is held grow where it lies, as batches differ in size; before CUDA begins.

    What a user says of torch's allocator is left as it is; ROCm has no such memory. The first of the names, the older
    one, holds in every version of torch: 2.9 does not read this of the newer one.
    """
    import torch

    if torch.version.hip is None and not any(name in os.environ for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = "expandable_segments:True"


def gpus_of(root: Path) -> str:
    """Whose GPUs the system knows, whatever torch makes of them."""
    return next((maker for maker, paths in MAKERS.items() if any((root / path).exists() for path in paths)), "none")


def cores() -> int:
    """Cores that this process may keep busy: those it may run on, or fewer where its cgroup has a quota."""
    own = len(os.sched_getaffinity(0))
    quota = _quota()
    return own if quota is None else max(1, min(own, int(quota)))


def threads_of(
    asked: int | None = None, *, local_world: int = 1, kept: int | None = None, place: str = "layout.threads"
) -> int:
    """Threads of this process: those asked for, by the environment too; else those that a run was made with, where
    they fit; else its share of the cores that others leave idle."""
    if asked is not None and not 1 <= asked <= MOST_THREADS:
        raise RecipeError(place, f"found {asked}", f"1 to {MOST_THREADS}")
    if asked:
        return asked
    share = max(1, cores() // local_world)
    wanted = _told_by(os.environ)
    if wanted:
        return min(wanted, share)
    if kept and kept <= share:
        return kept
    return share if local_world > 1 or share == 1 else _left_by_others(share)


def _told_by(env: Mapping[str, str]) -> int | None:
    """What OMP_NUM_THREADS and MKL_NUM_THREADS allow, None where neither is set."""
    counts = []
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if text := env.get(name, "").strip():
            first = text.partition(",")[0].strip()  # OpenMP: a number for each level of nesting
            if not (first.isascii() and first.isdigit() and int(first) >= 1):
                raise RecipeError(name, f"found {text}", "1 or more", "unset it to leave the choice to ordsmed")
            counts.append(int(first))
    return min(counts, default=None)


def _left_by_others(share: int) -> int:
    """Of the cores this process may use, those that nobody else keeps busy; a quarter of them at least."""
    others = _others()
    time.sleep(LOOK)
    busy = others()
    left = max(share // LEAST_SHARE, 1, min(share, round(share - busy)))
    if left < share:
        say(f"threads: {left} of {share}, as others keep {busy:.1f} cores busy; `layout.threads` or --threads decide")
    return left


def _others() -> Callable[[], float]:
    """Watch the cores this process may use; what is returned tells how many of them others kept busy since."""
    before, began, worked = _ticks(), time.perf_counter(), time.process_time()

    def told() -> float:
        after = _ticks()
        if before is None or after is None or after[1] <= before[1]:
            return 0.0
        busy = (after[0] - before[0]) / (after[1] - before[1]) * len(os.sched_getaffinity(0))
        return max(0.0, busy - (time.process_time() - worked) / (time.perf_counter() - began))

    return told


def others_watched() -> Callable[[], bool]:
    """Watch the cores this process may use; what is returned tells whether it had them for itself since."""
    others = _others()
    return lambda: others() < ALONE


def _ticks() -> tuple[float, float] | None:
    """Ticks in which the cores this process may use worked, and all their ticks."""
    own, worked, whole = os.sched_getaffinity(0), 0.0, 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (ROOT / "proc/stat").read_text().splitlines():
            if (core := re.match(r"cpu(\d+) ", line)) and int(core[1]) in own:
                ticks = [float(n) for n in line.split()[1:9]]
                whole, worked = whole + sum(ticks), worked + sum(ticks) - ticks[3] - ticks[4]  # idle, waiting for disks
        return (worked, whole) if whole else None
    return None


def stay_on_socket(local: int, local_world: int, threads: int) -> None:
    """Keep this process, with so many threads, on one of the machine's sockets, where its memory will lie.

    Only where sockets are equal, each takes equally many processes, and nobody else has bound threads to cores.
    """
    if local_world == 1 or any(name in os.environ for name in BINDING):
        return
    sockets = _sockets()
    share, left = divmod(local_world, len(sockets))
    if len(sockets) == 1 or left or len({len(own) for own in sockets}) > 1 or share * threads > len(sockets[0]):
        return
    with contextlib.suppress(OSError):  # a container may forbid it
        os.sched_setaffinity(0, sockets[local // share])
        say(f"threads: each process stays on one of {len(sockets)} sockets")


def _sockets() -> list[set[int]]:
    """The cores this process may use, by their socket; one where the machine does not tell."""
    sockets: dict[str, set[int]] = {}
    for core in sorted(os.sched_getaffinity(0)):
        name = ""
        with contextlib.suppress(OSError):
            name = (ROOT / f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id").read_text().strip()
        sockets.setdefault(name, set()).add(core)
    return list(sockets.values())


def memory() -> int | None:
    """Bytes this process may come to hold: the machine's, or fewer where its cgroup or a ulimit says so."""
    limits = [
        value
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
        if (value := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY
    ]
    with contextlib.suppress(OSError, ValueError, IndexError):
        table = dict(line.split(":") for line in (ROOT / "proc/meminfo").read_text().splitlines() if ":" in line)
        limits.append(int(table["MemTotal"].split()[0]) * 1024)
    for kind, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        limits += [int(text) for text in _limits(kind, name) if text.isdigit()]
    return min(limits, default=None)


def forget_held(device: torch.device) -> None:
    """Let `most_held` count from now on."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):  # a container may forbid it: then all that this process ever held counts
        (ROOT / "proc/self/clear_refs").write_text("5")


def most_held(device: torch.device) -> int:
    """Bytes that tensors held on a GPU at most; on a CPU, what the process held."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (ROOT / "proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def most_processes() -> int:
    """So many processes may be started here and no more."""
    return max(FEW, EACH * cores())


def afford(place: object, count: int, each: float) -> None:
    """Refuse so many things of so many bytes where memory cannot hold them."""
    has = memory()
    if has is not None and count * each >= has:
        problem = f"found {count:,}, which take {size(count * each)} of memory"
        raise RecipeError(place, problem, f"less than the {size(has)} there are: {int(has / each):,} at most")


def _quota() -> float | None:
    """The cgroup's share of processor time, in cores."""
    shares = []
    for text in _limits("", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit() and int(period) > 0:
            shares.append(int(quota) / int(period))
    pairs = zip(_limits("cpu", "cpu.cfs_quota_us"), _limits("cpu", "cpu.cfs_period_us"), strict=False)
    shares += [int(quota) / int(period) for quota, period in pairs if quota.isdigit() and int(quota) > 0 < int(period)]
    return min(shares, default=None)


def _limits(kind: str, name: str) -> list[str]:
    """A limit as this process's cgroup and those above it tell it; `kind`: the controller of version 1, "": version 2.

    Inside a container the path that /proc tells may be the host's: what is mounted then is the container's own.
    """
    path = "/"
    with contextlib.suppress(OSError):
        for line in (ROOT / "proc/self/cgroup").read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            if (kind in controllers.split(",")) if kind else not controllers:
                path = own
    base = ROOT / "sys/fs/cgroup" / kind
    texts, inner = [], base / path.strip("/")
    while inner == base or base in inner.parents:
        with contextlib.suppress(OSError):
            texts.append((inner / name).read_text().strip())
        inner = inner.parent
    return texts


@functools.cache
def keep_memory() -> None:
    """Let glibc keep what it once had, on pages of 2 MB: a step of a CPU that finds its tensors on fresh pages takes 8
    to 17 per cent longer, one that finds them on small pages 2 to 6 (docs/log.md)."""
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, top_pad, mmap_max, never = -1, -2, -4, -1
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:  # another C library: nothing to tune
        return
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, never)
    libc.mallopt(top_pad, 64 << 20)
    if room := _spacious():
        _take_large_pages(libc, room)


def _spacious() -> int:
    """Bytes of addresses that cost nothing before they are written to; 0 where they are counted.

    Linux before 5.2 holds them against what is free whenever this process is copied, and then refuses to start others.
    """
    strict = _linux() < (5, 2)
    with contextlib.suppress(OSError):
        strict = strict or (ROOT / "proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    limited = any(
        resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    )
    return 0 if strict or limited else (memory() or 0) // 2


def _linux() -> tuple[int, ...]:
    """The kernel's version."""
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _take_large_pages(libc: ctypes.CDLL, room: int) -> None:
    """Grow the heap once, ask for large pages there, and give it back to malloc, which hands it out from now on."""
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = address, [size], [address]
    libc.madvise.argtypes = [address, size, number]
    start = libc.malloc(room)
    if start:
        libc.madvise(-(-start // mmap.PAGESIZE) * mmap.PAGESIZE, room - mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
        libc.free(start)


def age() -> float:
    """Seconds since this process began; where the system does not tell, those that it computed."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(Path("/proc/uptime").read_text().split()[0]) - started
    return time.process_time()


def measured_peak(device: torch.device, precision: str) -> float:
    """FLOP/s of square products on this device and in this precision: the best of what a tenth of a second allows.

    It is kept, by machine, device, threads and precision, where nothing else ran beside the measurement.
    """
    key = key_of(device, precision)
    if not (known := kept_figure(key)):
        known, alone = _measure(device, precision)
        if alone:
            keep_figure(key, known)
    return known


def kept_figure(key: str) -> float:
    """What was measured before, by this process or another; 0: nothing was."""
    if known := _known.get(key) or _kept().get(key, 0.0):
        _known[key] = known
    return known


def keep_figure(key: str, figure: float) -> None:
    """Keep what was measured; where that cannot be written it is measured again next time."""
    _known[key] = figure
    with contextlib.suppress(OSError, RuntimeError, OrdsmedError):
        path = _cache()
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {**_kept(), key: figure})


def slower_in(precision: str, device: torch.device) -> float:
    """How many times as long products take in 16 bits as in fp32, on a CPU; 0: not worth telling, or not known."""
    if device.type != "cpu" or precision not in ("bf16", "fp16"):
        return 0.0
    times = measured_peak(device, "fp32") / measured_peak(device, precision)
    sure = all(key_of(device, each) in _known for each in ("fp32", precision))
    return times if sure and times > SLOWER else 0.0


def key_of(device: torch.device, measured: str) -> str:
    """What a figure depends on beside what is measured: machine, device, threads."""
    import torch

    name = name_of(device) if device.type == "cuda" else f"{name_of(device)}, {torch.get_num_threads()}"
    whose = " by oneDNN" if measured == "fp32" and device.type == "cpu" and wider_by_onednn() else ""
    return f"{platform.node()} | {name} | {measured}{whose} | torch {torch.__version__}"


def name_of(device: torch.device) -> str:
    """A GPU's name, or the make of the CPU."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()


def _measure(device: torch.device, precision: str) -> tuple[float, bool]:
    """The best speed, and whether the machine had nothing else to do."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    chance = torch.Generator(device.type).manual_seed(0)  # nobody's draws move, whether a figure is kept or measured
    tile = torch.randn(LEAST, LEAST, generator=chance, device=device).to(dtype)
    cuda = device.type == "cuda"
    own = time.perf_counter if cuda else time.thread_time  # others may have the core meanwhile
    wider = not cuda and dtype == torch.float32 and wider_by_onednn()

    def spent(size: int, repeats: int) -> float:
        a, b = tile.repeat(size // LEAST, size // LEAST), tile.repeat(size // LEAST, size // LEAST)
        if cuda:
            torch.cuda.synchronize()
        start = own()
        for _ in range(repeats):
            torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "") if wider else a @ b
        if cuda:
            torch.cuda.synchronize()
        return max(own() - start, 1e-9) / repeats

    size, repeats = LEAST, 20 if cuda else 1
    spent(size, 1)  # wakes threads and libraries
    others, began = _others(), own()
    seconds = spent(size, repeats)
    best = 2 * size**3 / seconds
    while own() - began < PATIENCE:
        left = PATIENCE - (own() - began)
        if seconds < SHORT and size < LARGEST.get(device.type, 2048) and 10 * seconds * repeats < left:
            size *= 2
        seconds = spent(size, repeats)
        best = max(best, 2 * size**3 / seconds)
    return best, others() < ALONE


def _processor() -> str:
    """The make of the CPU."""
    return _of_cpu("model name") or platform.processor() or platform.machine()


def make_of_cpu() -> tuple[str, int]:
    """Who made the CPU, and the number of its family; where that is not told, nobody and 0."""
    family = _of_cpu("cpu family")
    return _of_cpu("vendor_id"), int(family) if family.isdecimal() else 0


@functools.cache
def wider_by_onednn() -> bool:
    """Is this a CPU where oneDNN's products in fp32 are faster than MKL's, which torch takes, and has torch both?"""
    import torch

    maker, family = make_of_cpu()
    if maker != WIDE[0] or family < WIDE[1] or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _of_cpu(what: str) -> str:
    """What Linux tells of the first core."""
    with contextlib.suppress(OSError):
        for line in (ROOT / "proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(what):
                return line.partition(":")[2].strip()
    return ""


def _cache() -> Path:
    """Where figures of this machine are kept."""
    return files.user_cache() / "speed.json"


def _kept() -> dict[str, float]:
    """What is kept; nothing where that cannot be read or makes no sense."""
    kept: Any = {}
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # RuntimeError: no home
        kept = json.loads(_cache().read_text(encoding="utf-8"))
    speeds = kept.items() if isinstance(kept, dict) else ()
    return {str(k): float(v) for k, v in speeds if isinstance(v, int | float) and 0 < v < float("inf")}


def lacks_memory(error: BaseException) -> bool:
    """Is it that memory ran out, of a GPU or of the machine?"""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search(FULL, str(error), re.IGNORECASE))

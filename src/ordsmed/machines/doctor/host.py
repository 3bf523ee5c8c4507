"""Facts about the machine on which the checks run. Tests pass a synthetic host instead."""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base.identity import identity
from ordsmed.base.launch.site import Destination
from ordsmed.base.machine import devices, host
from ordsmed.base.menu import PACKAGE_ROOT

PATIENCE = 20.0  # seconds that a command may take to answer
COMPARED_PACKAGES = (
    "numpy",
    "tokenizers",
    "safetensors",
    "msgspec",
)  # packages whose versions are compared between machines
CODE_FACT = "code of ordsmed"  # digest of the source; differs between copies of ordsmed with the same version


@dataclass(frozen=True)
class Card:
    name: str
    capability: str  # 9.0, or gfx90a
    memory: float = 0.0  # GiB


@dataclass(frozen=True)
class Torch:
    version: str = ""  # empty: it cannot be imported
    reason: str = ""  # why it cannot
    cuda: str = ""  # CUDA version that torch was built with
    hip: str = ""
    nccl: str = ""
    codes: tuple[str, ...] = ()  # GPU architectures that torch was built for: sm_90, compute_90, gfx90a
    driver: str = ""  # newest CUDA version that the driver supports
    cards: tuple[Card, ...] = ()


@dataclass(frozen=True)
class Host:
    """A machine, and the site on which a job would run."""

    env: Mapping[str, str]
    python: str
    arch: str
    name: str  # node name in Slurm
    hostname: str
    user: str
    home: Path
    shared: Path  # folder on the disk that all nodes of a job share
    torch: Torch
    wanted: Mapping[str, str]  # required range by package name: >=2.11
    versions: Mapping[str, str]
    place: Destination | None  # site and partition that the user named
    gpus: str  # vendor of the GPUs by the operating system: NVIDIA, AMD or none
    interfaces: tuple[str, ...]  # network interfaces
    fabric: str  # Slingshot, InfiniBand or Ethernet
    cores: int
    bound: tuple[int, ...]  # numbers of the cores that this process may run on
    available: int  # cores of the machine, or of this process's container or job
    temporary: Path  # folder for temporary files
    ask: Callable[[Sequence[str]], str | None]  # runs a command and returns its output; None if it is missing or fails
    space: Callable[[Path], tuple[int, int]]  # (free, total) bytes of the disk of a path
    clock: Callable[[], float]
    address: Callable[[str], str]  # IP address of a host name; empty if it is unknown
    bind: Callable[[int], str]  # reason why a port cannot be listened on; empty if it can
    device: str = "cpu"  # device on which products and sums are measured
    world: int = 1
    account: str = ""

    @property
    def slurm(self) -> bool:
        return self.place.site.scheduler == "slurm" if self.place else "SLURM_JOB_ID" in self.env


def this_host(destination: Destination | None, *, account: str = "", device: str = "cpu", world: int = 1) -> Host:
    home = Path(os.environ.get("HOME", "") or "/")
    shared = os.path.expandvars(destination.site.scratch) if destination else ""
    return Host(
        env=dict(os.environ),
        python=platform.python_version(),
        arch=platform.machine(),
        name=os.environ.get("SLURMD_NODENAME", "") or socket.gethostname(),
        hostname=socket.gethostname(),
        user=user(),
        home=home,
        fabric=fabric_of(host.ROOT),
        shared=Path(shared) if shared and "$" not in shared and Path(shared).is_dir() else Path.cwd(),
        torch=torch_here(),
        wanted=ranges(),
        versions=versions(),
        place=destination,
        gpus=devices.gpus_of(host.ROOT),
        interfaces=tuple(sorted(name for _, name in socket.if_nameindex())),
        cores=host.cores(),
        bound=tuple(sorted(os.sched_getaffinity(0))),
        available=host.available_cores(),
        temporary=Path(os.environ.get("TMPDIR", "") or "/tmp"),
        ask=answer,
        space=space,
        clock=time.time,
        address=address,
        bind=bind,
        device=device,
        world=world,
        account=account,
    )


def torch_here() -> Torch:
    try:
        import torch
    except (ImportError, OSError) as failure:
        return Torch(reason=(str(failure).splitlines() or ["it cannot be imported"])[0][:200])
    cards, driver, nccl = [], "", ""
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            code = getattr(properties, "gcnArchName", "").partition(":")[0] if torch.version.hip else ""
            cards.append(
                Card(properties.name, code or f"{properties.major}.{properties.minor}", properties.total_memory / 2**30)
            )
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    if torch.version.cuda:
        with contextlib.suppress(RuntimeError, AttributeError):
            number = getattr(torch._C, "_cuda_getDriverVersion")()  # noqa: B009 (its stubs lack it)
            driver = f"{number // 1000}.{number % 1000 // 10}" if number else ""
    codes = tuple(torch.cuda.get_arch_list())
    return Torch(
        str(torch.__version__), "", torch.version.cuda or "", torch.version.hip or "", nccl, codes, driver, tuple(cards)
    )


def ranges() -> dict[str, str]:
    """Return the ranges of Python and torch versions that ordsmed requires."""
    try:
        python = importlib.metadata.metadata("ordsmed")["Requires-Python"] or ""
        needs = importlib.metadata.requires("ordsmed") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout, not installed
        path = PACKAGE_ROOT.parents[1] / "pyproject.toml"
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"] if path.is_file() else {}
        python, needs = project.get("requires-python", ""), project.get("dependencies", [])
    torch = next((m[1] for need in needs if (m := re.fullmatch(r"torch\s*\(?([^;()]*)\)?(;.*)?", need))), "")
    return {"Python": python.strip(), "torch": torch.strip()}


def versions() -> dict[str, str]:
    packages = {"ordsmed": str(identity()), CODE_FACT: identity().digest}
    for name in COMPARED_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return packages


def within(version: str, wanted: str) -> bool:
    """Return whether a version satisfies a range: 2.9.1+cu128 is in `>=2.7,<3`."""
    numbers = _numbers(version)
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<|~=)\s*([\w.+*]+)", part)
        if match is None:
            raise ValueError(f"{part!r} is not a range of versions")
        sign, limit = match[1], _numbers(match[2])
        size = max(len(numbers), len(limit))
        a, b = (part + (0,) * (size - len(part)) for part in (numbers, limit))
        alike = a[: len(limit)] == limit if match[2].endswith("*") else a == b
        near = a >= b and a[: len(limit) - 1] == limit[:-1]
        if not {">=": a >= b, "<=": a <= b, "==": alike, "!=": not alike, ">": a > b, "<": a < b, "~=": near}[sign]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def fabric_of(root: Path) -> str:
    """Return the kind of network between machines, by the system files below `root`."""
    names = {"Slingshot": "sys/class/cxi", "InfiniBand": "sys/class/infiniband"}
    return next((name for name, path in names.items() if any((root / path).glob("*"))), "Ethernet")


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, the user may have only a number
        return str(os.getuid())


def answer(words: Sequence[str]) -> str | None:
    """Return the output of a command; None if it does not exist, fails or times out."""
    if not shutil.which(words[0]):
        return None
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def space(path: Path) -> tuple[int, int]:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


def address(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return ""


def bind(port: int) -> str:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen()
        except (OSError, OverflowError) as failure:
            return str(getattr(failure, "strerror", "") or failure)
    return ""

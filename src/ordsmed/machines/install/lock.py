"""The lock: a pinned version of each installed package, with the digests of its files.

lock.toml (tests/kit/lock.py writes it) -> Pinned -> requirement lines with hashes for pip, checksums of easyconfigs
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ordsmed.base import settings
from ordsmed.base.errors import DataError, RecipeError

FILE = Path(__file__).parent / "lock.toml"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ARCHES = ("x86_64", "aarch64")  # processors that have wheels; on others, packages are built
TORCH = "torch"  # its files differ between indexes, so only its version is pinned
WITH_TORCH = "triton"  # installed with PyTorch, in the version that PyTorch requires


@dataclass(frozen=True)
class Pinned:
    name: str
    version: str
    needs: tuple[str, ...] = ()
    """names of its dependencies"""
    pythons: tuple[str, ...] = PYTHONS
    """versions of Python that get this version of the package"""
    arches: tuple[str, ...] = ()
    """architectures that get the package; empty: all"""
    files: dict[str, str] = field(default_factory=dict)
    """file name -> SHA-256: wheels for Linux, and the source archive"""

    def wheels(self, arch: str = "", python: str = "") -> list[str]:
        """Return the wheels for an architecture and a Python version; empty: any."""
        return [name for name in self.files if name.endswith(".whl") and fits(name, arch, python)]

    @property
    def source(self) -> str:
        return next(name for name in self.files if not name.endswith(".whl"))


@functools.cache
def packages() -> tuple[Pinned, ...]:
    table = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(settings.decode(Pinned, entry, FILE.name) for entry in table["package"])


def wanted_when_made() -> list[str]:
    return list(tomllib.loads(FILE.read_text(encoding="utf-8"))["wanted"])


def version_of(name: str) -> str:
    return _named(name)[0].version


def resolved(requirements: Iterable[str], without: Sequence[str] = (), arch: str = "") -> list[Pinned]:
    """Return the packages that requirements need, directly or indirectly. `arch` leaves out those it does not get."""
    waiting, names = [normal(name) for name in requirements], set[str]()
    while waiting:
        if (name := waiting.pop()) not in names and name not in without:
            names.add(name)
            waiting += [need for entry in _named(name) for need in entry.needs]
    wanted = [entry for entry in packages() if entry.name in names and entry.files]
    return [entry for entry in wanted if not arch or not entry.arches or arch in entry.arches]


def lines(requirements: Iterable[str], arch: str = "", python: str = "", without: Sequence[str] = ()) -> Iterator[str]:
    """Yield requirement lines for `pip install --require-hashes --no-deps -r`."""
    arch = "" if arch == "unknown" else arch
    for entry in resolved(requirements, without, arch):
        if python and python not in entry.pythons:
            continue
        files = entry.wheels(arch, python) or [entry.source]
        markers = [] if python or entry.pythons == PYTHONS else [f"python_version in '{' '.join(entry.pythons)}'"]
        markers += [f"platform_machine in '{' '.join(entry.arches)}'"] if entry.arches and not arch else []
        when = f" ; {' and '.join(markers)}" if markers else ""
        yield " \\\n    ".join(
            [f"{entry.name}=={entry.version}{when}", *(f"--hash=sha256:{entry.files[f]}" for f in files)]
        )


def check_python(python: str) -> None:
    if python and python not in PYTHONS:
        raise RecipeError("--python", f"found {python}, for which no packages are pinned", " or ".join(PYTHONS))


def normal(requirement: str) -> str:
    """Return the normalized name of a package: Tomli_W>=1 -> tomli-w."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement.strip())[0]).lower()


def _named(name: str) -> list[Pinned]:
    if not (entries := [entry for entry in packages() if entry.name == normal(name)]):
        remedy = "`make lock` in a checkout pins it"
        raise DataError(FILE.name, f"does not pin {name}", "every package that is installed", remedy)
    return entries


def fits(wheel: str, arch: str, python: str) -> bool:
    """Return whether a wheel's tags allow a processor and a Python.

    Example: numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl
    """
    interpreters, abi, platforms = wheel.removesuffix(".whl").split("-")[-3:]
    if arch and platforms != "any" and not platforms.endswith(arch):
        return False
    if not python or "py3" in interpreters.split("."):
        return True
    tags = [int(tag.removeprefix("cp3")) for tag in interpreters.split(".") if re.fullmatch(r"cp3\d+", tag)]
    minor = int(python.partition(".")[2])
    return any(tag <= minor if abi == "abi3" else tag == minor for tag in tags)

"""The lock that installations are pinned by, made anew: `make lock`; it wants a network, and pip.

pyproject.toml, constraints.txt -> pip's choice for every Python and processor -> digests, as the index states them
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))

from ordsmed.machines.install import bundle, lock  # noqa: E402

KIND = "application/vnd.pypi.simple.v1+json"
OF_GPUS = re.compile("nvidia|cuda|triton|extra ==")  # what the wheels of PyTorch's own indexes bring
ELSEWHERE = "ppc64le"  # a processor without wheels: what is not wanted there is not to be built
NOT_PINNED = (lock.TORCH, lock.WITH_TORCH)
HEAD = """# What every installation is pinned by: `make lock` writes this file.
# {packages} packages for Python {pythons} on Linux ({arches}).
# A file is a name and its SHA-256, as the index states it.
# PyTorch's version is that of constraints.txt; its files differ from index to index, and are not here.
"""


def wanted() -> list[str]:
    """What ordsmed wants, with all extras that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted({*project["dependencies"], *project["optional-dependencies"]["all"]})


def resolved(python: str, arch: str, requirements: list[str]) -> list[dict[str, Any]]:
    """The packages that pip would install there."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["install", "--dry-run", "--ignore-installed", "--report", str(report), "--target", folder]
        words += ["--constraint", str(ROOT / "constraints.txt"), *bundle.only_for(arch, python), *requirements]
        if problem := bundle.run_pip(words, arch, python):
            sys.exit(f"pip: {problem}")
        return [item["metadata"] for item in json.loads(report.read_text(encoding="utf-8"))["install"]]


def index() -> str:
    """Where pip looks on this machine."""
    words = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    usual = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return configured or subprocess.check_output([sys.executable, "-c", usual], text=True).strip()


def files_of(where: str, name: str, version: str) -> dict[str, str]:
    """The wheels for Linux and the source of a version, with the digests that the index states."""
    request = urllib.request.Request(f"{where}/{name}/", headers={"Accept": KIND})
    with urllib.request.urlopen(request, timeout=60) as answer:
        listed = json.load(answer)["files"]
    found = {}
    for file in listed:
        match = re.match(rf"([\w.]+?)-{re.escape(version)}(?:-(.+)\.whl|\.tar\.gz|\.zip)$", file["filename"])
        if match and not file.get("yanked") and (not match[2] or _is_wanted(file["filename"])):
            found[file["filename"]] = file["hashes"]["sha256"]
    return dict(sorted(found.items()))


def _is_wanted(wheel: str) -> bool:
    platforms = wheel.removesuffix(".whl").rpartition("-")[2]
    if "manylinux" not in platforms and platforms != "any":
        return False
    fits = any(lock.fits(wheel, arch, python) for arch in lock.ARCHES for python in lock.PYTHONS)
    return fits and not re.search(r"-cp3\d+t-", wheel)


def needs_of(package: dict[str, Any], there: dict[str, str], arch: str = "") -> list[str]:
    """The packages of one resolution that a package of it names; `arch`: those that it wants on that processor."""
    names = set()
    for line in package.get("requires_dist", ()):
        requirement, _, when = line.partition(";")
        wanted = not arch or not when.strip() or Marker(when).evaluate({"platform_machine": arch, "extra": ""})
        if "extra ==" not in when and wanted and (name := lock.normal(requirement)) in there:
            names.add(name)
    return sorted(names)


def reached(roots: list[str], needs: dict[str, set[str]]) -> set[str]:
    """Return the names that roots need, in turn."""
    waiting, names = [lock.normal(root) for root in roots], set[str]()
    while waiting:
        if (name := waiting.pop()) not in names:
            names.add(name)
            waiting += needs.get(name, ())
    return names


def made() -> str:
    """The text of the lock."""
    requirements = [line for line in wanted() if lock.normal(line) not in NOT_PINNED]
    with_torch = [line.partition(";")[0] for line in metadata.requires(lock.TORCH) or () if not OF_GPUS.search(line)]
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    out_override: dict[str, set[str]] = {}
    for python in lock.PYTHONS:
        for arch in lock.ARCHES:
            print(f"lock: Python {python}, {arch}", flush=True)
            packages = resolved(python, arch, requirements + with_torch)
            there = {lock.normal(package["name"]): package["version"] for package in packages}
            for package in packages:
                name = lock.normal(package["name"])
                entry = entries.setdefault((name, package["version"]), {"needs": set(), "pythons": set()})
                entry["needs"] |= set(needs_of(package, there))
                out_override.setdefault(name, set()).update(needs_of(package, there, ELSEWHERE))
                entry["pythons"].add(python)
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    torch = [lock.normal(line) for line in with_torch]
    where = index()
    text = HEAD.format(packages=len(entries), pythons=", ".join(lock.PYTHONS), arches=", ".join(lock.ARCHES))
    text += f"wanted = {json.dumps(wanted(), indent=4)}\n"
    text += (
        f'\n[[package]]\nname = "{lock.TORCH}"\nversion = "{pins[lock.TORCH]}"\nneeds = {json.dumps(sorted(torch))}\n'
    )
    everywhere = reached(requirements + with_torch, out_override)
    for (name, version), entry in sorted(entries.items()):
        text += f'\n[[package]]\nname = "{name}"\nversion = "{version}"\nneeds = {json.dumps(sorted(entry["needs"]))}\n'
        if pythons := [python for python in lock.PYTHONS if python in entry["pythons"]]:
            text += f"pythons = {json.dumps(pythons)}\n" if len(pythons) < len(lock.PYTHONS) else ""
        text += f"arches = {json.dumps(lock.ARCHES)}\n" if name not in everywhere else ""
        text += "[package.files]\n"
        text += "".join(f'"{file}" = "{digest}"\n' for file, digest in files_of(where, name, version).items())
    return text


if __name__ == "__main__":
    lock.FILE.write_text(made(), encoding="utf-8")
    print(f"{lock.FILE.relative_to(ROOT)}: written on {platform.machine()}")

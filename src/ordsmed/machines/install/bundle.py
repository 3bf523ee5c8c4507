"""Bundles: download the wheels of an installation for a machine without network.

the lock, arch, Python -> pip download -> FOLDER/*.whl, lock.txt, bundle.json -> ordsmed install --from FOLDER
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.say import many, say
from ordsmed.machines.install import lock
from ordsmed.machines.install.plan import BUNDLED_TORCH, MANIFEST, Installation, python_here
from ordsmed.machines.install.venv import BUILT

OWN = (platform.machine(), python_here())
GLIBC = range(5, 29)  # manylinux_2_5 ... 2_28, the versions of glibc that Red Hat 8 supports
# pip evaluates markers (platform_machine) for the machine it runs on and ignores --platform for them
PIP = """import platform, runpy, sys
arch, version = sys.argv[1:3]
platform.machine = lambda: arch
platform.python_version = lambda: version + ".0"
platform.python_version_tuple = lambda: (*version.split("."), "0")
sys.argv[1:3] = []
runpy.run_module("pip", run_name="__main__")"""


def collect(work: Installation, folder: Path) -> dict[str, Any]:
    """Download the bundle into a folder, which appears only if it is complete.

    Packages without a wheel for the target are included as source.
    """
    arch, version = work.arch, work.python or python_here()
    if arch == "unknown":
        problem = f"the architecture of {work.place.partition.name} of {work.place.name} is unknown"
        raise RecipeError("--site", problem, "x86_64, aarch64 or ppc64le", "write a site file with `arch`")
    lock.check_python(version)
    work = replace(work, python=version)
    with files.making(folder) as part:
        say(f"ordsmed: a wheel of {work.source}")
        _fetch(["wheel", "--no-deps", "--wheel-dir", str(part), work.source], *OWN)
        download = ["download", "--dest", str(part), *(only_for(arch, version) if arch in lock.ARCHES else [])]
        if work.torch == "wheels":
            say(f"PyTorch from {work.index}")
            _collect_torch(part, [*download, "--index-url", work.index, work.torch_wanted], work)
        say(f"{many(len(work.pinned), 'package')} for {arch} and Python {version}, verified by their hashes")
        for name, text in work.lock_files().items():
            files.write_text(part / name, text)
            _fetch([*download, "--require-hashes", "--no-deps", "--requirement", str(part / name)], arch, version)
        sums = {path.name: _sha256(path) for path in sorted(part.iterdir()) if path.suffix != ".txt"}
        built = [entry.name for entry in work.pinned if not entry.wheels(arch, version)]
        facts = {
            "site": work.place.name,
            "arch": arch,
            "python": version,
            "ordsmed": work.version,
            "code": work.code.digest,
            "torch": work.torch,
            "wheels": [name for name in sums if name.endswith(".whl")],
            "sha256": sums,
            "built_there": {package: BUILT.get(package, "a compiler") for package in built},
        }
        files.write_json(part / MANIFEST, facts)
    return facts


def _collect_torch(folder: Path, words: Sequence[str], work: Installation) -> None:
    """Download PyTorch and its libraries from PyTorch's index, and write a requirement file with their hashes."""
    before, pinned = set(folder.iterdir()), {entry.name for entry in work.pinned}
    _fetch(words, work.arch, work.python)
    lines = []
    for path in sorted(set(folder.iterdir()) - before):
        name, version = path.name.split("-")[:2]
        if lock.normal(name) in pinned:  # installed in the version of the lock instead
            path.unlink()
        else:
            lines.append(f"{name}=={version} --hash=sha256:{_sha256(path)}\n")
    files.write_text(folder / BUNDLED_TORCH, "".join(lines))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def only_for(arch: str, version: str) -> list[str]:
    tags = [f"manylinux_2_{n}_{arch}" for n in reversed(GLIBC)]
    tags += [f"manylinux2014_{arch}", *([f"manylinux2010_{arch}", f"manylinux1_{arch}"] if arch == "x86_64" else [])]
    only = ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    return [*only, *(f"--platform={tag}" for tag in tags)]


def _fetch(words: Sequence[str], arch: str, version: str) -> None:
    if problem := run_pip(words, arch, version):
        remedy = "--source FOLDER, a checkout of ordsmed" if words[0] == "wheel" else "check the network"
        raise RunError(f"pip {words[0]}", _last(problem), "", remedy)


def run_pip(words: Sequence[str], arch: str, version: str) -> str:
    """Run pip as if on a machine of that arch and Python version. Return its error message; empty if it succeeded."""
    start = [sys.executable, "-c", PIP, arch, version]
    done = subprocess.run(
        [*start, *words, "--quiet", "--disable-pip-version-check"], capture_output=True, text=True, check=False
    )
    if "No module named pip" in done.stderr:
        raise RunError(sys.executable, "has no pip", "", "`python3 -m ensurepip`, or install python3-pip")
    return (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""


def _last(problem: str) -> str:
    lines = [line for line in problem.splitlines() if line.startswith("ERROR")] or problem.splitlines()
    return lines[-1].removeprefix("ERROR: ")[:300]


def lines(facts: dict[str, Any], folder: Path) -> list[str]:
    text = [f"{folder}: {many(len(facts['wheels']), 'wheel')} for {facts['arch']}, Python {facts['python']}"]
    text += [
        f"  {name}: no wheel for {facts['arch']}; it is built on the target machine, with {compiler}"
        for name, compiler in facts["built_there"].items()
    ]
    if facts["torch"] == "modules":
        text.append("  PyTorch is not included: the site's module provides it")
    return text

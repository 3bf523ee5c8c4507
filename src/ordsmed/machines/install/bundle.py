"""Bundles: the wheels that an installation wants, collected where there is a network, for a machine that has none.

requirements, arch, Python -> pip download -> FOLDER/*.whl, bundle.json -> ordsmed install --from FOLDER
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.say import many, say
from ordsmed.machines.install.plan import MANIFEST, Installation, here
from ordsmed.machines.install.venv import BUILT

OWN = (platform.machine(), here())
GLIBC = range(5, 29)  # manylinux_2_5 ... 2_28: what a machine with Red Hat 8 takes
# pip reads markers (platform_machine) of the machine it runs on, whatever --platform says
PIP = """import platform, runpy, sys
arch, version = sys.argv[1:3]
platform.machine = lambda: arch
platform.python_version = lambda: version + ".0"
platform.python_version_tuple = lambda: (*version.split("."), "0")
sys.argv[1:3] = []
runpy.run_module("pip", run_name="__main__")"""


def collect(work: Installation, folder: Path) -> dict[str, Any]:
    """Fill a folder, whole or absent; what has no wheel is named, with its source where pip gives that."""
    arch, version = work.arch, work.python or here()
    if arch == "unknown":
        problem = f"{work.place.name} does not say the arch of {work.place.partition.name}"
        raise RecipeError("--site", problem, "x86_64, aarch64 or ppc64le", "write a site file with `arch`")
    with files.making(folder) as part:
        say(f"ordsmed: a wheel of {work.source}")
        if problem := _pip(["wheel", "--no-deps", "--wheel-dir", str(part), work.source], *OWN):
            raise RunError(f"pip wheel {work.source}", _last(problem), "", "--source FOLDER, a checkout of ordsmed")
        lacking: list[str] = []
        if work.torch == "wheels":
            say(f"PyTorch from {work.index}")
            lacking += _download(part, [work.torch_wanted], arch, version, ["--index-url", work.index])
        say(f"{many(len(work.others), 'package')} and what they want, for {arch} and Python {version}")
        lacking += _download(part, work.others, arch, version, [])
        wheels = sorted(path.name for path in part.glob("*.whl"))
        facts = {
            "site": work.place.name, "arch": arch, "python": version, "ordsmed": work.version, "torch": work.torch,
            "wheels": wheels, "built_there": {package: BUILT.get(package, "a compiler") for package in lacking},
        }  # fmt: skip
        files.write_json(part / MANIFEST, facts)
    return facts


def _download(folder: Path, wanted: Sequence[str], arch: str, version: str, where: Sequence[str]) -> list[str]:
    """Wheels of these and all they want; the names of those that have none for this machine."""
    tags = [f"manylinux_2_{n}_{arch}" for n in reversed(GLIBC)]
    tags += [f"manylinux2014_{arch}", *([f"manylinux2010_{arch}", f"manylinux1_{arch}"] if arch == "x86_64" else [])]
    words = ["download", "--dest", str(folder), *where]
    only = ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    only += [f"--platform={tag}" for tag in tags]
    if not _pip([*words, *only, *wanted], arch, version):
        return []
    lacking = []
    for package in wanted:  # which of them it is
        if problem := _pip([*words, *only, package], arch, version):
            if "No matching distribution" not in problem:
                raise RunError("pip download", _last(problem), "", "see that the network is there, then begin again")
            lacking.append(re.split(r"[\[<>=!~; ]", package)[0])
    return lacking


def _pip(words: Sequence[str], arch: str, version: str) -> str:
    """Run pip as if on that machine; empty, or what it complained of."""
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
    """What was collected, and what is built there."""
    text = [f"{folder}: {many(len(facts['wheels']), 'wheel')} for {facts['arch']}, Python {facts['python']}"]
    text += [
        f"  {name}: no wheel for {facts['arch']}; built there, with {compiler}"
        for name, compiler in facts["built_there"].items()
    ]
    if facts["torch"] == "modules":
        text.append("  PyTorch is not in it: the site's module holds it")
    return text

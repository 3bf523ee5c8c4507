"""The lock: it is that of pyproject.toml and constraints.txt, whole, and what pip takes."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from kit.lock import files_of, wanted
from ordsmed.base.errors import DataError
from ordsmed.machines.doctor.host import within
from ordsmed.machines.install import lock
from ordsmed.machines.install.plan import InstallWish, decide

ROOT = Path(__file__).parents[3]
LINE = re.compile(
    r"([\w-]+)==([\w.]+)( ; (?:python_version|platform_machine) in '[\w. ]+')?((?: --hash=sha256:[0-9a-f]{64})+)"
)
CORE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
OTHERS = [name for name in CORE if not name.startswith("torch")]


def lines(requirements: list[str], *where: str) -> dict[str, str]:
    """Name -> its line as pip reads it, which joins those that end in a backslash."""
    text = "\n".join(lock.lines(requirements, *where)).replace(" \\\n   ", "")
    matches = [LINE.fullmatch(line) for line in text.splitlines()]
    assert all(matches)
    return {match[1]: match[0] for match in matches if match}


def test_the_lock_is_made_of_what_is_wanted_now() -> None:
    assert lock.wanted_when_made() == wanted(), "pyproject.toml changed since: `make lock`"


def test_every_version_is_within_its_range_and_that_of_the_tests() -> None:
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pins = {lock.normal(name): version for name, version in pins.items()}
    for entry in lock.packages():
        assert entry.version == pins.get(entry.name, entry.version), f"{entry.name}: constraints.txt: `make lock`"
    for requirement in wanted():
        if (name := lock.normal(requirement)) != lock.WITH_TORCH:
            assert within(lock.version_of(name), requirement[requirement.index(">") :]), requirement


def test_all_that_is_needed_is_there_for_every_machine() -> None:
    names = {entry.name for entry in lock.packages()}
    assert all(set(entry.needs) <= names for entry in lock.packages())
    for python in lock.PYTHONS:
        for arch in lock.ARCHES:
            entries = [entry for entry in lock.packages() if entry.files and python in entry.pythons]
            assert all(entry.wheels(arch, python) for entry in entries)
    assert len(names) == len(lock.packages())
    assert not any("win" in file or "musllinux" in file for entry in lock.packages() for file in entry.files)
    assert "://" not in lock.FILE.read_text(encoding="utf-8"), "no index is named"


def test_it_says_what_the_installed_packages_need() -> None:
    """Of those that are installed here, by what they say themselves."""
    for entry in lock.resolved(OTHERS):
        try:
            listed = metadata.requires(entry.name) or []
        except metadata.PackageNotFoundError:
            continue
        if metadata.version(entry.name) == entry.version:
            needed = {lock.normal(line) for line in listed if ";" not in line}
            assert needed <= set(entry.needs), entry.name


def test_lines_are_of_one_machine() -> None:
    everywhere, here = lines(OTHERS), lines(OTHERS, "aarch64", "3.12")
    assert set(here) == set(everywhere)
    assert everywhere["numpy"].count("--hash") == len(lock.PYTHONS) * len(lock.ARCHES)
    assert here["numpy"].count("--hash") == 1
    (wheel,) = next(entry for entry in lock.packages() if entry.name == "numpy").wheels("aarch64", "3.12")
    assert "cp312" in wheel
    assert wheel.endswith("aarch64.whl")
    assert lines(["zstandard"], "ppc64le")["zstandard"].count("--hash") == 1, "its source"
    assert "pyarrow" not in here
    assert "pyarrow" in lines([*OTHERS, "pyarrow>=15"])
    assert {"sympy", "networkx"} <= set(lines(["torch"]))
    assert "torch" not in lines(["torch"])
    assert "numpy" not in "".join(lock.lines(OTHERS, without=["numpy"]))


def test_a_package_of_one_python_alone_says_so() -> None:
    only = next(entry for entry in lock.packages() if entry.pythons == ("3.11",))
    assert f"{only.name}=={only.version} ; python_version in '3.11' --hash" in lines([only.name])[only.name]
    assert lines([only.name], "x86_64", "3.12") == {}


def test_what_a_marker_leaves_out_on_a_processor_is_not_in_its_lines() -> None:
    """Of what is installed here: what every package wants on Power 9, in turn, and nothing else."""
    markers = pytest.importorskip("packaging.requirements")
    assert "platform_machine in 'x86_64 aarch64'" in lines(["huggingface-hub"])["hf-xet"]
    assert ";" not in lines(["huggingface-hub"], "x86_64")["hf-xet"]
    assert "hf-xet" not in lines(["huggingface-hub"], "ppc64le")
    power9 = decide(InstallWish("power9", "venv"))
    assert "hf-xet" not in "".join(power9.lock_files().values())
    assert "hf-xet" not in [entry.name for entry in power9.pinned]
    environment = {"platform_machine": "ppc64le", "extra": ""}
    there, waiting = set[str](), [lock.normal(root) for root in power9.roots]
    while waiting:
        if (name := waiting.pop()) not in there:
            there.add(name)
            listed = map(markers.Requirement, metadata.requires(name) or ())
            waiting += [lock.normal(one.name) for one in listed if not one.marker or one.marker.evaluate(environment)]
    assert set(lines(power9.roots, "ppc64le", f"3.{sys.version_info.minor}")) == there - {lock.TORCH, lock.WITH_TORCH}


@pytest.mark.parametrize(
    ("wheel", "fits"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-py2.py3-none-any.whl", True),
        ("a-1-cp312-cp312-linux_x86_64.whl", True),
        ("a-1-cp311-cp311-linux_x86_64.whl", False),
        ("a-1-cp39-abi3-manylinux_2_17_x86_64.whl", True),
        ("a-1-cp313-abi3-manylinux_2_17_x86_64.whl", False),
        ("a-1-py3-none-manylinux_2_17_aarch64.whl", False),
        ("a-1-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
    ],
)
def test_tags_of_wheels(wheel: str, fits: bool) -> None:
    assert lock.Pinned("a", "1", files={wheel: ""}).wheels("x86_64", "3.12") == [wheel] * fits


def test_what_is_not_pinned_is_told() -> None:
    with pytest.raises(DataError, match=r"lock.toml: does not pin unheard-of; wanted every package"):
        lock.resolved(["Unheard_of>=1"])
    assert callable(files_of)
    assert sys.version_info[:2] in [tuple(map(int, python.split("."))) for python in lock.PYTHONS]

"""Python and its packages in one file: what is in it, by what name, and a job that starts from its copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.base.launch.site import Destination
from ordsmed.base.menu import PACKAGE_ROOT
from ordsmed.machines.cluster.submit import check_packed
from ordsmed.machines.sites import python_archive, slurm
from ordsmed.machines.sites.python_archive import PackedPython, folders_of_python, pack

STAND_INS = {
    "sbcast": 'shift; [ ! -e no-sbcast ] || exit 1; cp "$1" "$2"',
    "srun": 'echo "$*" >>calls; while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "squeue": "echo n1",
    "scontrol": "echo n1",
    "sinfo": "true",
    "scancel": "true",
    "sbatch": "true",
}


@pytest.fixture
def library(tmp_path: Path) -> tuple[Path, ...]:
    """Two folders of modules, one inside the other, with what must stay outside."""
    first, inside = tmp_path / "lib", tmp_path / "lib/dynload"
    for path in ("lib/a.py", "lib/package/__init__.py", "lib/dynload/b.py", "lib/site-packages/of_another.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"name = {path!r}\n")
    (first / "link").symlink_to("package")
    return first, inside


def names(environment: PackedPython) -> list[str]:
    with tarfile.open(environment.path) as tar:
        return sorted(tar.getnames())


def test_what_python_finds_is_packed_in_its_order(library: tuple[Path, ...], tmp_path: Path) -> None:
    environment = pack(tmp_path / "jobs", library)
    assert names(environment) == ["0/a.py", "0/link", "0/package/__init__.py", "1/b.py"]
    assert environment.folders == library
    reverse = pack(tmp_path / "jobs", library[::-1])
    assert names(reverse) == ["0/b.py", "1/a.py", "1/link", "1/package/__init__.py"]


def test_the_file_is_taken_again_until_something_is_installed(library: tuple[Path, ...], tmp_path: Path) -> None:
    first = pack(tmp_path, library)
    before = first.path.stat().st_mtime_ns
    assert pack(tmp_path, library) == first
    assert first.path.stat().st_mtime_ns == before
    (library[0] / "package/new.py").write_text("")
    assert pack(tmp_path, library).path != first.path
    os.utime(library[0] / "a.py", (1, 1))
    assert len({pack(tmp_path, library).path, first.path, *tmp_path.glob("packed-*.tar")}) == 3


def test_this_python_is_its_library_its_packages_and_ordsmed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a user put on the path may hold anything, texts of a terabyte too, and stays where it is."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folders = folders_of_python()
    assert Path(sysconfig.get_path("stdlib")).resolve() in folders
    assert Path(pytest.__file__).resolve().parents[1] in folders
    assert PACKAGE_ROOT.parent.resolve() in folders
    assert tmp_path.resolve() not in folders


def job(folder: Path, environment: PackedPython | None, **more: object) -> slurm.BatchJob:
    site = folder / "here.toml"
    site.write_text('source = "x"\nchecked = "2026-11"\nscheduler = "slurm"\n[[partition]]\nname = "main"\n')
    facts = {
        "title": "t",
        "folder": folder,
        "hours": 1.0,
        "requeue": False,
        "retries": 0,
        "saves": folder / "w",
        **more,
    }
    return slurm.BatchJob(("version",), Destination.find(str(site)), packed=environment, **facts)  # type: ignore[arg-type]


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A job's script among stand-ins of Slurm's commands."""
    tools = folder / "tools"
    tools.mkdir()
    for name, text in STAND_INS.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_JOB_NUM_NODES": "1",
    }
    (folder / "job.sh").write_text(script)
    with (folder / "log").open("w") as log:
        return subprocess.run(
            ["bash", "job.sh"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.mark.parametrize("broken", [(), ("no-sbcast",)])
def test_a_job_starts_from_the_copy_and_leaves_nothing(tmp_path: Path, broken: tuple[str, ...]) -> None:
    """Its modules come from the node's disk before any other; without sbcast each node reads the file itself."""
    (tmp_path / "modules/ordsmed").mkdir(parents=True)
    (tmp_path / "modules/ordsmed/__init__.py").touch()
    says = "import os, sys; print(__file__, os.environ['PYTHONSAFEPATH'], sys.argv[1:], os.path.exists('local'))\n"
    (tmp_path / "modules/ordsmed/__main__.py").write_text(says)
    for name in broken:
        (tmp_path / name).touch()
    (tmp_path / "local").mkdir()
    environment = pack(tmp_path / "jobs", (tmp_path / "modules",))
    done = run(tmp_path, slurm.script(job(tmp_path, environment, local=str(tmp_path / "local"))))
    assert done.returncode == 0, (tmp_path / "log").read_text()
    assert done.stdout.splitlines()[-1].split() == [
        f"{tmp_path}/local/ordsmed-7/0/ordsmed/__main__.py",
        "1",
        "['version']",
        "True",
    ]
    assert list((tmp_path / "local").iterdir()) == []
    assert ("sbcast failed: each node reads" in (tmp_path / "log").read_text()) == bool(broken)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("--nodes=1 --ntasks=1 --ntasks-per-node=1" in call for call in calls) == 2, (
        "unpacked once a node, cleared once"
    )


def test_where_there_is_no_room_the_job_ends_and_says_so(tmp_path: Path) -> None:
    environment = PackedPython(tmp_path / "damaged.tar", (tmp_path,))
    environment.path.write_text("no archive")
    done = run(tmp_path, slurm.script(job(tmp_path, environment, local=str(tmp_path))))
    assert done.returncode == 2
    assert f"ordsmed: {tmp_path}: Python could not be unpacked there; wanted room" in (tmp_path / "log").read_text()
    assert not (tmp_path / "ordsmed-7").exists()


def test_its_script_is_sound(tmp_path: Path) -> None:
    script = slurm.script(job(tmp_path, PackedPython(tmp_path / "a.tar", (tmp_path, tmp_path)), local="/tmp"))
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    if checker := shutil.which("shellcheck"):
        subprocess.run([checker, "--severity=warning", "-"], input=script, text=True, check=True)
    assert "unpack" not in slurm.script(job(tmp_path, None))


@pytest.mark.parametrize(
    ("local", "container", "complaint"),
    [("/tmp", "x.sif", "with the container x.sif; leave it out"), ("tmp", "", "found tmp; wanted a folder of each")],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, local: str, container: str, complaint: str) -> None:
    with pytest.raises(RecipeError, match=f"^--packed: .*{complaint}"):
        check_packed(job(tmp_path, None, local=local, container=container))
    check_packed(job(tmp_path, None, container=container))


def test_this_very_python_imports_from_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library and ordsmed, which are small; packages are left where they are."""
    library = tuple(folder for folder in folders_of_python() if folder.name not in python_archive.PACKAGES)
    with tarfile.open(pack(tmp_path, library).path) as tar:
        tar.extractall(tmp_path / "local", filter="fully_trusted")
    path = ":".join(str(tmp_path / "local" / str(number)) for number in range(len(library)))
    code = "import json, ordsmed.base.files as files; print(json.__file__, files.__file__)"
    env = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert all(place.startswith(str(tmp_path / "local")) for place in said.split())

"""The life of an installation, with wheels, venvs and validations that are real: beside another, default, bad, back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ordsmed.base.identity import identity_of
from ordsmed.base.menu import PACKAGE_ROOT
from ordsmed.cli import main

ROOT = Path(__file__).parents[3]
SITE = f"""
source = "x"
checked = "2026-11"
modules = ["PyTorch/2"]
packages = ["venv"]
[[partition]]
name = "main"
arch = "{os.uname().machine}"
"""
PYTHON = f"""#!/bin/bash
# the Python of a module that holds PyTorch, and pip: a venv on it finds both
[[ "$*" == *"-m venv"* ]] || exec {sys.executable} "$@"
{sys.executable} "${{@:1:2}}" --without-pip "${{@:3}}"
echo {sysconfig.get_path("purelib")} >"$(echo "${{@: -1}}"/lib/python3*/site-packages)/module.pth"
"""


def wheel(folder: Path, version: str) -> Path:
    """This code under another version, as a release is built; its list for `validate` is one item long."""
    package = folder / "src/ordsmed"
    shutil.copytree(PACKAGE_ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, folder)
    for name, before, after in (
        ("__init__.py", r'^__version__ = ".*"$', f'__version__ = "{version}"'),
        ("machines/suite/items.py", r"^ITEMS: (.*) = .*$", r"ITEMS: \1 = (tokenizers,)"),
    ):
        text, count = re.subn(before, after, (package / name).read_text(), flags=re.MULTILINE)
        assert count == 1
        (package / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", version]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    [path] = (folder / "dist").glob("*.whl")
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose module holds PyTorch; no network."""
    monkeypatch.chdir(tmp_path)
    for name in ("bin/python3", "modules.sh", "here.toml"):
        Path(name).parent.mkdir(exist_ok=True)
    Path("bin/python3").write_text(PYTHON)
    Path("bin/python3").chmod(0o755)
    Path("modules.sh").write_text("module() { :; }\nexport -f module\n")
    Path("here.toml").write_text(SITE)
    for name, value in {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "BASH_ENV": f"{tmp_path}/modules.sh",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_COMPILE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def status(*words: str) -> object:
    try:
        main(["install", *words, "--prefix", "soft"])
    except SystemExit as end:
        return end.code
    return 0


def version(name: str) -> str:
    """What an installation says of itself."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [f"soft/{name}/bin/ordsmed", "version"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_the_life_of_an_installation(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hatchling")
    old, new = (installed(site, release) for release in ("0.2.0", "0.3.0"))
    assert status("--default", "0.2.0") == 0
    assert version("default") == old
    [broken] = Path("soft").glob(".ordsmed-0.3.0+g*/lib/python*/site-packages/ordsmed/text/tokenizers/wordpiece.py")
    [record] = Path("soft/installed").glob("0.3.0+g*.json")
    right, digest = broken.read_text(), json.loads(record.read_text())["digest"]
    broken.write_text('raise ImportError("this file is broken")\n')
    assert refused("0.3.0", capfd) == "differs from the installed code"
    spoiled = version(f"ordsmed-{record.stem}").rpartition(" ")[2]
    record.write_text(record.read_text().replace(digest, spoiled))  # as if it had been installed so
    assert refused("0.3.0", capfd) == "this file is broken"
    assert version("default") == old
    broken.write_text(right)
    record.write_text(record.read_text().replace(spoiled, digest))
    assert status("--default", "0.3.0") == 0
    assert version("default") == new
    assert status("--rollback") == 0
    assert version("default") == old
    capfd.readouterr()
    assert status("--list") == 0
    rows = [line for line in capfd.readouterr().out.splitlines() if re.search(r"0\.\d\.\d\+g", line)]
    assert [row.split("|")[1].strip() for row in rows] == ["default", ""]


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_the_steps_of_a_dockerfile_make_an_ordsmed(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hatchling")
    for name, line in {
        "docker": f'exec {sys.executable} {ROOT}/tests/kit/run_dockerfile.py {site} "$@"',
        "df": "echo; echo none 1 1 999999999 1% /",
    }.items():
        Path("bin", name).write_text(f"#!/bin/sh\n{line}\n")
        Path("bin", name).chmod(0o755)
    words = ["--by", "docker", "--image", "held/torch", "--source", str(wheel(site / "0.3.0", "0.3.0"))]
    assert status("--site", "here.toml", *words, "--yes") == 0, capfd.readouterr().err
    code = identity_of(site / "0.3.0/src/ordsmed")
    inside = ["bin/docker", "run", "--rm", "ordsmed:x"]
    run = subprocess.run([*inside, "ordsmed", "version"], capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (0, f"ordsmed {code}, code {code.digest}")
    module = "import ordsmed, torch; print(ordsmed.__file__)"
    run = subprocess.run([*inside, "python", "-c", module], capture_output=True, text=True)
    assert run.stdout.startswith(f"{site}/image/opt/ordsmed/venv/lib/"), run.stderr


def installed(site: Path, release: str) -> str:
    """Install one, and what it says of itself."""
    assert status("--site", "here.toml", "--source", str(wheel(site / release, release)), "--yes") == 0
    code = identity_of(site / release / "src/ordsmed")
    assert re.fullmatch(rf"{release}\+g[0-9a-f]{{8}}", str(code))
    line = f"ordsmed {code}, code {code.digest}"
    assert version(f"ordsmed-{code}") == line, "the wheel knows its commit, and has all files"
    return line


def refused(release: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Why one does not become the default, which stays."""
    capfd.readouterr()
    assert status("--default", release) == 1
    told = capfd.readouterr().err
    assert len(told.splitlines()) == 1
    reason = re.search(
        r"(differs from the installed code|this file is broken).*; the default is still 0\.2\.0\+g", told
    )
    assert reason, told
    return reason[1]

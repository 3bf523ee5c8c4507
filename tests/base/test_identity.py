"""Identity: the commit of a checkout, of a wheel, of nothing; one digest for one code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from ordsmed.base import identity as module
from ordsmed.base.identity import STAMP, Identity, commit_of, digest_of, identity, identity_of

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="no git")
COMMIT = "0e435745" + 32 * "a"


def package(root: Path) -> Path:
    folder = root / "ordsmed"
    (folder / "base").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""A."""\n__version__ = "9.1.2"\n')
    (folder / "base/data.toml").write_text("a = 1\n")
    return folder


def git(root: Path, *words: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    package(root / "src")
    (root / "pyproject.toml").write_text("[project]\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git(root, *words)
    return root


def test_how_it_is_written() -> None:
    assert str(Identity("0.2.0", COMMIT, True, "")) == "0.2.0+g0e435745+changes"
    assert str(Identity("0.2.0", COMMIT, False, "")) == "0.2.0+g0e435745"
    assert str(Identity("0.2.0", "", False, "")) == "0.2.0"


@needs_git
def test_a_checkout_names_its_commit(checkout: Path) -> None:
    code = identity_of(checkout / "src/ordsmed")
    assert (code.version, code.commit, code.changed) == ("9.1.2", git(checkout, "rev-parse", "HEAD"), False)
    (checkout / "notes.txt").write_text("of no code")
    (checkout / "src/ordsmed/__pycache__").mkdir()
    assert identity_of(checkout / "src/ordsmed") == code


@needs_git
@pytest.mark.parametrize("name", ["src/ordsmed/base/data.toml", "src/ordsmed/new.py", "pyproject.toml"])
def test_a_file_that_is_changed_or_new_is_told(checkout: Path, name: str) -> None:
    before = identity_of(checkout / "src/ordsmed")
    (checkout / name).write_text("b = 2\n")
    after = identity_of(checkout / "src/ordsmed")
    assert (after.commit, after.changed) == (before.commit, True)
    assert (after.digest == before.digest) == (name == "pyproject.toml")


@needs_git
def test_another_repository_does_not_count(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation within somebody's repository is not of its commit; hooks of git name one by variables."""
    installed = package(checkout / ".venv/lib/python3.12/site-packages")
    assert commit_of(installed) == ("", False)
    monkeypatch.setenv("GIT_DIR", str(checkout.parent / "nowhere"))
    assert commit_of(checkout / "src/ordsmed") != ("", False)


@needs_git
def test_a_repository_without_a_commit(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    assert commit_of(checkout / "src/ordsmed") == ("", False)
    git(checkout, "init", "-q")
    assert commit_of(checkout / "src/ordsmed") == ("", False)


@pytest.mark.parametrize("git_says", ["fatal: detected dubious ownership", "", None])
def test_git_that_cannot_say(tmp_path: Path, git_says: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is missing, refuses a folder of somebody else, or says what no git says."""
    folder = package(tmp_path / "src")
    (tmp_path / ".git").mkdir()
    (tmp_path / "bin").mkdir()
    if git_says is not None:
        status = 128 if git_says else 0
        (tmp_path / "bin/git").write_text(f"#!/bin/sh\necho '# branch.oid {COMMIT}x'\nexit {status}\n")
        (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert str(identity_of(folder)) == "9.1.2"


def test_a_git_that_fails_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = package(tmp_path / "src")
    (tmp_path / ".git").mkdir()
    for status, text in ((0, "9.1.2+g0e435745"), (128, "9.1.2")):
        answer = subprocess.CompletedProcess([], status, f"# branch.oid {COMMIT}\n# branch.head (detached)\n", "")
        monkeypatch.setattr(module.subprocess, "run", lambda *words, answer=answer, **more: answer)
        assert str(identity_of(folder)) == text


def test_what_a_build_wrote_is_read(tmp_path: Path) -> None:
    folder = package(tmp_path)
    before = identity_of(folder)
    (folder / STAMP).write_text(json.dumps({"commit": COMMIT, "changed": True}))
    assert str(identity_of(folder)) == "9.1.2+g0e435745+changes"
    assert identity_of(folder).digest == before.digest
    (folder / STAMP).write_text("[1")
    assert identity_of(folder) == before


def touched(folder: Path) -> None:
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/a.cpython-312.pyc").write_bytes(b"1")
    (folder / "base/.data.toml.swp").write_text("of an editor")


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (touched, True),
        (lambda folder: (folder / "base/data.toml").write_text("a = 2\n"), False),
        (lambda folder: (folder / "base/data.toml").rename(folder / "base/date.toml"), False),
        (lambda folder: (folder / "base/empty.py").touch(), False),
        (lambda folder: (folder / "base/data.toml").rename(folder / "data.toml"), False),
    ],
)
def test_a_digest_is_of_names_and_contents(tmp_path: Path, change: Callable[[Path], Any], is_same: bool) -> None:
    before = digest_of(package(tmp_path / "1"))
    folder = package(tmp_path / "2")
    change(folder)
    assert len(before) == 12
    assert (digest_of(folder) == before) == is_same


def test_git_is_asked_once_and_only_for_an_identity() -> None:
    code = (
        "import subprocess, sys; calls = []; run = subprocess.run\n"
        "subprocess.run = lambda *words, **more: (calls.append(words), run(*words, **more))[1]\n"
        "import ordsmed.cli; from ordsmed.base.identity import identity\n"
        "before = len(calls); [identity() for _ in range(3)]; print(before, len(calls))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() in (["0", "1"], ["0", "0"])  # an installation that was built is not asked of git
    assert identity().version == ordsmed.__version__

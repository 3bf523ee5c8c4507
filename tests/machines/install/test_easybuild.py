"""Easyconfigs, read by EasyBuild itself: every dependency is in its collection, every file has a checksum."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ordsmed.machines.install import easybuild, make
from ordsmed.machines.install.plan import InstallWish, decide

LMOD = """#!/bin/bash
# an Lmod that holds no module
case " $* " in
    *" --version "*) echo "Modules based on Lua: Version 8.7.53 2024-10-01 00:00" >&2 ;;
    *) echo "_mlstatus = True" ;;
esac
"""
ROOT = ["--allow-use-as-root-and-accept-consequences"] if os.getuid() == 0 else []
MODULES = ["PyTorch/2.9.1-foss-2024a-CUDA-12.6.0", "PyTorch/2.9.1-foss-2025a-CUDA-12.8.0", "PyTorch/2.9.1-foss-2024a"]


@pytest.fixture
def eb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """EasyBuild's command, in a folder that has an easyconfig of each kind."""
    if not (command := shutil.which("eb") or os.environ.get("EASYBUILD", "")):
        pytest.skip("no EasyBuild: `pip install easybuild pycodestyle` elsewhere, and EASYBUILD=.../bin/eb")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lmod").write_text(LMOD)
    (tmp_path / "lmod").chmod(0o755)
    monkeypatch.setenv("LMOD_CMD", str(tmp_path / "lmod"))
    monkeypatch.setenv("PATH", f"{Path(command).parent}:{tmp_path}:{os.environ['PATH']}")
    for name in MODULES:
        work = decide(InstallWish("saga:a100", "easybuild", modules=(name,)))
        for file, text in make.WRITERS["easybuild"](work).items():
            if file.endswith(".eb"):
                Path(file).write_text(text)
    return command


def answer(eb: str, *words: str) -> str:
    start = [eb, *ROOT, "--modules-tool=Lmod", "--allow-modules-tool-mismatch"]
    done = subprocess.run([*start, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.replace("\n", "")


@pytest.mark.long
def test_easybuild_finds_all_that_an_easyconfig_names(eb: str) -> None:
    for number, file in enumerate(sorted(Path.cwd().glob("*.eb"))):
        name = easybuild.name(decide(InstallWish("saga:a100", "easybuild", modules=(sorted(MODULES)[number],))))
        listed = answer(eb, "--dry-run", "--robot", str(file))
        assert "(module: PyTorch/2." in listed
        assert "(module: nlpl-ordsmed/" in listed
        assert name.startswith("nlpl-ordsmed/")


@pytest.mark.long
def test_easybuild_accepts_style_and_checksums(eb: str) -> None:
    said = answer(eb, "--check-contrib", *map(str, sorted(Path.cwd().glob("*.eb"))))
    assert said.count("[PASS]") == 2 * len(MODULES), "style, then checksums"

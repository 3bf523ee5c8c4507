"""Identity of the running code beyond its version: its git commit and a digest of its files.

The commit of a checkout comes from git, that of a wheel from commit.json, which the build writes (hatch_build.py).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
STAMP = "commit.json"  # in a built package: {"commit": ..., "changed": ...}
PATIENCE = 10.0  # timeout of git in seconds
GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")  # set by hooks of other repositories


@dataclass(frozen=True)
class Identity:
    """Version, commit and digest. Installations with the same digest have the same code, whatever their versions."""

    version: str
    commit: str  # full hash; empty: unknown
    changed: bool  # whether files differ from the commit
    digest: str  # of the package's files

    def __str__(self) -> str:
        """Return for example 0.2.0+g0e435745+changes."""
        commit = f"+g{self.commit[:8]}" if self.commit else ""
        return f"{self.version}{commit}{'+changes' if self.changed else ''}"


@functools.cache
def identity() -> Identity:
    return identity_of(PACKAGE)


def identity_of(package: Path) -> Identity:
    """Return the identity of a folder with the package `ordsmed`, without importing it."""
    text = (package / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return Identity(version[1] if version else "", *commit_of(package), digest_of(package))


def commit_of(package: Path) -> tuple[str, bool]:
    """Return the commit and whether files differ from it; the commit is empty if unknown."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stamp = json.loads((package / STAMP).read_text(encoding="utf-8"))
        return str(stamp["commit"]), bool(stamp["changed"])
    root = package.parent.parent
    if not (root / ".git").exists():  # a repository of a parent folder is not ordsmed's
        return "", False
    words = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=all"]
    variables = {name: value for name, value in os.environ.items() if name not in GIT_VARIABLES}
    try:
        answer = subprocess.run(
            [*words, "--", "src", "pyproject.toml"],
            cwd=root,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", False
    lines = answer.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    known = answer.returncode == 0 and bool(re.fullmatch(r"[0-9a-f]{40,64}", commit))
    return (commit, any(not line.startswith("#") for line in lines)) if known else ("", False)


def digest_of(package: Path) -> str:
    """Return a 12-digit digest of all files of a package. A checkout and the wheel built from it have the same."""
    total = hashlib.sha256()
    for name in sorted(_names(package)):
        content = (package / name).read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        total.update(content)
    return total.hexdigest()[:12]


def _names(package: Path) -> Iterator[str]:
    for folder, inner, files in os.walk(package):
        inner[:] = [name for name in inner if name != "__pycache__" and not name.startswith(".")]
        names = (name for name in files if not name.endswith(".pyc") and not name.startswith("."))
        yield from (Path(folder, name).relative_to(package).as_posix() for name in names if name != STAMP)

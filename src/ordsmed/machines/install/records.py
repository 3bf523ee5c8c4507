"""Records of the installations below a prefix, and which of them is the default.

prefix/installed/0.3.0+g1a2b3c4d.json          a record, written at the end of install.sh
prefix/default -> ordsmed-0.3.0+g1a2b3c4d      the default installation: prefix/default/bin/ordsmed
prefix/installed/defaults.jsonl                history of defaults, with times and users
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ordsmed.base import files, screen, settings
from ordsmed.base.errors import DataError, RecipeError, nearest

FOLDER, DEFAULT, HISTORY = "installed", "default", "defaults.jsonl"


@dataclass(frozen=True)
class InstallRecord:
    identity: str
    "version and commit: 0.3.0+g1a2b3c4d"
    digest: str = ""
    "digest of the installed code"
    way: str = ""
    "method of the installation: venv, module, ..."
    site: str = ""
    "site for which it was installed"
    source: str = ""
    "checkout, wheel or requirement that was installed"
    when: str = ""
    "date and time of the installation"
    by: str = ""
    "user who installed it"
    host: str = ""
    "machine on which it was installed"
    python: str = ""
    "version of Python"
    torch: str = ""
    "version of PyTorch"
    target: str = ""
    "path of the folder or image, relative to the prefix"
    modulefile: str = ""
    "path of the modulefile, relative to the prefix"
    before: tuple[str, ...] = ()
    "shell commands to run before it is started: modules"
    start: tuple[str, ...] = ()
    "the command that starts it, as words"


@dataclass(frozen=True)
class Change:
    identity: str
    when: str
    by: str
    report: str  # report of the validation before the change
    back: bool = False  # a rollback


def read(prefix: Path) -> list[InstallRecord]:
    if not (prefix / FOLDER).is_dir():
        wanted = f"a folder in which `ordsmed install` installed software, with {FOLDER}/ in it"
        raise DataError(prefix, "has no records of installations", wanted)
    known = {field.name for field in fields(InstallRecord)}  # a newer version may write more fields
    tables = ((path, files.read_table(path)) for path in sorted((prefix / FOLDER).glob("*.json")))
    records = (
        settings.decode(InstallRecord, {key: value for key, value in table.items() if key in known}, str(path))
        for path, table in tables
    )
    return sorted(records, key=lambda record: record.when)


def choose(records: Sequence[InstallRecord], name: str) -> InstallRecord:
    """Return the record with an identity, or with a unique prefix of it such as 0.3.0."""
    names = {record.identity: record for record in records}
    fitting = [name] if name in names else [identity for identity in names if identity.startswith(name)]
    if len(fitting) == 1:
        return names[fitting[0]]
    if fitting:
        problem = f"found {name}, which fits {len(fitting)} installations"
        raise RecipeError("--default", problem, " or ".join(fitting))
    raise RecipeError("--default", f"found {name}", "", nearest(name, names))


def default_of(prefix: Path, records: Sequence[InstallRecord]) -> InstallRecord | None:
    """Return the record of the default installation; None if there is none, or if it has no record."""
    link = prefix / DEFAULT
    target = os.readlink(link) if link.is_symlink() else ""
    return next((record for record in records if target and record.target == target), None)


def history(prefix: Path) -> list[Change]:
    path = prefix / FOLDER / HISTORY
    rows = files.read_lines(path) if path.exists() else []
    known = {field.name for field in fields(Change)}
    return [settings.decode(Change, {k: v for k, v in row.items() if k in known}, str(path)) for row in rows]


def is_there(prefix: Path, record: InstallRecord) -> bool:
    return bool(record.target) and (prefix / record.target).exists()


def facts(prefix: Path) -> dict[str, Any]:
    records = read(prefix)
    default = default_of(prefix, records)
    rows = [{**asdict(record), "there": is_there(prefix, record)} for record in records]
    return {
        "prefix": str(prefix),
        "default": default.identity if default else None,
        "installations": rows,
        "history": [asdict(change) for change in history(prefix)],
    }


def lines(table: dict[str, Any]) -> list[str]:
    head = ["", "identity", "code", "installed", "by", "way", "Python", "torch", "from", ""]
    rows = [
        [
            "default" if row["identity"] == table["default"] else "",
            row["identity"],
            row["digest"],
            row["when"],
            row["by"],
            row["way"],
            row["python"],
            row["torch"],
            row["source"],
            "" if row["there"] else "gone",
        ]
        for row in table["installations"]
    ]
    text = screen.markdown(head, rows, padded=True)
    after = screen.command("install", "--default", "VERSION", "--prefix", table["prefix"])
    return text if table["default"] else [*text, *screen.command_lines("no default yet; choose one with", after)]

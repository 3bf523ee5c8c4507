"""Change the default installation of a prefix, after the new one passed its validation, or change it back.

lock -> is the code the installed code? -> `ordsmed validate --quick` of that installation -> one link
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError, RunError
from ordsmed.base.say import many
from ordsmed.machines.doctor.host import user
from ordsmed.machines.install import records
from ordsmed.machines.install.records import DEFAULT, FOLDER, HISTORY, Change, InstallRecord
from ordsmed.machines.install.shell import LOCK, PROFILE
from ordsmed.machines.suite.report import NAME, PAGE, RED

Show = Callable[[str], None]


def change(prefix: Path, name: str, show: Show) -> dict[str, Any]:
    with locked(prefix):
        known = records.read(prefix)
        chosen, before = records.choose(known, name), records.default_of(prefix, known)
        stays = f"the default is still {before.identity}" if before else "there is still no default"
        _check(prefix, chosen, stays)
        report = _validate(prefix, chosen, stays, show)
        _set_links(prefix, chosen)
        return _add_to_history(prefix, chosen, before, str(report.relative_to(prefix)), back=False)


def roll_back(prefix: Path) -> dict[str, Any]:
    """Restore the previous default.

    It was validated when it became the default, so only check that its code is unchanged.
    """
    with locked(prefix):
        known = records.read(prefix)
        before = records.default_of(prefix, known)
        past: list[Change] = []
        for step in records.history(prefix):
            past = past[:-1] if step.back else [*(p for p in past if p.identity != step.identity), step]
        if len(past) < 2:
            remedy = "`ordsmed install --default VERSION` sets any version"
            raise DataError(prefix, "has no earlier default", "", remedy)
        chosen = records.choose(known, past[-2].identity)
        _check(prefix, chosen, f"the default is still {before.identity if before else 'none'}")
        _set_links(prefix, chosen)
        return _add_to_history(prefix, chosen, before, past[-2].report, back=True)


@contextlib.contextmanager
def locked(prefix: Path) -> Iterator[None]:
    """Lock a prefix against other processes, including install.sh.

    If it is locked, raise an error that names the holder.
    """
    path = prefix / LOCK
    if not prefix.is_dir():
        raise DataError(prefix, "no such folder", "the --prefix of an installation")
    with contextlib.ExitStack() as stack:
        with files.survive_disk(path):
            file = stack.enter_context(path.open("a+", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                remedy = "wait until it has ended"
                raise RunError(prefix, f"is locked by {file.read().strip() or 'a process'}", "", remedy) from None
            file.truncate(0)
            file.write(f"{user()} on {platform.node()}, process {os.getpid()}, since {_now()}\n")
            file.flush()
        yield


def _check(prefix: Path, record: InstallRecord, stays: str) -> None:
    if not records.is_there(prefix, record):
        raise DataError(prefix / record.target, f"does not exist; {stays}", "", "install it again")
    done = subprocess.run(
        _command(record, "version", "--json"), env=_variables(), capture_output=True, text=True, check=False
    )
    if not record.digest:  # an old version that does not report its digest
        return
    try:
        digest = json.loads(done.stdout.splitlines()[-1])["digest"]  # loading a module may print a message first
    except (ValueError, KeyError, TypeError, IndexError):
        problem = f"does not start: {_last(done.stderr)}; {stays}"
        raise RunError(record.identity, problem, "", "install it again") from None
    if digest != record.digest:
        problem = f"its code is {digest}, which differs from the installed code; {stays}"
        raise DataError(record.identity, problem, record.digest, "install it again")


def _validate(prefix: Path, record: InstallRecord, stays: str, show: Show) -> Path:
    """Validate an installation and return the folder of the report. Raise an error if a case fails."""
    folder = prefix / FOLDER / record.identity / time.strftime("%Y%m%d-%H%M%S")
    site = ["--site", record.site] if record.site else []
    last = ""
    with subprocess.Popen(
        _command(record, "validate", "--quick", "--out", str(folder), *site),
        env=_variables(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
    ) as process:
        assert process.stdout
        for line in process.stdout:
            show(line.rstrip("\n"))
            last = line.strip() or last
    rows = files.read_table(folder / NAME)["items"] if (folder / NAME).exists() else []
    red = [row for row in rows if row["state"] in RED]
    if red:
        first = f"{red[0]['item']}, {red[0]['case']}: {red[0]['text']}"
        problem = f"{len(red)} of {many(len(rows), 'case')} of its validation failed ({first}); {stays}"
        raise RunError(record.identity, problem, "", f"see {folder / PAGE}")
    if process.returncode or not rows:
        problem = f"its validation ended with status {process.returncode}: {last[:300]}; {stays}"
        raise RunError(record.identity, problem, "", "install it again")
    return folder


def _command(record: InstallRecord, *words: str) -> list[str]:
    if not record.start:
        raise DataError(record.identity, "its record has no command to start it", "", "install it again")
    profile = [PROFILE] if record.before else []
    return ["bash", "-c", "\n".join([*profile, "set -e", *record.before, shlex.join([*record.start, *words])])]


def _variables() -> dict[str, str]:
    """Return `variables` without those of launchers, because the validation is a single process."""
    from ordsmed.machines.suite.items import LAUNCHER_VARIABLES

    return {name: value for name, value in variables().items() if not LAUNCHER_VARIABLES.match(name)}


def variables() -> dict[str, str]:
    """Return this process's environment without paths to other copies of ordsmed, which hide the installed one."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in paths if path and not Path(path, "ordsmed").exists()]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(kept), "PYTHONNOUSERSITE": "1"}


def _last(text: str) -> str:
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "no error message")


def _set_links(prefix: Path, record: InstallRecord) -> None:
    """Let the default links point to an installation. Each link is replaced atomically, after all new ones exist."""
    links = {prefix / DEFAULT: record.target}
    if record.modulefile:
        links[(prefix / record.modulefile).parent / DEFAULT] = Path(record.modulefile).name
    parts = {link: link.with_name(f".{link.name}.{os.getpid()}.part") for link in links}
    try:
        for link, target in links.items():
            with files.survive_disk(link):
                parts[link].symlink_to(target)
        for link, part in parts.items():
            with files.survive_disk(link):
                part.replace(link)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _add_to_history(
    prefix: Path, record: InstallRecord, before: InstallRecord | None, report: str, *, back: bool
) -> dict[str, Any]:
    step = Change(record.identity, _now(), user(), report, back)
    with (prefix / FOLDER / HISTORY).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(step)) + "\n")
    return {
        "prefix": str(prefix),
        "default": record.identity,
        "before": before.identity if before else None,
        "report": str(prefix / report),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")

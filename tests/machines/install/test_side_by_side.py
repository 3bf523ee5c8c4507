"""Installations side by side: records, the default and how it changes, whatever stands in its way."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import OrdsmedError
from ordsmed.cli import main
from ordsmed.machines.install import default, records
from ordsmed.machines.install.shell import LOCK

OLD, NEW, CHANGED = "0.2.0+g0e435745", "0.3.0+g1a2b3c4d", "0.3.0+g1a2b3c4d+changes"
ORDSMED = """#!/bin/bash
# an installation that knows its version, and whose validation goes as files beside it say
here=$(dirname "$0")
echo "$PYTHONPATH|$RANK|$*" >>"$here/calls"
case $1 in
    version) [ -e "$here/mute" ] && { echo "no interpreter" >&2; exit 1; }
        echo "a module says this"
        echo "{\\"package\\": \\"$(printf %0400d 7)\\", \\"digest\\": \\"$(cat "$here/digest")\\"}" ;;
    validate)
        [ -e "$here/crash" ] && { echo "ImportError: broken" >&2; exit 1; }
        mkdir -p "$4" && cp "$here/report.json" "$4/report.json" && echo "1 case" && ! [ -e "$here/red" ] ;;
esac
"""


def install(prefix: Path, identity: str, when: str = "2026-11-26 20:00:00", **facts: Any) -> Path:
    """As install.sh leaves it: a folder, a link to it, a record."""
    target = f"ordsmed-{identity}"
    binary = prefix / f".{target}.x1" / "bin"
    binary.mkdir(parents=True)
    (binary / "ordsmed").write_text(ORDSMED)
    (binary / "ordsmed").chmod(0o755)
    (binary / "digest").write_text(f"of {identity}")
    validated(binary, "ok")
    (prefix / target).symlink_to(f".{target}.x1")
    record = {
        "identity": identity,
        "digest": f"of {identity}",
        "way": "venv",
        "when": when,
        "by": "ida",
        "target": target,
        "start": [str(prefix / target / "bin/ordsmed")],
        "of_a_newer_one": 1,
    }
    (prefix / "installed").mkdir(exist_ok=True)
    (prefix / "installed" / f"{identity}.json").write_text(json.dumps({**record, **facts}))
    return binary


def validated(binary: Path, state: str) -> None:
    """How the validation of one goes."""
    items = [{"item": "masking", "case": "mlm", "state": state, "text": "rows sum to 1", "figures": {}}]
    (binary / "report.json").write_text(json.dumps({"items": [*items, {**items[0], "case": "causal", "state": "ok"}]}))
    if state == "error":
        (binary / "red").touch()


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    folder = tmp_path / "soft"
    folder.mkdir()
    install(folder, OLD)
    install(folder, NEW, "2026-11-26 21:00:00")
    return folder


def leads(prefix: Path) -> str:
    link = prefix / "default"
    return os.readlink(link) if link.is_symlink() else ""


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, list[str], list[str]]:
    status: Any = 0
    try:
        main(["install", *words])
    except SystemExit as end:
        status = end.code
    shown = capsys.readouterr()
    return status, shown.out.splitlines(), shown.err.splitlines()


def test_a_version_becomes_the_default_and_goes_back(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--prefix", str(prefix)]
    status, out, _ = said(capsys, "--list", *at)
    assert (status, out[-1]) == (0, f"    ordsmed install --default VERSION --prefix {prefix}")
    for version, identity in (("0.2", OLD), (NEW, NEW)):
        status, out, err = said(capsys, "--default", version, *at)
        assert (status, err) == (0, [])
        assert out[0] == "1 case"
        assert out[1].startswith(f"{prefix}/default is now {identity}")
        assert Path(out[2].removeprefix("validated: "), "report.json").is_file()
        assert leads(prefix) == f"ordsmed-{identity}"
    status, out, _ = said(capsys, "--list", *at)
    rows = [[cell.strip() for cell in line.split("|")] for line in out[2:]]
    assert [(row[1], row[2], row[5]) for row in rows] == [("", OLD, "ida"), ("default", NEW, "ida")]
    status, out, _ = said(capsys, "--rollback", *at, "--json")
    facts = json.loads(out[0])
    assert (facts["default"], facts["before"], leads(prefix)) == (OLD, NEW, f"ordsmed-{OLD}")
    status, _, err = said(capsys, "--rollback", *at)
    assert (status, len(err)) == (1, 1)
    assert "has no earlier default" in err[0]
    assert leads(prefix) == f"ordsmed-{OLD}"


def test_going_back_leads_to_what_was_the_default_before(prefix: Path) -> None:
    """Not to what was left by going back, and over what was chosen twice."""
    install(prefix, "0.4.0")
    for name in (OLD, NEW, NEW, "0.4.0"):
        default.change(prefix, name, print)
    assert [default.roll_back(prefix)["default"] for _ in range(2)] == [NEW, OLD]
    default.change(prefix, "0.4.0", print)
    assert default.roll_back(prefix)["default"] == OLD


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda binary: validated(binary, "error"),
            f"{NEW}: 1 of 2 cases of its validation failed (masking, mlm: rows sum to 1); the default is still {OLD}; ",
        ),
        (
            lambda binary: (binary / "crash").touch(),
            f"{NEW}: its validation ended with status 1: ImportError: broken; "
            f"the default is still {OLD}; install it again",
        ),
        (
            lambda binary: (binary / "red").touch(),
            f"{NEW}: its validation ended with status 1: 1 case; the default is still {OLD}; install it again",
        ),
        (
            lambda binary: (binary / "mute").touch(),
            f"{NEW}: does not start: no interpreter; the default is still {OLD}; install it again",
        ),
        (
            lambda binary: (binary / "digest").write_text("other"),
            f"{NEW}: its code is other, which differs from the installed code; "
            f"the default is still {OLD}; wanted of {NEW}; install it a",
        ),
        (
            lambda binary: binary.parent.parent.joinpath(f"ordsmed-{NEW}").unlink(),
            f"ordsmed-{NEW}: does not exist; the default is still {OLD}; install it again",
        ),
    ],
)
def test_one_that_is_bad_does_not_become_the_default(
    prefix: Path, spoil: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    default.change(prefix, OLD, print)
    spoil(prefix / f".ordsmed-{NEW}.x1/bin")
    capsys.readouterr()
    for words in (["--default", "0.3"], ["--default", NEW, "--json"]):
        status, out, err = said(capsys, *words, "--prefix", str(prefix))
        assert (status, len(err)) == (1, 1)
        assert message in err[0]
        assert "--json" not in words or out == []
    assert leads(prefix) == f"ordsmed-{OLD}"
    assert [change.identity for change in records.history(prefix)] == [OLD]


def test_going_back_wants_the_code_that_was_validated(prefix: Path) -> None:
    for name in (OLD, NEW):
        default.change(prefix, name, print)
    (prefix / f".ordsmed-{OLD}.x1/bin/digest").write_text("other")
    with pytest.raises(OrdsmedError, match=r"its code is other.*the default is still 0\.3\.0"):
        default.roll_back(prefix)
    assert leads(prefix) == f"ordsmed-{NEW}"


def test_the_default_of_the_modulefile_goes_with_it(prefix: Path) -> None:
    menu = prefix / "modulefiles/ordsmed"
    menu.mkdir(parents=True)
    identity = "0.4.0+gabcdef01"
    binary = install(
        prefix,
        identity,
        modulefile=f"modulefiles/ordsmed/{identity}.lua",
        start=["ordsmed"],
        before=[f"export PATH={prefix}/ordsmed-{identity}/bin:$PATH"],
    )
    default.change(prefix, "0.4", print)
    assert os.readlink(menu / "default") == f"{identity}.lua"
    assert "validate --quick" in (binary / "calls").read_text(), "it was started as users do"
    (prefix / f"ordsmed-{identity}/bin/ordsmed").rename(binary / "gone")
    with pytest.raises(OrdsmedError, match=r"does not start: .*ordsmed"):
        default.change(prefix, "0.4", print)


def test_two_admins_at_once(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (prefix / LOCK).open("w") as file:
        file.write("ida on login-1, process 7, since 2026-11-26 21:00:00\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_SH)
        status, _, err = said(capsys, "--default", NEW, "--prefix", str(prefix))
        assert (status, leads(prefix)) == (1, "")
        assert err == [
            f"ordsmed: {prefix}: is locked by ida on login-1, process 7, since 2026-11-26 21:00:00; "
            "wait until it has ended"
        ]
    assert said(capsys, "--default", NEW, "--prefix", str(prefix))[0] == 0
    assert f"process {os.getpid()}, since" in (prefix / LOCK).read_text()


def test_what_is_validated_is_not_this_code(prefix: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither paths to this checkout nor what a launcher set reach it; other paths do, which modules may have set."""
    (tmp_path / "of-a-module").mkdir()
    source = str(Path(default.__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", f"{source}:{tmp_path}/of-a-module")
    monkeypatch.setenv("RANK", "3")
    default.change(prefix, NEW, print)
    calls = (prefix / f".ordsmed-{NEW}.x1/bin/calls").read_text().splitlines()
    assert {line.rpartition("|")[0] for line in calls} == {f"{tmp_path}/of-a-module|"}


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--list"], 2, "install: --list without --prefix; wanted `ordsmed install --list --prefix FOLDER`"),
        (["--list", "--prefix", "soft", "--site", "saga"], 2, "install: --site with --list; wanted one of them"),
        (["--default", "0.3", "--rollback", "--prefix", "soft"], 2, "--rollback: not allowed with argument --default"),
        (["--default", "0.9", "--prefix", "soft"], 1, f"--default: found 0.9; there are: {OLD}, {NEW}, {CHANGED}"),
        (
            ["--default", "0.3", "--prefix", "soft"],
            1,
            f"found 0.3, which fits 2 installations; wanted {NEW} or {CHANGED}",
        ),
        (["--default", "0.3", "--prefix", "none"], 1, "none: no such folder; wanted the --prefix of an installation"),
        (["--rollback", "--prefix", "soft"], 1, "soft: has no earlier default"),
        (["--list", "--prefix", "empty"], 1, "empty: has no records of installations; wanted a folder in which"),
    ],
)
def test_words_that_cannot_be(
    prefix: Path,
    words: list[str],
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(prefix.parent)
    (prefix.parent / "empty").mkdir()
    install(prefix, CHANGED, "2026-11-26 22:00:00")
    ended, _, err = said(capsys, *words)
    assert (ended, len(err)) == (status, 1)
    assert message in err[0].replace(f"{prefix.parent}/", "")
    assert leads(prefix) == ""


def test_a_changed_one_is_found_by_its_whole_name(prefix: Path) -> None:
    install(prefix, CHANGED)
    known = records.read(prefix)
    assert records.choose(known, NEW).identity == NEW
    assert records.choose(known, CHANGED).identity == CHANGED
    install(prefix, "0.1.0", "2026-11-27 00:00:00")
    assert records.read(prefix)[-1].identity == "0.1.0", "in the order of their days"


def test_a_folder_in_the_way_of_the_link(prefix: Path) -> None:
    (prefix / "default").mkdir()
    with pytest.raises(OrdsmedError, match="default: cannot write: "):
        default.change(prefix, NEW, print)
    assert not [path for path in prefix.iterdir() if path.name.endswith(".part")]


def test_what_is_gone_is_told(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (prefix / f"ordsmed-{OLD}").unlink()
    _, out, _ = said(capsys, "--list", "--prefix", str(prefix))
    assert [line.split("|")[-2].strip() for line in out[2:4]] == ["gone", ""]
    _, out, _ = said(capsys, "--list", "--prefix", str(prefix), "--json")
    assert [(row["identity"], row["there"]) for row in json.loads(out[0])["installations"]] == [
        (OLD, False),
        (NEW, True),
    ]

"""Files: whole or absent, and a full disk is one line."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import ordsmed
from ordsmed.base import files, run
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError, nearest


def test_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"ø": [1, None]})
    assert path.read_text("utf-8") == '{\n "ø": [\n  1,\n  null\n ]\n}\n'
    files.write_text(path, "[3]")
    assert files.read_json(path) == [3]
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_could_not_be_written_leaves_what_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def full(handle: int) -> None:
        assert len(list(tmp_path.iterdir())) == 2
        raise error

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(files.os, "fsync", full)
    wanted = RunError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted), files.writing(tmp_path / "a") as file:
        file.write(b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"old")]


@pytest.mark.parametrize("text", ["", '{"a": 1', "\x00"])
def test_damaged_json_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json: not JSON: .*; the file is damaged"):
        files.read_json(tmp_path / "a.json")
    with pytest.raises(DataError, match="no such file"):
        files.read_json(tmp_path / "b.json")
    (tmp_path / "c.json").write_bytes(b'"\xff"')
    with pytest.raises(DataError, match="not JSON"):
        files.read_json(tmp_path / "c.json")


HALF, ENDLESS = r"half a surrogate pair, \\ud83d", "a number of 400 digits"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (r'{"a": "\ud83d"}', HALF),
        (r'[{"\uD83d x": 1}]', HALF),
        (f"[{'9' * 400}]", ENDLESS),
        (f"[-{10**400}]", "digits"),
        (f"[{10**300}]", "a number of 301 digits"),
    ],
)
def test_what_no_one_can_write_or_count_with_is_no_json(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=rf"a\.json: not JSON: .*{told}.*; the file is damaged"):
        files.read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(f"[{10**300 - 1}]")
    assert files.read_json(tmp_path / "a.json") == [10**300 - 1]


def test_whole_characters_and_long_numbers_are_json(tmp_path: Path) -> None:
    """Both halves of a pair, a backslash before `u`, digits in a text, as many as a float takes."""
    value = ["\U0001f600", "\\ud83d", "9" * 400, 10**299, 0.5]
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert files.read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb\r\n", ["a", "", "b"]),
        (b"a\n\n", ["a", ""]),
        ("a\u2028b\x85c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf"]),
    ],
)
def test_lines_end_where_a_file_s_lines_do(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "a").write_bytes(data)
    assert files.split_lines(tmp_path / "a") == lines


def test_tables_may_hold_any_sign_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": "b\u2028c"}\n{"a": "\x85"}\n', "utf-8")
    assert files.read_lines(tmp_path / "a.jsonl") == [{"a": "b\u2028c"}, {"a": "\x85"}]


@pytest.mark.parametrize("damage", ['{"a": 1', r'{"a": "\udc00"}', "\x00\x00"])
def test_lines_behind_a_damaged_one_are_not_lost_in_silence(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"b": 2}\n' + damage)
    assert files.read_lines(path) == [{"b": 2}]
    assert capsys.readouterr().err == ""
    path.write_text('{"b": 2}\n' + damage + '\n{"b": 3}\n{"b": 4}\n')
    assert files.read_lines(path) == [{"b": 2}]
    told = capsys.readouterr().err
    assert f"{path}: line 2 is damaged (" in told
    assert "it and 2 lines after it are ignored" in told


def test_what_libraries_say_of_a_disk_is_said_in_a_line(tmp_path: Path) -> None:
    """Those in Rust raise errors of their own, with the system's number; others are faults, and stay."""
    for number, remedy in ((errno.ENOSPC, "GB free; free some space"), (errno.EROFS, "name another folder")):
        said = os.strerror(number)
        wanted = f"{tmp_path}: cannot write: {said}.*{remedy}"
        with pytest.raises(RunError, match=wanted), files.survive_disk(tmp_path):
            raise Exception(f"{said} (os error {number})")
    for fault in (ValueError("os error"), DataError("a", "b (os error 28)")):
        with pytest.raises(type(fault), match="os error"), files.survive_disk(tmp_path):
            raise fault


FULL = """
import resource, signal, sys
from pathlib import Path
from ordsmed.base import files
from ordsmed.base.errors import RunError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write_text(Path(sys.argv[1]), "new" * 100_000)
except RunError as error:
    print(error)
"""


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}: cannot write: File too large; check `ulimit -f` and the file system, then resume\n"
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write: "):
        files.write_text(tmp_path / ("x" * 300), "text")


def test_a_device_that_is_full_is_told_and_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "full"
    device.symlink_to("/dev/full")
    with pytest.raises(RunError, match="full: cannot write: "):
        files.write_text(device, "text")
    assert device.is_char_device()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_an_output_by_its_name_is_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        files.write_text(Path(f"/dev/fd/{file.fileno()}"), "text")
        assert (tmp_path / "out").read_text() == "text"


def test_a_process_killed_while_writing_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    deadly = "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
    code = FULL.replace("signal.signal(signal.SIGXFSZ, signal.SIG_IGN)", deadly)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert path.read_text() == "old"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write: No such file or directory"):
        files.write_text(tmp_path / "no" / "a.txt", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=r"cannot write: Is a directory"):
        files.write_text(tmp_path / "folder", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.survive_disk(tmp_path):
        _ = 1 / 0
    with pytest.raises(RunError, match="free"), files.survive_disk(tmp_path):
        raise OSError(28, os.strerror(28))


def test_a_reader_that_went_away_is_no_complaint() -> None:
    with pytest.raises(BrokenPipeError), files.errors_in_one_line():
        raise BrokenPipeError
    with pytest.raises(RunError, match=r"^disk: Input/output error; check"), files.errors_in_one_line():
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_names_that_are_too_long_are_refused_in_a_line() -> None:
    for entry in (ordsmed.pretrain, ordsmed.finetune):
        with pytest.raises(RunError, match=r"^x{300}: File name too long; use a shorter name$"):
            entry("x" * 300)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.ENOSPC,
            r"cannot write: No space left on device, [\d.]+ GB free; free some space or name another folder",
        ),
        (errno.EDQUOT, r"cannot write: Disk quota exceeded, [\d.]+ GB free; free some of your quota"),
        (errno.EROFS, "cannot write: Read-only file system; name another folder to write to$"),
        (errno.EACCES, "cannot write: Permission denied; name another folder to write to, or ask its owner$"),
        (errno.EPERM, "cannot write: Operation not permitted; name another folder to write to, or ask its owner$"),
        (errno.ENAMETOOLONG, "cannot write: File name too long; use a shorter name$"),
        (errno.EMFILE, "cannot write: Too many open files; raise `ulimit -n`"),
        (errno.EFBIG, "cannot write: File too large; check `ulimit -f`"),
        (errno.EIO, "cannot write: Input/output error; check this path and its disk"),
    ],
)
def test_what_was_refused_is_told_with_what_helps(tmp_path: Path, number: int, said: str) -> None:
    for place in (tmp_path, tmp_path / "a"):
        with pytest.raises(RunError, match=f"^{place}: {said}"), files.survive_disk(place):
            raise OSError(number, os.strerror(number))


def test_a_folder_that_may_only_be_read_is_no_full_disk(tmp_path: Path, read_only: Callable[..., None]) -> None:
    read_only(tmp_path)
    for write in (
        lambda: files.write_text(tmp_path / "a", "x"),
        lambda: files.making(tmp_path / "b").__enter__(),
        lambda: run.locked(tmp_path / "c"),
    ):
        with pytest.raises(RunError, match=r"cannot write: Read-only file system; name another folder to write to$"):
            write()


@pytest.mark.parametrize("place", ["write", "replace"])
def test_what_interrupts_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    files.write_text(tmp_path / "a", "old")
    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync") if place == "write" else (Path, "replace")), stopped)
        with pytest.raises(KeyboardInterrupt):
            files.write_text(tmp_path / "a", "new")
    with pytest.raises(KeyboardInterrupt), files.making(tmp_path / "b") as beside:
        stopped((beside / "half").write_text("x"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_what_is_renamed_stands_on_the_disk_before(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    """A power cut between the two must not leave a name without its contents."""
    files.write_text(tmp_path / "a", "text")
    with files.making(tmp_path / "b") as beside:
        (beside / "inner").write_text("x")
    assert [(what, Path(path).name.removeprefix(".")[:1]) for what, path in synced[:-1]] == [
        ("sync", "a"),
        ("rename", "a"),
        ("rename", "b"),
    ]
    assert synced[-1] == ("sync", str(tmp_path))


def test_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content := os.urandom((1 << 22) + 17))
    assert files.checksum(path) == f"{zlib.crc32(content):08x}"
    path.write_bytes(content[:-1])
    assert files.checksum(path) != f"{zlib.crc32(content):08x}"
    path.write_bytes(b"123456789")
    assert files.checksum(path) == "cbf43926"  # the check value of CRC-32
    files.sync(path)
    files.sync(tmp_path)


def test_what_an_error_says() -> None:
    assert str(RecipeError("a", "b")) == "a: b"
    assert str(RecipeError("a", "b", "c", "d")) == "a: b; wanted c; d"
    error = DataError(Path("x"), "found", "", "remedy")
    assert str(error) == "x: found; remedy"
    kind, arguments = error.__reduce__()
    again = kind(*arguments)
    assert (type(again), str(again)) == (DataError, str(error))
    assert isinstance(error, OrdsmedError)


def test_nearest() -> None:
    assert nearest("lenght", ["steps", "length", "batch"]) == "did you mean `length`?"
    assert nearest("zzz", ["b", "a"]) == "there are: a, b"


def test_more_files_may_be_open_than_a_system_begins_with() -> None:
    """As many as are asked for and some more, up to what the system allows; never fewer than before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        for count, wanted in (
            (1_000, 1_000 + files.OTHER_OPEN_FILES),
            (10, 1_000 + files.OTHER_OPEN_FILES),
            (10**9, hard),
        ):
            files.allow_open(count)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_limits_are_not_left_behind() -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize("name", [".", "", "..", "../inner/..", "../inner"])
def test_a_folder_is_made_beside_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """`.` and `..` have none that something could be put beside."""
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert files.with_name(Path(name)).resolve() == Path(name).resolve()
    assert files.with_name(Path(name)).name in ("inner", tmp_path.name)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("/some/where", "/some/where"), ("some/where", "~/.cache"), ("", "~/.cache"), (None, "~/.cache")],
)
def test_the_cache_of_a_user_is_where_the_standard_says(
    monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: str
) -> None:
    """A path that is not whole counts for nothing."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert files.user_cache() == Path(wanted).expanduser() / "ordsmed"


def test_nothing_is_left_of_what_was_refused(tmp_path: Path) -> None:
    """Folders around it that were made for it go with it; what was there, or is not empty, stays."""
    with pytest.raises(ValueError, match="no"), files.making(tmp_path / "a" / "b" / "c"):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="no"), files.making(tmp_path / "a" / "b" / "c"):
        raise ValueError("no")
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


def test_what_is_replaced_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under the first free name; nothing is deleted."""
    folder, file = tmp_path / "a", tmp_path / "b.txt"
    for text in ("1", "2", "3"):
        with files.making(folder, keep=True) as part:
            (part / "x").write_text(text)
        with files.writing(file, keep=True) as out:
            out.write(text.encode())
    assert [(tmp_path / name / "x").read_text() for name in ("a.old-1", "a.old-2", "a")] == ["1", "2", "3"]
    assert [(tmp_path / name).read_text() for name in ("b.txt.old-1", "b.txt.old-2", "b.txt")] == ["1", "2", "3"]
    assert f"{folder}: moved the old one to {folder}.old-2" in capsys.readouterr().err.splitlines()
    (tmp_path / "empty").mkdir()
    with files.making(tmp_path / "empty", keep=True) as part:
        (part / "x").touch()
    assert not (tmp_path / "empty.old-1").exists()


def test_an_entry_stays_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "a/steps").mkdir(parents=True)
    (tmp_path / "a/other").touch()
    files.set_aside(tmp_path / "a", stay="steps")
    assert ([p.name for p in (tmp_path / "a").iterdir()], [p.name for p in (tmp_path / "a.old-1").iterdir()]) == (
        ["steps"],
        ["other"],
    )

"""Folders of deeds: made once, by one process, reused while the recipe fits, never overwritten unasked."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import filelock
import pytest
import torch

from kit.clocks import set_time
from kit.processes import PATIENT
from ordsmed.base import run, settings
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run, obtain
from ordsmed.base.say import say

# a module of its own, so that other processes can import the same deed
DEED = '''
import os, time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from ordsmed.base.say import say

@dataclass(frozen=True)
class Deed:
    """Writes a text, and how often it was performed."""
    verb: ClassVar[str] = "deed"
    text: str
    wait: float = 0.0
    out: str | None = None

    def __post_init__(self):
        if not self.text:
            raise ValueError("text: found nothing; wanted some")

    def stamp(self):
        return Path("input").read_text() if Path("input").exists() else None

    def perform(self, run):
        with open("performed", "a") as file:
            file.write(f"{os.getpid()}\\n")
        say(f"writing {self.text}")
        time.sleep(self.wait)
        while self.text == "slow" and not Path("go").exists():
            time.sleep(0.01)
        if self.text == "crash":
            os._exit(9)
        if self.text == "fail":
            raise OSError("no luck")
        (run.path / "text").write_text(self.text)
        return {"length": len(self.text)}

@dataclass(frozen=True)
class Another(Deed):
    """A deed of another verb with the same settings."""
    verb: ClassVar[str] = "another"
'''


@pytest.fixture
def deeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A folder to work in with a recipe in it, and the module of deeds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("deeds_of_tests.py").write_text(DEED)
    Path("a.toml").write_text('text = "hello"\n')
    import deeds_of_tests

    yield deeds_of_tests
    del sys.modules["deeds_of_tests"]


def performed() -> int:
    return len(Path("performed").read_text().splitlines()) if Path("performed").exists() else 0


def another_process(name: str, *overrides: str, err: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    code = (
        f"from deeds_of_tests import Deed; from ordsmed.base.run import obtain; obtain(Deed, {name!r}, {overrides!r})"
    )
    path = os.pathsep.join([os.getcwd(), str(Path(run.__file__).parents[2])])
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, stderr=err, text=True)


def test_made_once_and_reused(deeds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    assert folder == Path("work/deed/a")
    assert (folder / "text").read_text() == "hello"
    assert (folder / "log.txt").read_text() == "writing hello\n"
    assert settings.decode(deeds.Deed, settings.read(folder / "recipe.toml"), "x") == deeds.Deed("hello")
    assert {"python", "torch", "command", "host"} <= json.loads((folder / "environment.json").read_text()).keys()
    status = Run(folder).status
    assert (status["verb"], status["state"], status["length"]) == ("deed", "done", 5)
    before = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    assert obtain(deeds.Deed, "a.toml") == obtain(deeds.Deed, str(folder)) == folder
    assert performed() == 1
    assert {p: p.stat().st_mtime_ns for p in folder.iterdir()} == before
    capsys.readouterr()


def test_a_finished_folder_that_may_only_be_read_is_reused(
    deeds: Any, tmp_path: Path, read_only: Callable[..., None]
) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    Path("work/deed/.a.lock").unlink()
    read_only(tmp_path / "work")
    run._announced.clear()
    assert obtain(deeds.Deed, "a.toml") == folder
    assert performed() == 1
    for refused in (["text=hallo"], ["out=work/deed/b"]):
        with pytest.raises(OrdsmedError):
            obtain(deeds.Deed, "a.toml", refused)
    with pytest.raises(RunError, match=r"^work/deed/b: cannot write: Read-only file system; name another folder"):
        obtain(deeds.Deed, "a.toml", ["out=work/deed/b"])
    with pytest.raises(RunError, match=r"^work/deed/a: cannot write: Read-only file system; name another folder"):
        obtain(deeds.Deed, "a.toml", anew=True)
    assert (folder / "text").read_text() == "hello"
    assert performed() == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="modes do not bind root")
def test_a_folder_of_others_is_reused_and_not_written_to(deeds: Any, tmp_path: Path) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    Path("work/deed/.a.lock").unlink()
    folder.parent.chmod(0o555)
    try:
        assert obtain(deeds.Deed, "a.toml") == folder
        with pytest.raises(RunError, match="Permission denied"):
            obtain(deeds.Deed, "a.toml", anew=True)
        assert (folder / "text").read_text() == "hello"
    finally:
        folder.parent.chmod(0o755)


def test_where_the_folder_is_does_not_count_but_all_else_does(deeds: Any) -> None:
    mark = run.fingerprint(deeds.Deed("hello"))
    assert mark == run.fingerprint(deeds.Deed("hello", out="elsewhere"))
    assert mark != run.fingerprint(deeds.Deed("hallo"))
    assert mark != run.fingerprint(deeds.Another("hello"))
    Path("input").write_text("new")
    assert mark != run.fingerprint(deeds.Deed("hello"))


def test_another_recipe_is_refused_and_anew_makes_it(deeds: Any) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    with pytest.raises(RecipeError, match=r"was made from another recipe; .*--anew"):
        obtain(deeds.Deed, "a.toml", ["text=other"])
    assert (folder / "text").read_text() == "hello"
    (folder / "left-over").touch()
    assert obtain(deeds.Deed, "a.toml", ["text=other"], anew=True) == folder
    assert (folder / "text").read_text() == "other"
    assert not (folder / "left-over").exists()
    before = folder.with_name(f"{folder.name}.old-1")
    assert ((before / "text").read_text(), (before / "left-over").exists()) == ("hello", True), "set aside, not deleted"
    obtain(deeds.Deed, "a.toml", ["text=other"], anew=True)
    obtain(deeds.Deed, str(folder), anew=True)
    assert performed() == 4


def test_other_inputs_are_refused(deeds: Any) -> None:
    obtain(deeds.Deed, "a.toml")
    Path("input").write_text("changed")
    with pytest.raises(RecipeError, match="inputs have changed"):
        obtain(deeds.Deed, "a.toml")


def test_overrides_of_a_folder_are_refused(deeds: Any) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    with pytest.raises(RecipeError, match=r"is a folder, but text=x is given"):
        obtain(deeds.Deed, str(folder), ["text=x"])


def test_out_says_where(deeds: Any) -> None:
    assert obtain(deeds.Deed, "a.toml", ["out=deep/er/b"]) == Path("deep/er/b")
    assert (Path("deep/er/b") / "text").read_text() == "hello"


def test_a_folder_of_another_verb_is_refused(deeds: Any) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    for name, overrides in ((str(folder), []), ("a.toml", [f"out={folder}"])):
        for anew in (False, True):
            with pytest.raises(RecipeError, match="is the folder of a `deed`; wanted that of a `another`"):
                obtain(deeds.Another, name, overrides, anew=anew)
    assert (folder / "text").read_text() == "hello"


def test_what_crashed_is_done_again(deeds: Any) -> None:
    process = another_process("a.toml", "text=crash")
    process.communicate(timeout=PATIENT)
    assert process.returncode == 9
    folder = Path("work/deed/a")
    assert Run(folder).status["state"] == "running"
    assert not (folder / "text").exists()
    status = Run(folder).status
    (folder / "status.json").write_text(json.dumps({**status, "fingerprint": run.fingerprint(deeds.Deed("hello"))}))
    assert obtain(deeds.Deed, "a.toml") == folder
    assert (Run(folder).status["state"], (folder / "text").read_text(), performed()) == ("done", "hello", 2)


def test_what_failed_is_done_again_by_the_folder_too(deeds: Any) -> None:
    with pytest.raises(OSError, match="no luck"):
        obtain(deeds.Deed, "a.toml", ["text=fail"])
    folder = Path("work/deed/a")
    assert (Run(folder).status["state"], Run(folder).status["why"]) == ("failed", "no luck")
    with pytest.raises(OSError, match="no luck"):
        obtain(deeds.Deed, str(folder))
    assert performed() == 2


@pytest.mark.long
def test_two_processes_at_once(deeds: Any) -> None:
    """One makes it, the others wait for it and find it done."""
    with Path("said").open("a") as said:
        processes = [another_process("a.toml", "text=slow", err=said) for _ in range(3)]
    while Path("said").read_text().count("waiting for another process that works on it") < 2:
        assert all(process.poll() is None for process in processes), Path("said").read_text()
        time.sleep(0.01)
    Path("go").touch()
    assert [process.wait(PATIENT) for process in processes] == [0, 0, 0]
    assert performed() == 1
    assert Path("said").read_text().count("writing slow") == 1
    assert (Path("work/deed/a") / "text").read_text() == "slow"


def variables(rank: str) -> dict[str, str]:
    """Those of the first or second process of one command, of another command's, or of one alone."""
    port = "29501" if rank == "other" else "29500"
    return {} if rank == "alone" else {"RANK": rank.replace("other", "0"), "WORLD_SIZE": "2", "MASTER_PORT": port}


@pytest.mark.parametrize(
    ("holder", "waiter", "is_told"),
    [
        ("1", "0", False),
        ("0", "1", False),
        ("other", "0", True),
        ("alone", "0", True),
        ("other", "1", False),
        ("0", "alone", True),
        ("alone", "alone", True),
    ],
)
def test_processes_of_one_command_are_no_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    holder: str,
    waiter: str,
    is_told: bool,
) -> None:
    """Who waits for a process that was started with it says nothing; of another command the first one says it."""
    monkeypatch.setattr(run, "LOCK_PATIENCE", 0.01)
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    note, environment = tmp_path / ".a.holder", dict(os.environ)
    note.write_text(run._started_together(variables("1"))[0])  # of one that was killed
    holds, waits, acquire = threading.Event(), threading.Event(), filelock.FileLock.acquire

    def acquired(lock: Any, timeout: float | None = None) -> Any:
        if timeout is None and threading.current_thread() is threading.main_thread():
            waits.set()
        return acquire(lock, timeout)

    monkeypatch.setattr(filelock.FileLock, "acquire", acquired)

    def other() -> None:
        held = filelock.FileLock(tmp_path / ".a.lock", thread_local=False)  # not the one that this process would share
        held.acquire()
        with run._lock_stack(held, note, run._started_together(variables(holder))[0]):
            holds.set()
            waits.wait(PATIENT)

    thread = threading.Thread(target=other)
    thread.start()
    assert holds.wait(PATIENT)
    assert note.exists() == (holder != "alone")
    monkeypatch.setattr(os, "environ", environment | variables(waiter))
    with run.locked(tmp_path / "a"):
        assert note.exists() == (waiter != "alone")
    assert ("waiting for another process that works on it" in capsys.readouterr().err) == is_told
    thread.join()
    assert not note.exists()


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the ranks of one command do, one after the other, each with nothing known but what it is told."""
    told: list[str] = []

    def first_alone(ranks: Ranks, act: Callable[[], Any]) -> Any:
        if ranks.first:
            told[:] = [json.dumps(act())]
        return json.loads(told[0])

    def work(rank: int, act: Callable[[], Any]) -> Any:
        monkeypatch.setattr(run, "_checked_fingerprints", {})
        return run.rank0_first(Ranks(torch.device("cpu"), rank, 3, store=Any), act)

    monkeypatch.setattr(run, "on_rank0", first_alone)
    return work


def locks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are locked from now on."""
    seen, locked = list[Path](), run.locked

    def counted(folder: Path, **how: Any) -> Any:
        seen.append(folder)
        return locked(folder, **how)

    monkeypatch.setattr(run, "locked", counted)
    return seen


def test_the_first_rank_makes_and_locks_for_all(
    deeds: Any, together: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = locks(monkeypatch)
    found = [together(rank, lambda: obtain(deeds.Deed, "a.toml")) for rank in range(3)]
    assert found == [Path("work/deed/a")] * 3
    assert seen == [Path("work/deed/a")]
    obtain(deeds.Deed, "a.toml")
    assert len(seen) == 2, "what follows is looked at by each rank itself"
    assert len(Path("performed").read_text().splitlines()) == 1


@pytest.mark.parametrize("what", ["is gone", "is another", "is being made"])
def test_a_folder_that_changed_since_the_first_looked_is_locked_as_ever(
    deeds: Any, together: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    together(0, lambda: obtain(deeds.Deed, "a.toml"))
    folder = Run(Path("work/deed/a"))
    if what == "is gone":
        shutil.rmtree(folder.path)
    elif what == "is another":
        Path("input").write_text("changed")
        obtain(deeds.Deed, "a.toml", anew=True)
    else:
        folder.set(state="running")
    before, seen = len(Path("performed").read_text().splitlines()), locks(monkeypatch)
    assert together(1, lambda: obtain(deeds.Deed, "a.toml")) == folder.path
    assert seen == [folder.path]
    assert len(Path("performed").read_text().splitlines()) - before == (what != "is another")


def test_ranks_that_did_not_meet_each_look_for_themselves(deeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, alone = locks(monkeypatch), Ranks(torch.device("cpu"))
    assert run.rank0_first(alone, lambda: obtain(deeds.Deed, "a.toml")) == Path("work/deed/a")
    assert len(seen) == 1


def test_a_deed_within_a_deed_writes_its_own_log(deeds: Any) -> None:
    @dataclass(frozen=True)
    class Outer:
        """Needs the other."""

        verb: ClassVar[str] = "outer"
        inner: str
        out: str | None = None

        def stamp(self) -> Any:
            return None

        def perform(self, run: Run) -> dict[str, Any]:
            obtain(deeds.Deed, self.inner)
            say("outer again")
            return {}

    Path("o.toml").write_text('inner = "a.toml"\n')
    outer = obtain(Outer, "o.toml")
    assert (outer / "log.txt").read_text() == "outer again\n"
    assert Path("work/deed/a/log.txt").read_text() == "writing hello\n"


def test_a_damaged_status_is_told(deeds: Any) -> None:
    folder = obtain(deeds.Deed, "a.toml")
    (folder / "status.json").write_text('{"verb": "de')
    with pytest.raises(DataError, match=r"status\.json: not JSON: "):
        obtain(deeds.Deed, "a.toml")
    (folder / "status.json").unlink()
    (folder / "recipe.toml").unlink()
    with pytest.raises(DataError, match=r"has no recipe\.toml"):
        run.read_recipe(deeds.Deed, folder)


def test_names_of_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.find_recipe("bert-base", "pretrain") == run.find_recipe("pretrain/bert-base", "")
    assert "bert-base" in run.recipe_names("pretrain")
    assert {"tiny/bert", "pretrain/bert-base"} <= set(run.recipe_names())
    Path("my_lab").mkdir()
    Path("my_lab/two.toml").touch()
    for name, verb, said in (
        ("bert-bas", "pretrain", "`bert-bas`: no recipe of `pretrain` and no file; did you mean `bert-base`?"),
        ("tiny/bret", "pretrain", "`tiny/bret`: no recipe of `pretrain` and no file; did you mean `tiny/bert`?"),
        ("my_lab/two", "pretrain", "`my_lab/two`: no such file; did you mean `my_lab/two.toml`?"),
        ("gpt2-124M", "", "`gpt2-124M`: no built-in recipe and no file; did you mean `pretrain/gpt2-124M`?"),
        (
            "a/b.toml",
            "pretrain",
            "a/b.toml: no such file; wanted a recipe or the folder of a finished `ordsmed pretrain`",
        ),
        (
            ".",
            "encode",
            ".: is not a folder of a finished `ordsmed` command; "
            "wanted a recipe or the folder of a finished `ordsmed encode`; "
            "`ordsmed make . OUT` makes a model from texts",
        ),
    ):
        with pytest.raises(RecipeError) as error:
            run.find_recipe(name, verb)
        assert str(error.value) == said
    with pytest.raises(
        RecipeError, match=r"^work/pretrain/tiny-bert: no such folder; .*; change to where it was made, or"
    ):
        run.find_recipe("work/pretrain/tiny-bert", "")


def test_titles_of_recipes(deeds: Any, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.toml").write_text('text = "x"\n')
    for name in ("deep/b.toml", str(tmp_path / "deep" / "b.toml")):
        assert run.load(deeds.Deed, name)[1] == "b"
    from ordsmed.train.pretrain.recipe import Pretraining

    assert run.load(Pretraining, "tiny/bert")[1] == "tiny-bert"
    shipped = str(run.find_recipe("tiny/bert", ""))
    assert run.load(Pretraining, shipped)[1] == "bert"


def test_a_place_that_cannot_be_written(deeds: Any) -> None:
    Path("file").touch()
    with pytest.raises(Exception, match="cannot write") as error:
        obtain(deeds.Deed, "a.toml", ["out=file/under/it"])
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file can be made in /proc")
def test_a_place_without_locks_is_refused_and_not_waited_for() -> None:
    """`filelock` takes what /proc says for a file that was just removed, and tries again for ever."""
    with pytest.raises(
        RunError, match=r"/proc/deed: (no lock can be made next to it: .*; wanted|cannot write: ).*; name"
    ):
        run.locked(Path("/proc/deed"))


def test_a_disk_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def waits(*_: object, **__: object) -> None:
        raise filelock.Timeout("a")

    monkeypatch.setattr(fcntl, "flock", lacks)
    monkeypatch.setattr(filelock.FileLock, "acquire", waits)
    with pytest.raises(
        RunError, match="a: no lock can be made next to it: No locks available; wanted a folder on a disk"
    ):
        run.locked(tmp_path / "a")


@pytest.mark.parametrize("left", [False, True])
def test_no_empty_folder_is_left_of_what_was_refused_under_a_lock(tmp_path: Path, left: bool) -> None:
    folder = tmp_path / "work" / "verb" / "a"

    def refused() -> None:
        with run.locked(folder):
            folder.mkdir()
            if left:
                (folder / "status.json").touch()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        refused()
    kept = ["work", "work/verb", "work/verb/.a.lock", "work/verb/a", "work/verb/a/status.json"]
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == (kept if left else [])
    with run.locked(folder):
        folder.mkdir(exist_ok=True)
    assert folder.is_dir(), "of what was not refused everything stays"


def test_waiting_is_not_deaf(deeds: Any) -> None:
    """The lock is free again when its holder is killed."""
    process = another_process("a.toml", "wait=60")
    while not performed():
        time.sleep(0.02)
    process.kill()
    process.communicate()
    obtain(deeds.Deed, "a.toml")  # of another recipe, but not finished: nobody waits for what it holds
    assert performed() == 2
    with pytest.raises(RecipeError, match="--anew"):
        obtain(deeds.Deed, "a.toml", ["wait=0.001"])


def test_a_recipe_laid_over_another() -> None:
    """Tables key by key, lists as a whole; a table of another kind stands alone, one that names no kind keeps it."""
    below = {"steps": 1, "list": [1, 2], "model": {"kind": "bert", "width": 8, "inner": {"a": 1}}, "own": {"x": 1}}
    over = run.merge_tables(below, {"list": [3], "model": {"inner": {"b": 2}}, "own": 5})
    assert over == {"steps": 1, "list": [3], "own": 5, "model": {"kind": "bert", "width": 8, "inner": {"a": 1, "b": 2}}}
    assert run.merge_tables(below, {"model": {"kind": "bert", "width": 9}})["model"] == {**below["model"], "width": 9}
    assert run.merge_tables(below, {"model": {"kind": "gpt2"}})["model"] == {"kind": "gpt2"}
    assert run.merge_tables(below, {"own": {"kind": "new"}})["own"] == {"kind": "new"}


def test_names_of_a_verb_without_recipes_are_those_of_all() -> None:
    assert run.recipe_names("no-such-verb") == run.recipe_names()
    assert set(run.recipe_names("pretrain")) < {name.removeprefix("pretrain/") for name in run.recipe_names()}


def test_a_setting_that_came_since_leaves_older_folders_their_own(deeds: Any) -> None:
    """An older folder stands as long as the new setting is what it begins with, and its inputs are the same."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Newer(deeds.Deed):  # type: ignore[name-defined,misc]
        encoding: str = "utf-8"

    Path("input").write_text("one")
    assert obtain(deeds.Deed, "a.toml") == obtain(Newer, "a.toml") == Path("work/deed/a")
    assert performed() == 1
    for change, said in (("encoding=latin-1", "was made from another recipe"), ("text=other", "was made from another")):
        with pytest.raises(RecipeError, match=said):
            obtain(Newer, "a.toml", [change])
    Path("input").write_text("two")
    with pytest.raises(RecipeError, match="its inputs have changed since it was made"):
        obtain(Newer, "a.toml")
    assert performed() == 1


def test_a_status_changes_whole_and_forgets_what_is_none(tmp_path: Path) -> None:
    place = Run(tmp_path)
    assert place.status == {}
    place.set(state="running", why="x", n=0)
    place.set(state="done", why=None)
    assert place.status == {"state": "done", "n": 0}
    assert json.loads((tmp_path / "status.json").read_text()) == place.status


def test_a_folder_is_ours_from_its_first_file_on(deeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the first files leaves one that the same command takes up again, and no stranger's is taken."""
    folder, written = Path("made"), list[str]()
    inner = run.files.write_text
    monkeypatch.setattr(run.files, "write_text", lambda path, text: written.append(path.name) or inner(path, text))
    Run(folder).begin(deeds.Deed("hello"), began=3.0)
    assert written == ["status.json", "recipe.toml", "environment.json"]
    status = Run(folder).status
    assert (status["verb"], status["state"], status["began"]) == ("deed", "running", 3.0)
    assert (status["stood_in"], status["folder"]) == (str(Path.cwd()), "made")
    assert status["fingerprint"] == run.fingerprint(deeds.Deed("hello"))
    for name in ("kept", "taken"):
        Path(name).mkdir()
    (Path("kept") / run.STEPS).mkdir()
    Run(Path("kept")).begin(deeds.Deed("hello"))  # what is half done may stand
    (Path("taken") / "mine").write_text("")
    with pytest.raises(
        RecipeError, match="taken: has files that were not made by `ordsmed`; wanted a new or empty folder"
    ):
        Run(Path("taken")).begin(deeds.Deed("hello"))


def test_clearing_keeps_steps_and_ends_with_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed meanwhile, what is left is still known as ours."""
    for name in ("a.txt", "status.json", "z.txt"):
        (tmp_path / name).write_text("{}")
    for name in ("folder", run.STEPS):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inner").write_text("")
    gone: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **how: gone.append(self.name) or unlink(self, **how))
    run.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [run.STEPS]
    assert gone[-1] == "status.json"


def test_a_finished_deed_is_tidied_and_tells_its_seconds(deeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied: list[str] = []
    monkeypatch.setattr(deeds.Deed, "tidy", lambda self, place: tidied.append(place.status["state"]), raising=False)
    clock = iter([100.0, 107.26])
    set_time(monkeypatch, run, time=lambda: next(clock))
    folder = obtain(deeds.Deed, "a.toml")
    status = Run(folder).status
    assert (tidied, status["began"], status["seconds"]) == (["done"], 100.0, 7.3)


def test_what_fits_a_folder(deeds: Any, tmp_path: Path) -> None:
    """By its fingerprint, without which nothing fits; a recipe of settings that are unknown now fits none."""
    place = Run(tmp_path / "f")
    place.begin(deeds.Deed("hello"))
    assert run.fits(place, deeds.Deed("hello"))
    assert run.fits(place, deeds.Deed("hello", out="elsewhere"))
    assert not run.fits(place, deeds.Deed("hallo"))
    mark = place.status["fingerprint"]
    place.set(fingerprint=None)
    assert not run.fits(place, deeds.Deed("hello"))
    place.set(fingerprint="other")
    (place.path / "recipe.toml").write_text('text = "hello"\nstrange = 3\n')
    assert not run.fits(place, deeds.Deed("hello"))
    place.set(fingerprint=mark, verb="another")
    with pytest.raises(RecipeError, match="is the folder of a `another`; wanted that of a `deed`"):
        run.fits(place, deeds.Deed("hello"))
    assert run._shared_entries({"a": 1, "b": [{"c": 1, "d": 2}]}, {"b": [{"c": 9}]}) == {"b": [{"c": 1}]}
    assert run._shared_entries([1, 2], [1]) == [1, 2]

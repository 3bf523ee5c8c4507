"""Commands at work in processes that can be found, waited for and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

KIT = Path(__file__).parent  # on the path of processes that are to have faults
PATIENT = 480.0  # seconds that no test should need, on whatever machine beside whatever work


@dataclass
class Process:
    """One command at work: its processes can be found and signalled, what it says is kept."""

    pid: int
    poll: Callable[[], int | None]
    out: Path
    left: list[int] = field(default_factory=list)

    @property
    def said(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    @property
    def ranks(self) -> list[int]:
        """The processes it started, in order."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except OSError:
            return []
        self.left += [int(word) for word in text.split() if int(word) not in self.left]
        return [int(word) for word in text.split()]

    def wait(self, seconds: float = PATIENT) -> int:
        """Its exit status; a command that does not end in time is a failure."""
        until = time.monotonic() + seconds
        while (status := self.poll()) is None:
            assert time.monotonic() < until, f"still at work after {seconds} s; it said:\n{self.said}"
            time.sleep(0.01)
        assert "Traceback" not in self.said, self.said
        return status

    def until(self, true: Callable[[], Any]) -> None:
        """Wait until something is so, while it works."""
        until = time.monotonic() + PATIENT
        while not true():
            assert self.poll() is None, f"ended too early:\n{self.said}"
            assert time.monotonic() < until, self.said
            time.sleep(0.005)

    def end(self) -> None:
        """Kill -9 all of it."""
        for pid in (*self.ranks, *self.left, self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run_at_once(nursery: Callable[..., Any], folder: Path, env: dict[str, str], *words: object) -> Process:
    """`ordsmed WORDS` at work in a process of the nursery's, which may need others beside it."""
    folder.mkdir()
    files = {"SAID": str(folder / "said"), "TOLD": str(folder / "told")}
    pid = nursery(words=list(map(str, words)), env={"GRACE": "5.0", **files, **env})
    return Process(pid, lambda: nursery(poll=pid), folder / "said")


def run_born(nursery: Callable[..., Any], folder: Path, *words: object, read: str = "") -> CompletedProcess[str]:
    """What `ordsmed WORDS` in a process of the nursery's writes, and how it ends."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    files = {"SAID": folder / "said", "TOLD": folder / "told", "READ": folder / "read"}
    files["READ"].write_text(read)
    asked = list(map(str, words))
    pid = nursery(words=asked, env={"GRACE": "5.0", **{name: str(path) for name, path in files.items()}})
    process = Process(pid, lambda: nursery(poll=pid), files["TOLD"])
    try:
        status = process.wait()
    finally:
        process.end()
    return CompletedProcess(asked, status, files["SAID"].read_text(), files["TOLD"].read_text())


def work_side_by_side(nursery: Callable[..., Any], folder: Path, world: int, script: list[str]) -> None:
    """A script and its words in so many processes with torchrun's variables, each of which has to end well."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = []
    for rank in range(world):
        out = folder / f"said-{rank}.txt"
        env = shared | {"RANK": rank, "LOCAL_RANK": rank, "SAID": out}
        pid = nursery(script=script, env={name: str(value) for name, value in env.items()})
        started.append(Process(pid, lambda pid=pid: nursery(poll=pid), out))  # type: ignore[misc]
    try:
        ended = [process.wait() for process in started]
    finally:
        for process in started:
            process.end()
    assert ended == [0] * world, "\n".join(process.said for process in started)[-6000:]


def alive(pid: int) -> bool:
    """Is this process at work? One that ended and was not collected is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Several processes behind one port: who takes what, one dies, a reload for all, counts and limits of all together."""

from __future__ import annotations

import contextlib
import errno
import http.client
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from kit.clocks import set_time
from kit.language_models import hub_folder
from ordsmed.base.errors import RunError
from ordsmed.serve import workers
from ordsmed.serve.batcher import Batcher, BatchLimits
from ordsmed.serve.metrics import ServerMetrics
from ordsmed.serve.refusal import Refusal
from ordsmed.serve.shared_memory import SharedMemory
from ordsmed.serve.workers import Worker, WorkerKeeper

BODY = {"inputs": "the [MASK] cat"}


@dataclass
class ServerProcess:
    """Start `ordsmed serve --workers 2`, and collect its output."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def children(self) -> list[int]:
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return sorted(map(int, Path(path).read_text().split()))

    def fill(self) -> httpx.Response:
        return httpx.post(f"{self.url}/fill-mask", json=BODY, timeout=60)

    def count(self, name: str) -> int:
        text = httpx.get(f"{self.url}/metrics").text
        found = re.search(rf"^ordsmed_{re.escape(name)} (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0


@contextlib.contextmanager
def started(*words: str) -> Iterator[ServerProcess]:
    command = [sys.executable, "-m", "ordsmed", "serve", *words, "--port", "0", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        server = ServerProcess(process)
        assert process.stderr

        def read() -> None:
            server.lines.extend(process.stderr or ())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        address = re.compile(r"(http://\S+): serving in 2 processes")
        try:
            wait_for(lambda: process.poll() is not None or address.search("".join(server.lines)))
            found = address.search("".join(server.lines))
            assert found, server.lines
            server.url = found[1]
            yield server
        finally:
            process.terminate()
            process.wait(60)
            reader.join(20)


def wait_for(true: Callable[[], object]) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(folders["bert"], tmp_path_factory.mktemp("workers") / "bert")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with started(str(folder), "--admin") as server:
        yield server


def test_connections_are_taken_by_both_and_counted_together(server: ServerProcess) -> None:
    def sockets() -> list[int]:
        return [
            sum(os.readlink(entry).startswith("socket:") for entry in Path(f"/proc/{child}/fd").iterdir())
            for child in server.children()
        ]

    assert sum("bert: bert; methods: fill" in line for line in server.lines) == 1
    before = sockets()
    assert len(before) == 2
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
            stack.callback(connection.close)
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'
        assert min(now - then for now, then in zip(sockets(), before, strict=True)) >= 2
    answers = [server.fill().json() for _ in range(10)]
    assert answers == [answers[0]] * 10
    wait_for(lambda: server.count("workers") == 2)
    for _ in range(4):  # whichever worker gets the request
        assert server.count('requests_total{path="/fill-mask",status="200"}') == 10
        assert server.count("batch_items_total") == 10


def test_a_worker_that_dies_is_told_and_started_anew(server: ServerProcess) -> None:
    before = server.children()
    counted = server.count('requests_total{path="/health",status="200"}')
    os.kill(before[1], signal.SIGKILL)
    wait_for(lambda: any(re.match(r"worker 2 was ended by SIGKILL after \d+ s; it restarts", x) for x in server.lines))
    assert [server.fill().status_code for _ in range(6)] == [200] * 6
    wait_for(lambda: server.count("workers") == 2)
    after = server.children()
    assert (len(after), after[0], before[1] in after) == (2, before[0], False)
    assert server.count('requests_total{path="/health",status="200"}') == counted  # of the dead one as well
    os.kill(after[0], signal.SIGTERM)  # one alone: new connections go to the other
    wait_for(lambda: server.children() != after)
    assert [server.fill().status_code for _ in range(6)] == [200] * 6
    wait_for(lambda: server.count("workers") == 2)


def test_all_workers_open_their_models_again(server: ServerProcess, folder: Path) -> None:
    before = server.fill().json()
    shutil.rmtree(folder)
    answer = httpx.post(f"{server.url}/admin/reload", json={}, timeout=60)
    assert (answer.status_code, answer.json()["place"]) == (400, "bert")
    assert "of 2 workers" not in answer.text  # it is all of them
    hub_folder("bert", folder, seed=4)
    assert httpx.post(f"{server.url}/admin/reload", json={}, timeout=60).json() == {"status": "ok"}
    answers = [server.fill().json() for _ in range(12)]
    assert answers == [answers[0]] * 12
    assert answers[0] != before


@pytest.mark.long
def test_a_signal_loses_no_request_of_any_worker(folders: dict[str, Path]) -> None:
    with started(str(folders["bert"])) as server:
        statuses: list[int] = []

        def ask() -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while not statuses or statuses[-1] == 200:
                    statuses.append(client.post("/fill-mask", json=BODY).status_code)

        with ThreadPoolExecutor(16) as pool:
            futures = [pool.submit(ask) for _ in range(16)]
            try:
                wait_for(lambda: len(statuses) > 50)
            finally:
                for process in (*server.children(), server.process.pid):  # as systemd does
                    os.kill(process, signal.SIGTERM)
            for future in futures:
                future.result(60)
        assert set(statuses) == {200, 503}
        assert server.process.wait(30) == 0
    assert server.lines[-1] == "stopped; all accepted requests were answered\n"


def test_a_model_that_cannot_be_opened_is_told_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ordsmed", "serve", str(tmp_path / "nothing"), "--port", "0", "--workers", "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "nothing" in done.stderr


class Waiting:
    """Work that is never begun, for no thread is started."""

    def __call__(self, items: list[tuple[object, ...]]) -> list[object]:
        return [None for _ in items]


def seats(count: int) -> list[Worker]:
    shared = SharedMemory(count)
    for row in shared.rows:
        row["pid"] = 1
    return [Worker(shared, number, os.getppid(), first=number == 0) for number in range(count)]


def test_the_queue_is_bounded_over_all_workers() -> None:
    seated = seats(2)
    one, two = (Batcher(BatchLimits(queue=5), seat.waiting_elsewhere) for seat in seated)
    one.submit(Waiting(), [(), (), ()], [1] * 3, 60)
    two.submit(Waiting(), [(), ()], [1] * 2, 60)
    for batcher in (one, two):
        with pytest.raises(Refusal, match="the queue is full: 5 items wait"):
            batcher.submit(Waiting(), [()], [1], 60)
    assert [seat.row["waiting"] for seat in seated] == [3, 2]  # what was refused does not count
    seated[1].row["pid"] = 0  # it died, and what waited there with it
    one.submit(Waiting(), [(), ()], [1] * 2, 60)
    one.start()
    one.close()
    assert seated[0].row["waiting"] == 0


def test_counts_of_a_worker_that_died_go_on() -> None:
    one, two = seats(2)
    metrics = [ServerMetrics(), ServerMetrics()]
    for seat, counts in zip((one, two), metrics, strict=True):
        counts.gauges |= {"queue_items": lambda: 0, "batch_size": lambda: 0}
        counts.share(seat)
        counts.add_request("/score", 200, 0.02)
    two.row["pid"] = 0
    assert 'path="/score",status="200"} 2' in metrics[0].text()
    again = ServerMetrics()
    again.gauges = metrics[1].gauges
    again.share(two)
    again.add_request("/score", 200, 100)
    text = again.text()
    assert 'path="/score",status="200"} 3' in text
    assert ('le="0.025"} 2' in text, 'le="60.0"} 2' in text, 'le="+Inf"} 3' in text) == (True, True, True)


def test_half_a_text_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    [seat] = seats(1)
    seat.row.write("problem", b"whole")
    seat.row.write("problem", b"x" * 3_000)  # has no room
    assert seat.row.read("problem") == b"whole"
    at = seat.row._texts["problem"] // 8
    seat.row._numbers[at] += 1  # as if its writer were ended within
    monkeypatch.setattr("ordsmed.serve.shared_memory.TRIES", 2)
    assert seat.row.read("problem") == b""
    seat.row.repair()
    assert seat.row.read("problem") == b""
    seat.row.write("problem", b"again")
    assert seat.row.read("problem") == b"again"


def test_no_worker_is_forked_once_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """And signals, which wait while a worker is forked, are let in again."""
    keeper = WorkerKeeper(SharedMemory(1), [workers.Child()])
    forks: list[int] = []
    monkeypatch.setattr(workers.os, "fork", lambda: forks.append(1) or 1 << 22)
    for stop in (1, 0):
        keeper.shared["stop"] = stop
        assert keeper._start(0) is None
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert (len(forks), keeper.children[0].pid) == ((0, 0) if stop else (1, 1 << 22))


def test_a_worker_that_dies_again_and_again_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose worker fails while it stops does not print that all requests were answered."""
    keeper, told, clock = WorkerKeeper(SharedMemory(2)), list[str](), itertools.count(1.0, 0.25)
    keeper.children = [workers.Child(), workers.Child(pid=7, started=1.0)]
    started_at, ends = list[float](), iter([(7, signal.SIGKILL)] * 4)

    def start(number: int, *, first: bool = False) -> None:
        started_at.append(now[0])
        keeper.children[number].pid, keeper.children[number].started = 7, now[0]

    now = [1.0]

    def monotonic() -> float:
        now[0] = next(clock)
        return now[0]

    monkeypatch.setattr(workers, "say", told.append)
    set_time(monkeypatch, workers, sleep=lambda seconds: None, monotonic=monotonic)
    monkeypatch.setattr(workers.os, "waitpid", lambda pid, how: next(ends, (0, 0)))
    monkeypatch.setattr(keeper, "_start", start)
    for _ in range(60):
        keeper._restart_ended()
    waits = [re.search(r"restarts in (\d+) s", line) for line in told]
    assert [int(wait[1]) for wait in waits if wait] == [1, 2, 4, 8]
    assert len(started_at) == 4
    keeper.failed = ["worker 2 was ended by SIGKILL"]
    with pytest.raises(RunError, match="SIGKILL while the server stopped; its accepted requests are lost"):
        keeper.check()


def test_a_worker_that_cannot_be_started_again_is_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of processes is reached for a while: the others serve on. Before all serve it is an error."""
    keeper, told, tries = WorkerKeeper(SharedMemory(1)), list[str](), list[int]()

    def fork() -> int:
        tries.append(len(tries))
        if len(tries) < 3:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return 7

    monkeypatch.setattr(workers.os, "fork", fork)
    monkeypatch.setattr(workers, "say", told.append)
    keeper.children = [workers.Child()]
    with pytest.raises(BlockingIOError):
        keeper._start(0)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "it hears signals again"
    keeper.children[0].started = 1.0
    assert keeper._start(0) is None
    assert told == ["worker 1 cannot be started (Resource temporarily unavailable); next attempt in 1 s"]
    assert keeper._start(0) is None
    assert keeper.children[0].pid == 7


def test_a_worker_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ticks is not killed, nor one that stops by itself and takes long."""
    keeper, told = WorkerKeeper(SharedMemory(3)), list[str]()
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    keeper.children = [workers.Child(pid=process.pid, started=1.0) for process in processes]
    ticking = keeper.shared.rows[1]
    now = 1_000.0
    set_time(monkeypatch, workers, sleep=lambda seconds: None, monotonic=lambda: now)
    monkeypatch.setattr(workers, "say", told.append)
    for row in keeper.shared.rows:
        row["ticked"] = 1_000
    workers.Worker(keeper.shared, 2, 0, first=False).leave()
    try:
        keeper._kill_hung()
        now += 100  # all were stopped, the parent as well
        keeper._kill_hung()
        for _ in range(61):
            assert told == []
            now += 1
            ticking["ticked"] = int(now)
            keeper._kill_hung()
        assert processes[0].wait(20) == -signal.SIGKILL
        assert [process.poll() for process in processes[1:]] == [None, None]
        assert told == ["worker 1 hangs: it has not responded for 61 s; it is killed"]
        now += 1
        keeper._kill_hung()
        assert len(told) == 1
    finally:
        for process in processes:
            process.kill()
            process.wait()

"""How a process is set up for its device, and how processes meet: what torch is asked for, without others."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore

from ordsmed.base import meeting, ranks
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.machine import devices, memory
from ordsmed.base.ranks import ProcessInfo, Ranks, attempt_token, connect, prepare, rendezvous
from ordsmed.base.workers import worker_pool


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    ranks.allow_output(True)


def test_a_cpu_flushes_what_would_make_it_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subnormal numbers are 0, memory is kept, and threads are those that were asked for."""
    kept: list[int] = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: kept.append(1))
    torch.set_flush_denormal(False)
    small = torch.tensor([1e-30])
    assert float(small * 1e-10) > 0
    found = prepare("cpu", 1)
    assert float(small * 1e-10) == 0
    assert (found.threads, torch.get_num_threads(), found.device.type, kept) == (1, 1, "cpu", [1])
    with pytest.raises(RecipeError, match=r"^layout.threads: found 0"):
        prepare("cpu", 0)
    with pytest.raises(RecipeError, match=r"^--threads: found 0"):
        prepare("cpu", 0, flags=True)


def test_a_gpu_is_taken_and_its_memory_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(devices, "use_expandable_segments", lambda: done.append("grow"))
    monkeypatch.setattr(devices, "device_of", lambda *_: done.append("looked at") or "cuda:3")
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: done.append("kept"))
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    assert prepare("cuda", 1).device == torch.device("cuda:3")
    assert done == ["grow", "looked at", torch.device("cuda:3")], "CUDA reads the environment as it begins"


def test_the_first_of_several_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    spoke: list[bool] = []
    monkeypatch.setattr(ranks, "allow_output", spoke.append)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        found = prepare("cpu", 1)
        assert (found.rank, found.world, found.shape) == (int(rank), 2, (2, 1, 1))
    assert spoke == [True, False]


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the processes are asked to meet by."""
    asked: dict[str, Any] = {}

    def store(address: str, port: int, world: int, keeps: bool, patience: timedelta, **_: Any) -> str:
        asked.update(
            patience=patience,
            env={n: os.environ[n] for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
            where=f"{address}:{port}",
            named=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            keeps=keeps,
        )
        return "store"

    def group(backend: str, **how: Any) -> None:
        asked.update(backend=backend, **how)

    monkeypatch.setattr(dist, "TCPStore", store)
    monkeypatch.setattr(dist, "PrefixStore", lambda word, store: (word, store))
    monkeypatch.setattr(dist, "init_process_group", group)
    monkeypatch.setattr(ranks.ending, "note_connected", lambda: asked.update(noted=True))
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(ranks, "attempt_token", lambda store, own, until, line: f"word of {store}")
    monkeypatch.setattr(ranks, "resolve_address", lambda address, rank: asked.update(resolved=address))
    return asked


@pytest.mark.parametrize(("patience", "waits"), [(5.0, 60), (600.0, 600)])
@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl")])
def test_processes_meet(met: dict[str, Any], patience: float, waits: int, device: str, backend: str) -> None:
    """By a word of this attempt; the watch speaks before torch gives up."""
    place = ProcessInfo(3, 4, 1, 2, "gpu001", 4567)
    found = rendezvous(Ranks(torch.device(device), 3, 4, process=place), patience)
    assert not {"backend", "noted"} & set(met)  # a watch stands before they are connected
    assert connect(found, patience) == replace(found, limit=timedelta(seconds=2 * patience))
    assert (met["patience"], met["where"], met["named"]) == (timedelta(seconds=waits), "gpu001:4567", "gpu001:4567")
    assert (met["keeps"], met["resolved"]) == (False, "gpu001")
    assert met["env"] == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    assert (met["backend"], met["rank"], met["world_size"]) == (backend, 3, 4)
    assert met["timeout"] == timedelta(seconds=2 * patience)
    assert met["device_id"] == (torch.device("cuda") if device == "cuda" else None)
    assert met["noted"]
    assert found.store == ("word of store", "store")
    assert met["store"] == ("groups", found.store)


@pytest.mark.parametrize("local", [0, 1])
def test_a_master_address_that_is_not_known_is_reported_by_one_process_of_each_machine(
    met: dict[str, Any], monkeypatch: pytest.MonkeyPatch, local: int
) -> None:
    def look_up(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(ranks, "resolve_address", meeting.resolve_address)
    monkeypatch.setattr(meeting, "RESOLVING", 0.3)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    place = ProcessInfo(4 + local, 8, local, 4, "gpu001", 99)
    found = f"found gpu001, which rank {4 + local} could not resolve within 0.3 s (Name or service not known)"
    with pytest.raises(RunError, match=rf"^MASTER_ADDR: {re.escape(found)}.*; set MASTER_ADDR to another") as error:
        rendezvous(Ranks(torch.device("cpu"), 4 + local, 8, process=place), 600.0)
    assert error.value.echo == bool(local)
    assert "where" not in met, "nobody connects to it"


def test_a_name_that_is_known_late_is_waited_for_and_a_silent_server_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look_up(address: str, port: None) -> list[str]:
        asked.append(address)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["127.0.0.1"]

    monkeypatch.setattr(meeting, "RESOLVING", 1.0)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    meeting.resolve_address("late", 1)
    assert asked == ["late"] * 3
    silent = threading.Event()
    monkeypatch.setattr(meeting, "RESOLVING", -0.9)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: silent.wait())
    with pytest.raises(RunError, match="the name server does not answer"):
        meeting.resolve_address("silent", 1)
    silent.set()


def test_who_waits_for_slow_processes_says_so_every_minute(
    met: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(meeting, "LINE", 0.2)
    monkeypatch.setattr(ranks, "attempt_token", attempt_token)
    monkeypatch.setattr(ranks, "_send_token", lambda store, rank, word: False)
    monkeypatch.setattr(dist, "PrefixStore", lambda word, store: HashStore())
    monkeypatch.setattr(dist, "TCPStore", lambda *_, **__: time.sleep(0.7) or HashStore())
    for rank, local in ((0, 0), (4, 0), (5, 1)):
        place = ProcessInfo(rank, 6, local, 4, "gpu001", 99)
        with pytest.raises(RunError, match="did not connect within 1 s"):
            rendezvous(Ranks(torch.device("cpu"), rank, 6, process=place), 1.0, least=1.0)
    lines = capsys.readouterr().err.splitlines()
    assert {line.partition(" (")[0] for line in lines} == {
        "ordsmed: rank 0: waiting for the first rank at gpu001:99",
        "ordsmed: rank 0: waiting for rank 1, 2, 3, 4, 5",
        "ordsmed: rank 4: waiting for the first rank at gpu001:99",
    }
    assert len(lines) > len({line.partition(" (")[0] for line in lines}), "again and again"


def test_one_process_meets_nobody(met: dict[str, Any]) -> None:
    alone = Ranks(torch.device("cpu"))
    assert connect(rendezvous(alone, 5.0), 5.0) is alone
    assert met == {}


@pytest.mark.parametrize(("agent", "keeps"), [("", True), ("True", False)])
def test_the_first_keeps_the_store_but_where_torchrun_does(
    met: dict[str, Any], monkeypatch: pytest.MonkeyPatch, agent: str, keeps: bool
) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", agent)
    rendezvous(Ranks(torch.device("cpu"), 0, 2, process=ProcessInfo(0, 2, 0, 2, "here", 99)), 5.0, least=2.0)
    assert (met["keeps"], met["patience"]) == (keeps, timedelta(seconds=5))


def test_who_does_not_come_is_named_with_its_machine(met: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(*_: Any) -> str:
        raise ranks.RanksAbsent([2, 3, 5])

    monkeypatch.setattr(ranks, "attempt_token", alone)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2(x3)")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "n[07-08],big1")
    first = Ranks(torch.device("cpu"), 0, 6, process=ProcessInfo(0, 6, 0, 2, "n07", 99))
    found = r"n08 \(rank 2, 3\), big1 \(rank 5\) did not connect within 5 s; wanted 6 processes; check their machines"
    with pytest.raises(RunError, match=rf"^rank 0 at n07:99: {found}") as error:
        rendezvous(first, 5.0, least=1.0)
    assert not error.value.echo
    monkeypatch.setenv("SLURM_DISTRIBUTION", "cyclic")
    with pytest.raises(RunError, match=r"^rank 0 at n07:99: rank 2, 3, 5 did not connect within 5 s"):
        rendezvous(first, 5.0, least=1.0)


def test_who_does_not_meet_is_told_where(met: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any, **__: Any) -> Any:
        raise RuntimeError("timed out\nwith a stack")

    monkeypatch.setattr(dist, "TCPStore", nobody)
    two = Ranks(torch.device("cpu"), 1, 2, process=ProcessInfo(1, 2, 1, 2, "here", 99))
    with pytest.raises(RunError, match=r"^rank 1 at here:99: could not connect: timed out; wanted 2 processes$"):
        rendezvous(two, 5.0)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with pytest.raises(RunError, match="process group: already exists; wanted one run at a time in a process"):
        rendezvous(two, 5.0)


class Client:
    """As much of Dask's as is asked."""

    asked: dict[str, Any] = {}  # noqa: RUF012
    threads: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, **how: Any) -> None:
        Client.asked = how

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        Client.asked["closed"] = True

    def nthreads(self) -> dict[str, int]:
        return self.threads

    def get_executor(self, *, pure: bool) -> Any:
        Client.asked["pure"] = pure
        submitted = lambda function, *task: SimpleNamespace(  # noqa: E731
            result=lambda: function(*task), done=lambda: True, cancel=lambda: None
        )
        return SimpleNamespace(submit=submitted)


def test_workers_of_a_scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """By its address or the file it wrote; one without workers is refused, since nothing would ever be done."""
    package = ModuleType("distributed")
    package.Client = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distributed", package)
    monkeypatch.setattr(Client, "threads", {"a": 2, "b": 1})
    (tmp_path / "s.json").write_text("{}")
    for engine, where in (
        ("tcp://x:1", {"address": "tcp://x:1"}),
        (f"{tmp_path}/s.json", {"scheduler_file": f"{tmp_path}/s.json"}),
    ):
        with worker_pool(engine=engine) as spread:
            assert list(spread(max, ((n, 3) for n in range(6)))) == [3, 3, 3, 3, 4, 5]
        assert Client.asked == {**where, "timeout": "30s", "set_as_default": False, "pure": False, "closed": True}
    monkeypatch.setattr(Client, "threads", {})
    with (
        pytest.raises(RecipeError, match="the scheduler at tcp://x:1 has no workers; start some: `dask worker`"),
        worker_pool(engine="tcp://x:1"),
    ):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(RecipeError, match="engine: `distributed` is not installed; pip install"),
        worker_pool(engine="tcp://x:1"),
    ):
        pass


def test_more_processes_than_a_machine_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.base.workers.max_processes", lambda: 3)
    with (
        pytest.raises(RecipeError, match="processes: found 4; wanted at most 3 on this machine; leave it out"),
        worker_pool(4),
    ):
        pass

"""The watch, other ranks played by a dictionary: who is silent, who is slow, what an error means, and whose it is."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.clocks import set_time
from ordsmed.base import ranks
from ordsmed.base.errors import Lost, RunError
from ordsmed.base.ranks import Ranks
from ordsmed.train import watch
from ordsmed.train.watch import Watch


class Board:
    """The store that ranks share."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.broken: Exception | None = None

    def clone(self) -> Board:
        return self

    def set(self, key: str, value: str) -> None:
        if self.broken:
            raise self.broken
        self.kept[key] = value

    def get(self, key: str) -> bytes:
        return self.kept[key].encode()

    def check(self, keys: list[str]) -> bool:
        if self.broken:
            raise self.broken
        return all(key in self.kept for key in keys)

    def beat(self, rank: int, count: int, step: int, stage: str = "learning") -> None:
        self.set(f"beat/{rank}", json.dumps([count, step, stage, f"host{rank}", 100 + rank]))


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr(watch, "BEAT", 0.02)
    return Board()


def of(board: Board | None, rank: int = 0, world: int = 3, patience: float = 60.0) -> Watch:
    return Watch(Ranks(torch.device("cpu"), rank, world, store=board), patience)


def broken(said: str = "Connection reset by peer") -> RuntimeError:
    return torch.distributed.DistError(said)


def test_a_beat_says_how_far_a_rank_is(board: Board) -> None:
    own = of(board, 1)
    own.at(7, "saving")
    own._send_beat()
    own._send_beat()
    count, step, stage, _, _ = json.loads(board.kept["beat/1"])
    assert (count, step, stage) == (2, 7, "saving")
    assert own._reports().keys() == {1}


def test_it_beats_while_it_stands_and_no_longer(board: Board) -> None:
    with of(board, 1) as own:
        for _ in range(6000):
            if own.count > 2:
                break
            threading.Event().wait(0.01)
    assert own.count > 2
    assert own.thread is not None
    assert not own.thread.is_alive()
    with of(None) as alone:
        assert alone.thread is None


def test_who_is_slowest_is_furthest_behind(board: Board) -> None:
    """By the step, and in one step by what comes first in it."""
    own = of(board)
    beats: dict[int, list[Any]] = {0: [1, 5, "learning"], 1: [9, 4, "saving"], 2: [1, 4, "summing gradients"]}
    assert own._slowest_ranks(beats) == [2]
    beats[1][2] = "learning"
    assert own._slowest_ranks(beats) == [1]
    beats[2] = beats[0] = beats[1]
    assert own._slowest_ranks(beats) == [0, 1, 2]
    assert own._slowest_ranks({}) == []


def test_who_is_silent_is_lost(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    own = of(board, 0, world=4)
    board.beat(1, 5, 7)
    board.beat(2, 5, 7)
    tell = own._send_beat

    def telling() -> None:
        tell()
        board.beat(1, 5 + own.count, 7)

    monkeypatch.setattr(own, "_send_beat", telling)
    lost, beats = own._silent_ranks(0.05)
    assert lost == [2, 3]
    assert sorted(beats) == [0, 1, 2]
    assert own.count >= 2


def test_ranks_are_named_with_what_they_did_and_said_last(board: Board) -> None:
    own = of(board, 0, patience=9.0)
    board.set("gone/2", "out of memory")
    said = str(own._error_about([1, 2], {1: [3, 7, "learning", "big1", 42]}))
    assert said.startswith(
        "processes: lost or hanging: rank 1 (big1, process 42) at step 7, learning; "
        "rank 2 (?, process ?) at step 0, starting: out of memory; wanted a step within 9 s of all 3; start the same"
    )
    assert "all ranks wait for each other: rank 0" in str(own._error_about([0, 1, 2], {}))


def test_a_rank_that_told_an_error_of_its_own_was_not_lost(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the exit status a job's script knows what may go well elsewhere."""
    set_time(monkeypatch, watch, sleep=lambda _: None)
    own = of(board, 0)
    assert own._error_about([1], {}).status == Lost.status == 75
    of(board, 2).report_end(own._error_about([1], {}))
    assert own._error_about([1, 2], {}).status == 75, "rank 2 ended because of rank 1"
    of(board, 1).report_end(RunError("data", "damaged"))
    assert own._error_about([1, 2], {}).status == 1


def test_a_machine_is_named_as_slurm_knows_it(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    of(board, 1)._send_beat()
    assert json.loads(board.kept["beat/1"])[3] == "n7"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What processes said when they ended themselves."""
    said: list[str] = []
    monkeypatch.setattr(Watch, "_end", lambda self, error, told=True: said.append(str(error)))
    return said


def test_who_waits_too_long_names_who_is_behind(
    board: Board, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = of(board, 0, world=2, patience=0.0)
    beats: dict[int, list[Any]] = {0: [1, 5, "learning", "a", 1], 1: [1, 4, "judging", "b", 2]}
    monkeypatch.setattr(own, "_silent_ranks", lambda seconds: ([], beats))
    own._end_if_hanging()
    assert ended[0].startswith("processes: lost or hanging: rank 1 (b, process 2) at step 4, judging; wanted")
    own.over.set()
    own._end_if_hanging()
    assert len(ended) == 1, "a run that is over hangs no more"


@pytest.mark.parametrize("stage", ["saving", "starting"])
def test_a_slow_disk_is_no_hanging_rank(
    board: Board, ended: list[str], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Unless its process is silent altogether."""
    own = of(board, 0, world=2, patience=0.0)
    own.since -= 100
    beats: dict[int, list[Any]] = {0: [1, 5, "judging", "a", 1], 1: [1, 4, stage, "b", 2]}
    monkeypatch.setattr(own, "_silent_ranks", lambda seconds: ([], beats))
    before = own.since
    own._end_if_hanging()
    assert (ended, own.since > before + 90) == ([], True)
    monkeypatch.setattr(own, "_silent_ranks", lambda seconds: ([1], beats))
    own._end_if_hanging()
    assert f"rank 1 (b, process 2) at step 4, {stage}" in ended[0]


def test_it_is_silent_for_longer_than_a_beat_before_it_is_lost(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(Watch, "_end", lambda self, error: None)
    for patience in (0.0, 7.0, 1e4):
        own = of(board, 0, patience=patience)
        monkeypatch.setattr(own, "_silent_ranks", lambda seconds: asked.append(seconds) or ([1], {}))
        own._end_if_hanging()
    assert asked == [2.5 * watch.BEAT, 7.0, watch.MAX_SILENCE]


def test_a_broken_connection_means_that_somebody_is_lost(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    own = of(board, 0)
    monkeypatch.setattr(own, "_silent_ranks", lambda: ([2], {2: [1, 3, "learning", "c", 9]}))
    for error in (broken(), RuntimeError("[/pytorch/gloo/transport] Timed out"), RuntimeError("NCCL error")):
        found = own.explain(error)
        assert "lost or hanging: rank 2 (c, process 9) at step 3, learning" in str(found)
        own.report_lock.release()
    monkeypatch.setattr(
        own, "_silent_ranks", lambda: ([], {1: [1, 3, "learning", "b", 8], 2: [1, 4, "learning", "c", 9]})
    )
    assert "rank 1 (b, process 8)" in str(own.explain(broken()))
    own.report_lock.release()

    def gone() -> Any:
        raise broken("Broken pipe\nmore of it")

    monkeypatch.setattr(own, "_silent_ranks", gone)
    assert "rank 0: is gone (Connection reset by peer)" in str(own.explain(broken("Connection reset by peer\nmore")))


def test_an_error_of_its_own_is_no_broken_connection(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, watch, sleep=lambda _: None)
    own = of(board, 1)
    assert own.explain(RuntimeError("shapes differ\nmore")) is None
    assert board.kept["gone/1"] == "rank 1: shapes differ"
    assert "lower `layout.micro`" in str(own.explain(RuntimeError("DefaultCPUAllocator: can't allocate memory")))
    told = own.explain(torch.OutOfMemoryError("CUDA out of memory."))
    assert "rank 1: CUDA out of memory.; lower `layout.micro`" in str(told)
    assert own.explain(RuntimeError("")) is None
    assert board.kept["gone/1"] == "rank 1: RuntimeError"


def test_what_the_first_rank_tells_as_well_is_an_echo(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, watch, sleep=lambda _: None)
    error, other = RunError("here", "wrong"), RunError("there", "wrong")
    of(board, 0).report_end(error)
    assert not error.echo, "the first tells it"
    own = of(board, 1)
    own.report_end(other)
    assert not other.echo
    assert board.kept["gone/1"] == str(other)
    again = RunError("here", "wrong")
    own.report_end(again)
    assert again.echo
    own.report_end(again)
    assert board.kept["gone/1"] == str(again)
    board.kept.clear()
    own.report_end(again)
    assert not board.kept, "an echo is told nobody"
    of(None).report_end(other)
    board.broken = broken()
    of(board, 1).report_end(other)  # a store that is gone as well is no other error


def test_without_a_store_that_answers_the_first_rank_is_lost(
    board: Board, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ANSWER", 0.05)
    hanging = threading.Event()
    own = of(board, 1)
    monkeypatch.setattr(own, "_reports", lambda: hanging.wait(5))
    with pytest.raises(TimeoutError):
        own._beats()
    with pytest.raises(TimeoutError):
        own.explain(broken())
    assert ended == [f"rank 0: does not answer: lost or hanging; {watch.RESUME_REMEDY}"]
    hanging.set()
    board.broken = broken()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="Connection reset"):
        of(board, 1)._beats()


def test_a_first_rank_that_stops_before_the_watch_stands_is_not_waited_for(
    board: Board, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store's answer comes late here, so that the test ends; `_exit` would have ended the process before."""
    ended = threading.Event()
    statuses: list[int] = []
    monkeypatch.setattr(watch, "MAX_SILENCE", 0.01)
    monkeypatch.setattr(ranks.os, "_exit", lambda status: (statuses.append(status), ended.set()))
    monkeypatch.setattr(board, "clone", lambda: ended.wait(60) and board)
    of(board, 1)
    said = f"ordsmed: rank 1: rank 0: does not answer: lost or hanging; {watch.RESUME_REMEDY}\n"
    assert (statuses, capsys.readouterr().err) == ([75], said)
    with ranks.end_unless_answered(0.0, Ranks(torch.device("cpu"), 0, 2)):
        ended.clear()
        assert not ended.wait(0.05), "the first rank keeps the store itself"


def test_a_hanging_process_says_why_and_ends_once(
    board: Board, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(watch.os, "_exit", ended.append)
    own = of(board, 2)
    own._end(RunError("processes", "lost"))
    own._end(RunError("processes", "lost as well"))
    assert (ended, capsys.readouterr().err) == ([1], "ordsmed: rank 2: processes: lost\n")
    own._end(RunError("rank 0", "does not answer"), told=False)
    assert (ended, capsys.readouterr().err) == ([1, 1], "ordsmed: rank 2: rank 0: does not answer\n")


def test_the_first_beat_comes_at_once(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BEAT", 60.0)
    with of(board, 1) as own:
        for _ in range(6000):
            if "beat/1" in board.kept:
                break
            threading.Event().wait(0.01)
    assert own.count == 1


@pytest.mark.parametrize(
    ("patience", "broken_by", "wanted"),
    [
        (0.0, None, ["accused"]),
        (60.0, None, []),
        (60.0, TimeoutError(), ["rank 0: does not answer: lost or hanging"]),
        (60.0, RuntimeError("gone"), []),
        (-100.0, RuntimeError("gone"), ["rank 0: is gone, with all connections"]),
    ],
)
def test_what_a_beat_does(
    board: Board, ended: list[str], monkeypatch: pytest.MonkeyPatch, patience: float, broken_by: Any, wanted: list[str]
) -> None:
    """It accuses after patience ran out, not before; a first rank that is gone is waited for, as long as that."""
    own = of(board, 1, patience=patience)
    monkeypatch.setattr(own, "_end_if_hanging", lambda: ended.append("accused"))
    own.since -= 1.0
    board.broken = broken_by
    turns = iter([False, True])
    own.over = SimpleNamespace(wait=lambda seconds: next(turns))  # type: ignore[assignment]
    own._beat()
    assert [said.partition(";")[0] for said in ended] == wanted


def test_who_moves_is_patient_anew(board: Board) -> None:
    own = of(board)
    own.since -= 100.0
    before = own.since
    own.at(1, "learning")
    assert own.since > before + 99


@pytest.mark.parametrize(
    ("waited", "broken_by", "wanted"),
    [(70.0, None, ["accused"]), (60.1, RuntimeError("gone"), []), (61.0, RuntimeError("gone"), ["rank 0: is gone"])],
)
def test_patience_is_as_long_as_it_says(
    board: Board, ended: list[str], monkeypatch: pytest.MonkeyPatch, waited: float, broken_by: Any, wanted: list[str]
) -> None:
    """And ten beats more for a first rank that may be ending the run in its own words."""
    own = of(board, 1, patience=60.0)
    monkeypatch.setattr(own, "_end_if_hanging", lambda: ended.append("accused"))
    own.since -= waited
    board.broken = broken_by
    turns = iter([False, True])
    own.over = SimpleNamespace(wait=lambda seconds: next(turns))  # type: ignore[assignment]
    own._beat()
    assert [said.partition(",")[0] for said in ended] == wanted

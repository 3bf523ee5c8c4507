"""The watch: each rank reports its progress, so that a lost or hanging rank is named and not waited for forever.

each rank, once a second:  beat/<rank> = [count, step, stage, machine, process]
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ordsmed.base.errors import Lost, OrdsmedError, RunError
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.ranks import NO_ANSWER, RESUME_REMEDY, Ranks, end_unless_answered, second_connection

BEAT = 1.0
ANSWER = 10.0  # seconds that the first rank has to answer
MAX_SILENCE = 60.0  # seconds that a rank may be silent while others wait for it
STAGES = ("starting", "making rows", "learning", "summing gradients", "judging", "saving")
UNLIMITED = ("starting", "saving")  # stages without a limit: data are made, disks are slow


class Watch:
    """Reports the progress of this rank, and finds ranks that are lost or hanging."""

    def __init__(
        self,
        ranks: Ranks,
        patience: float,
        *,
        stages: Sequence[str] = STAGES,
        remedy: str = RESUME_REMEDY,
        ending: Callable[[OrdsmedError], None] | None = None,
    ) -> None:
        """`stages`: the stages of a step in order; `ending`: called before this process ends."""
        self.ranks, self.patience = ranks, patience
        self.stages, self.remedy, self.ending = stages, remedy, ending
        self.step, self.stage, self.since, self.count = 0, stages[0], time.monotonic(), 0
        self.machine = os.environ.get("SLURMD_NODENAME") or socket.gethostname()  # the name in a job's script
        self.store: torch.distributed.Store | None = None
        if ranks.store is not None:
            with end_unless_answered(MAX_SILENCE, ranks):
                self.store = second_connection(ranks.store)
        self.over = threading.Event()
        self.report_lock = threading.Lock()  # held by the thread that ends this rank and prints the reason
        self.thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        if self.store is not None:
            self.thread = threading.Thread(target=self._beat, name="watch", daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread:
            self.thread.join()  # a thread that uses the store while the process ends would abort it

    def at(self, step: int, stage: str) -> None:
        self.step, self.stage, self.since = step, stage, time.monotonic()

    def report_end(self, error: OrdsmedError) -> None:
        """Store this rank's error for the other ranks. If rank 0 has the same error, only rank 0 prints it."""
        if self.store is None or error.echo:
            return
        with contextlib.suppress(RuntimeError):
            if isinstance(error, Lost):
                self.store.set(f"lost/{self.ranks.rank}", "")  # another rank is lost, as this one found out
            self.store.set(f"gone/{self.ranks.rank}", str(error))
            for _ in range(20 if not self.ranks.first else 10):
                time.sleep(0.05)  # the first rank keeps the store alive for this time
                if not self.ranks.first and self.store.check(["gone/0"]):
                    error.echo = self.store.get("gone/0").decode() == str(error)
                    return

    def explain(self, error: RuntimeError) -> OrdsmedError | None:
        """Return the error that explains a failed collective: which rank is gone, with its last report.

        Return None if the error is not about communication; an out-of-memory error is converted.
        """
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        if not (
            isinstance(error, torch.distributed.DistError) or bool(re.search(r"gloo|nccl|TCPStore", str(error), re.I))
        ):
            short = is_out_of_memory(error)
            complaint = RunError(f"rank {self.ranks.rank}", reason, "", _MEMORY if short else "")
            self.report_end(complaint)
            return complaint if short else None
        if not self.report_lock.acquire(blocking=False):
            time.sleep(60)  # the watch thread ends this process
        try:
            lost, beats = self._silent_ranks()
            return self._error_about(lost or self._slowest_ranks(beats), beats)
        except TimeoutError:
            self._end(NO_ANSWER, told=False)
            raise
        except RuntimeError:
            return Lost("rank 0", f"is gone ({reason})", "", self.remedy)

    def _beat(self) -> None:
        while not self.over.wait(BEAT if self.count else 0):
            try:
                self._send_beat()
                if time.monotonic() - self.since > self.patience:
                    self._end_if_hanging()
            except TimeoutError:
                self._end(NO_ANSWER)
            except RuntimeError:  # without the first rank's store, wait for the main thread's own error
                if time.monotonic() - self.since > self.patience + 10 * BEAT:
                    self._end(Lost("rank 0", "is gone, with all connections", "", self.remedy))

    def _send_beat(self) -> None:
        self.count += 1
        news = [self.count, self.step, self.stage, self.machine, os.getpid()]
        assert self.store is not None
        self.store.set(f"beat/{self.ranks.rank}", json.dumps(news))

    def _end_if_hanging(self) -> None:
        """End this process with an error that names the slowest rank, unless its stage has no time limit."""
        lost, beats = self._silent_ranks(max(min(self.patience, MAX_SILENCE), 2.5 * BEAT))
        slow = lost or self._slowest_ranks(beats)
        if not lost and all(beats[rank][2] in UNLIMITED for rank in slow):
            self.since = time.monotonic()  # a slow disk does not mean that the rank hangs
            return
        if not self.over.is_set():
            self._end(self._error_about(slow, beats))

    def _end(self, error: OrdsmedError, *, told: bool = True) -> None:
        if told and not self.report_lock.acquire(blocking=False):
            return
        print(f"ordsmed: rank {self.ranks.rank}: {error}", file=sys.stderr, flush=True)
        if self.ending:
            self.ending(error)
        os._exit(error.status)  # the main thread waits in a collective that nothing else ends

    def _silent_ranks(self, seconds: float = 2.5 * BEAT) -> tuple[list[int], dict[int, list[Any]]]:
        """Return the ranks that do not report any more, and the last reports of all ranks."""
        before, until = self._beats(), time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(BEAT, left))
            self._send_beat()  # keep reporting meanwhile
        now = self._beats()
        ranks = [rank for rank in range(self.ranks.world) if rank != self.ranks.rank]
        return [r for r in ranks if r not in now or now[r][0] == before.get(r, [-1])[0]], now

    def _beats(self) -> dict[int, list[Any]]:
        """Return the last reports of all ranks, or raise `TimeoutError`.

        The first rank keeps the reports and may itself hang, so a thread reads them.
        """
        answers: list[Any] = []

        def ask() -> None:
            try:
                answers.append(self._reports())
            except RuntimeError as error:
                answers.append(error)

        threading.Thread(target=ask, name="question", daemon=True).start()
        until = time.monotonic() + ANSWER
        while not answers:
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(0.01)
        if isinstance(answers[0], RuntimeError):
            raise answers[0]
        return dict(answers[0])

    def _reports(self) -> dict[int, list[Any]]:
        keys = {rank: f"beat/{rank}" for rank in range(self.ranks.world)}
        store = self.store
        assert store is not None
        return {rank: json.loads(store.get(key)) for rank, key in keys.items() if store.check([key])}

    def _slowest_ranks(self, beats: dict[int, list[Any]]) -> list[int]:
        far = {rank: (beat[1], self.stages.index(beat[2])) for rank, beat in beats.items()}
        return [rank for rank, location in far.items() if location == min(far.values())] if far else []

    def _error_about(self, ranks: list[int], beats: dict[int, list[Any]]) -> OrdsmedError:
        names, store = [], self.store
        kind: type[RunError] = Lost
        assert store is not None
        for rank in ranks:
            _, step, stage, host, process = beats.get(rank, [0, 0, self.stages[0], "?", "?"])
            gone = f"gone/{rank}"
            last = f": {store.get(gone).decode()}" if store.check([gone]) else ""
            if last and not store.check([f"lost/{rank}"]):
                kind = RunError  # the rank's own error, which would happen on other machines too
            names.append(f"rank {rank} ({host}, process {process}) at step {step}, {stage}{last}")
        lost = len(ranks) < self.ranks.world
        problem = ("lost or hanging: " if lost else "all ranks wait for each other: ") + "; ".join(names)
        return kind("processes", problem, f"a step within {self.patience:g} s of all {self.ranks.world}", self.remedy)


_MEMORY = "lower `layout.micro`, set `layout.recompute=true`, or split the weights with `layout.shard`"

"""Waits for other processes that a signal can interrupt, with a line per minute, and the lookup of host names."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ordsmed.base import ending
from ordsmed.base.errors import RunError

T = TypeVar("T")
RESOLVING = 30.0  # seconds that the system has to look up the first machine's name
LINE = 60.0  # seconds between two lines of a process that waits
LOOK = 0.05


class WaitingLine:
    """Prints what this process waits for, every LINE seconds; with `silent`, nothing."""

    def __init__(self, rank: int, seconds: float, *, silent: bool) -> None:
        self.rank, self.seconds, self.silent = rank, seconds, silent
        self.began = self.printed = time.monotonic()

    def tell(self, whom: Callable[[], str]) -> None:
        now = time.monotonic()
        if now - self.printed < LINE:
            return
        self.printed = now
        if not self.silent:
            passed = f"{now - self.began:.0f} of {self.seconds:.0f} s"
            print(f"ordsmed: rank {self.rank}: waiting for {whom()} ({passed})", file=sys.stderr, flush=True)


def interruptible(act: Callable[[], T], while_waiting: Callable[[], None] = lambda: None, limit: float = 0.0) -> T:
    """Run `act` in a separate thread and return its result, so that a signal can interrupt the wait.

    Raise TimeoutError after `limit` seconds; 0: no limit.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:  # raised again in the waiting thread
            outcome.set_exception(error)

    began, thread = time.monotonic(), threading.Thread(target=work, name="meeting", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK)
            while_waiting()
            if limit and time.monotonic() - began > limit and thread.is_alive():
                raise TimeoutError
    except BaseException:
        ending.note_connected()  # the thread may be inside torch, so the process must skip the interpreter's shutdown
        raise
    return outcome.result()


def resolve_address(address: str, rank: int) -> None:
    """Resolve the name of the first machine, with retries. Raise an error after RESOLVING seconds."""
    problem = ["the name server does not answer"]
    until = time.monotonic() + RESOLVING

    def look_up() -> bool:
        while True:
            try:
                return bool(socket.getaddrinfo(address, None))
            except (OSError, UnicodeError) as error:
                problem[0] = getattr(error, "strerror", None) or str(error)
            if time.monotonic() >= until:
                return False
            time.sleep(min(1.0, RESOLVING / 10))

    try:
        if interruptible(look_up, limit=RESOLVING + 1):
            return
    except TimeoutError:
        pass
    unknown = f"found {address}, which rank {rank} could not resolve within {RESOLVING:g} s ({problem[0]})"
    remedy = f"set MASTER_ADDR to another name or address of that machine; check it with `getent hosts {address}`"
    raise RunError("MASTER_ADDR", unknown, "a name of the first machine that all machines can resolve", remedy)

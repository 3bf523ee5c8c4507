"""Start one process per device on this machine, forward signals to them, and end them together.

ordsmed pretrain R --devices 4  ->  four times `ordsmed pretrain R`, with the variables that torchrun sets
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from ordsmed.base.ending import DEVICES, STOP_SIGNALS
from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import host
from ordsmed.base.say import many, say

GRACE = 15.0  # seconds for the other ranks to report after one failed
PASSED_ON = STOP_SIGNALS
LOOK = 0.05
UNREAD = 128 + signal.SIGPIPE  # exit status of a process whose output has no reader


def start(words: Sequence[str], devices: int, *, restarts: int = 0) -> int:
    """Run `ordsmed WORDS` as `devices` processes and return the exit status.

    After a failure, restart all of them up to `restarts` times.
    """
    if devices > (most := host.max_processes()):
        raise RecipeError("--devices", f"found {many(devices, 'process')}", f"at most {most:,} on this machine")
    for attempt in range(restarts + 1):
        if attempt:
            words = [word for word in words if word != "--anew"]
        status, stopped = _once(words, devices)
        if status == 0 or stopped or attempt == restarts:
            break
        say(f"all {many(devices, 'process')} restart ({attempt + 1} of {restarts})")
    return status


def _once(words: Sequence[str], devices: int) -> tuple[int, bool]:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(_port_of_our_own())
        processes = _processes(words, devices, port)
        heard = stack.enter_context(_signals_to(processes))
        first = _first_failure(processes)
        if first is None:
            return 0, False
        rank, status = first
        if not heard and status < 0:
            say(f"rank {rank} was ended by {signal.Signals(-status).name}; start the same command again to resume")
        _end(processes)
        if any(p.poll() == UNREAD for p in processes):
            return UNREAD, True  # no reader: other failures follow from it, and a restart would not help
        # a rank that received a signal counts as asked to stop
        return (status if status > 0 else 128 - status), bool(heard) or status - 128 in PASSED_ON


def _processes(words: Sequence[str], devices: int, port: int) -> list[subprocess.Popen[bytes]]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(devices):
            processes.append(_process(words, rank, devices, port))
    except OSError:
        for process in processes:
            process.kill()
            process.wait()
        raise
    return processes


def _process(words: Sequence[str], rank: int, devices: int, port: int) -> subprocess.Popen[bytes]:
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # no stack trace of torch if stopped in the rendezvous
    env = (
        quiet
        | os.environ
        | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(devices),
            "LOCAL_WORLD_SIZE": str(devices),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            DEVICES: str(devices),
        }
    )
    # start a new session: Ctrl-C reaches only this process, which forwards it once
    command = [sys.executable, "-m", "ordsmed", *words]
    return subprocess.Popen(command, env=env, start_new_session=True, preexec_fn=end_with_parent)


def _first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int] | None:
    """Wait for all processes. Return the rank and status of the first one that fails, or None."""
    left = dict(enumerate(processes))
    while left:
        for rank, process in list(left.items()):
            status = process.poll()
            if status is not None:
                del left[rank]
                if status:
                    return rank, status
        time.sleep(LOOK)
    return None


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + GRACE
    while time.monotonic() < until and any(p.poll() is None for p in processes):
        time.sleep(LOOK)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextmanager
def _signals_to(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """Forward signals to the processes, and yield the list of received signals."""
    heard: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Make the kernel send SIGTERM to this process if its parent is killed (Linux only)."""
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


@contextmanager
def _port_of_our_own() -> Iterator[int]:
    """Yield a free port for the first rank, and hold it so that no other launcher gets it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the first rank: both can bind it
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])

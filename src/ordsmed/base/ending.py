"""The end of a command: exceptions for signals, the exit status, and the command to resume with."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from ordsmed.base.screen import command, command_lines

GOES_ON = "resume"  # a stopped verb keeps its finished work and can be resumed
BEGINS_AGAIN = "restart"  # a stopped verb keeps nothing and starts from the beginning
DEVICES = "ORDSMED_DEVICES"  # environment variable of processes started by `--devices`: the number of processes
STOP_AT = "ORDSMED_STOP_AT"  # environment variable of rank 0: the step after which the run saves and stops
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)  # signals that make a run save and stop
HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # those that Python does not turn into an exception
_connected = False
_nothing_done = False  # the command was stopped before it or an earlier call of it did any work
_status: int | None = None  # exit status for `exit_at_once`; None: exit normally


class Ended(KeyboardInterrupt):
    """Raised by a signal that ends the process, like KeyboardInterrupt by Ctrl-C, so that cleanup code runs."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Stopped(Exception):
    """Raised when a run stops early, after it has saved its state.

    `by` is the number of the signal that stopped it; 0 means a planned stop.
    """

    def __init__(self, step: int, by: int) -> None:
        self.step, self.by = step, by
        super().__init__(f"stopped at step {step}")


def note_connected() -> None:
    """Record that this process is connected to others: threads of torch may still use tensors at exit."""
    global _connected
    _connected = True


def note_nothing_done() -> None:
    """Record that this command has not done any work, so that no command to resume it is printed."""
    global _nothing_done
    _nothing_done = True


@contextlib.contextmanager
def recording_status() -> Iterator[None]:
    """Record the exit status of this block for `exit_at_once`, if the process connected to others."""
    global _connected, _nothing_done, _status
    _connected, _nothing_done, _status, status = False, False, None, 1
    try:
        yield
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    finally:
        _status = status if _connected else None


def exit_at_once() -> None:
    """End the process without the interpreter's shutdown, if it was connected to others. Call it last.

    A torch thread that releases a tensor during the shutdown would abort the process or hang it.
    """
    if _status is not None:
        with contextlib.suppress(OSError, ValueError):  # the output may be closed
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_status)


@contextlib.contextmanager
def handling_signals() -> Iterator[None]:
    """In this block, raise `Ended` on a signal to stop, unless the signal has another handler or is ignored."""
    process = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # this is a forked child, which inherited the handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise Ended(number)

    listening = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, hear) for n in HANDLED if listening and signal.getsignal(n) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def devices_flag() -> list[str]:
    """Return the `--devices` flag with which this process was started, or an empty list."""
    return ["--devices", os.environ[DEVICES]] if DEVICES in os.environ else []


def stop_lines(verb: str, words: Sequence[str], after: str = "") -> str:
    """Return the lines to print after a stop. `after`: GOES_ON, BEGINS_AGAIN, or "" for a verb without output."""
    if after == GOES_ON and not _nothing_done:
        again = [word for word in words if word != "--anew"]  # the flag would discard the finished work
        lines = command_lines(
            "stopped; finished work is kept, resume with", command(*verb.split(), *again, *devices_flag())
        )
        return "\n".join(lines)
    if after:
        title = "stopped; nothing was kept, start again with"
        return "\n".join(command_lines(title, command(*verb.split(), *words, *devices_flag())))
    return "stopped"

"""How commands end after a signal: exceptions, cleanup, exit status, and the command to resume with."""

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
DEVICES = "ORDSMED_DEVICES"  # environment variable of a process started by `--devices`: their number
STOP_AT = "ORDSMED_STOP_AT"  # environment variable of rank 0: the step after which the run saves and stops
TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)  # signals that make a run save and stop
ASKED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # those that Python does not turn into an exception
_connected = False
_nothing_done = False  # the command was stopped before it did anything, and no earlier one did anything
_status: int | None = None  # exit status if `last` has to end the process at once; None: a normal end


class Ended(KeyboardInterrupt):
    """A signal that ends the process like Ctrl-C, so that unfinished files are removed."""

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


def connected() -> None:
    """Record that this process is connected to others, whose torch threads may still hold tensors at exit."""
    global _connected
    _connected = True


def nothing_done() -> None:
    """Record that this command ends before it did anything, so that no command to resume it is printed."""
    global _nothing_done
    _nothing_done = True


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Record the exit status for `last`, if the command connects to other processes."""
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


def last() -> None:
    """End the process at once if it was connected to others; to be called last of all.

    In a normal exit of Python, a thread that releases a tensor while the interpreter shuts down aborts or hangs the
    process.
    """
    if _status is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed output would print another error
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_status)


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Raise `Ended` on a signal to stop, unless the signal has another handler (`nohup`, the training loop)."""
    process = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a process that was forked from this one
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise Ended(number)

    listening = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, hear) for n in ASKED if listening and signal.getsignal(n) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def side_by_side() -> list[str]:
    """Return the `--devices` flag that started this process, for the command to resume with; else nothing."""
    return ["--devices", os.environ[DEVICES]] if DEVICES in os.environ else []


def stopped(verb: str, words: Sequence[str], after: str = "") -> str:
    """Return the lines to print after a stop. `after` says whether the verb resumes or starts again."""
    if after == GOES_ON and not _nothing_done:
        again = [word for word in words if word != "--anew"]  # with --anew the command would start from the beginning
        lines = command_lines(
            "stopped; finished work is kept, resume with", command(*verb.split(), *again, *side_by_side())
        )
        return "\n".join(lines)
    if after:
        title = "stopped; nothing was kept, start again with"
        return "\n".join(command_lines(title, command(*verb.split(), *words, *side_by_side())))
    return "stopped"

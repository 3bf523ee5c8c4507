"""How a command ends that is asked to: what it leaves, and how to go on."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from ordsmed.base.screen import command, command_lines

GOES_ON = "goes on"  # of a verb that is stopped: what is done stands
BEGINS_AGAIN = "begins again"  # nothing is left of it
DEVICES = "ORDSMED_DEVICES"  # tells a process how many `--devices` started it with
STOP_AT = "ORDSMED_STOP_AT"  # a step of a run, which is saved and stops behind it; as the first process has it
TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)  # ask a run to save and stop
ASKED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_connected = False
_nothing_done = False  # this command was ended before it, or one before it, did anything
_status: int | None = None  # with which this process ends at once; None: as any other


class Ended(KeyboardInterrupt):
    """A signal that ends the process, heard as Ctrl-C is: whatever is half made is cleared away."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Stopped(Exception):
    """A run was asked to stop, saved first and told how to go on; `by` is the signal's number, 0: where it was to."""

    def __init__(self, step: int, by: int) -> None:
        self.step, self.by = step, by
        super().__init__(f"stopped at step {step}")


def connected() -> None:
    """This process is connected to others: threads of torch's hold what was sent a little longer than who sent it."""
    global _connected
    _connected = True


def nothing_done() -> None:
    """Note that this command ends before anything was done, so that no one is told to resume it."""
    global _nothing_done
    _nothing_done = True


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """The status of a command that is connected to others meanwhile is noted, for `last`."""
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
    """The last that a process does: after a command that was connected to others it ends at once.

    Else Python is taken apart first, and a thread that lets go of a tensor meanwhile aborts the process, or hangs it.
    """
    if _status is not None:
        with contextlib.suppress(OSError, ValueError):  # else Python says that it cannot write
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_status)


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """What asks to stop raises `Ended` in here, where nobody else listens to it (`nohup`, a run's own loop)."""
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
    """The flag that started this process and its likes, so that one goes on with as many; empty where others did."""
    return ["--devices", os.environ[DEVICES]] if DEVICES in os.environ else []


def stopped(verb: str, words: Sequence[str], after: str = "") -> str:
    """Return what is printed of a command that was ended; `after`: what the verb does when it is given again."""
    if after == GOES_ON and not _nothing_done:
        again = [word for word in words if word != "--anew"]  # it would start from the beginning
        lines = command_lines(
            "stopped; what is done stands, go on with", command(*verb.split(), *again, *side_by_side())
        )
        return "\n".join(lines)
    if after:
        title = "stopped; nothing is left of it, begin again with"
        return "\n".join(command_lines(title, command(*verb.split(), *words, *side_by_side())))
    return "stopped"

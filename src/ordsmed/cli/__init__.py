"""The command `ordsmed`: which verb its words mean, and how it ends; verbs are files of verbs/."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence

from ordsmed.base import ending
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError
from ordsmed.base.files import in_a_line
from ordsmed.base.machine.host import age
from ordsmed.cli import overview, verb
from ordsmed.cli.output import fail, print_lines, speaks

ALSO = {
    "-h": "help",
    "--help": "help",
    "--version": "version",
    "-v": "version",
    "-V": "version",
    "site": "sites",
}  # what people try first
atexit.register(ending.last)  # what is registered first is done last
atexit.register(gc.freeze)  # with torch, what still lives when a process ends is half a second to look through


def main(words: Sequence[str] | None = None) -> None:
    """Run one verb; what a user can mend is one line; exit status: 2 wrong words, 75 a process was lost, 1 all else."""
    began = time.time() - age() if words is None else None  # called with words, it is a part of another program
    with ending.noted():
        _main(list(sys.argv[1:] if words is None else words), began)


def _main(words: list[str], began: float | None) -> None:
    try:
        with ending.heard(), in_a_line():
            _run(words, began)
    except OrdsmedError as error:
        if error.echo or (isinstance(error, RecipeError | UsageError) and not speaks()):  # every process finds the same
            sys.exit(error.status)
        fail(str(error), error.status)
    except BrokenPipeError:  # the reader went away, as `head` does: nobody is left to print to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except RecursionError as error:
        if "JSON" not in str(error):
            raise
        fail(str(DataError("a file of JSON", "is nested too deeply to be read", "a file as this verb takes it")), 1)
    except ending.Stopped as run:  # which told how to go on
        sys.exit(128 + run.by if run.by else 0)
    except KeyboardInterrupt as stopped:
        _stopped(words, stopped)


def _run(words: list[str], began: float | None) -> None:
    if not words:
        print_lines(overview.first_steps())
        return
    words = [ALSO.get(words[0], words[0]), *words[1:]]
    name = verb.named(words)
    if name.startswith("-"):
        wanted = "`ordsmed VERB`, and flags behind it"
        raise UsageError(f"`{name}`", "no such verb", wanted, "`ordsmed help` lists them")
    entry = verb.find(name)
    rest = words[len(name.split()) :]
    read = entry.own(rest)
    args = entry.parser(helped="-h" in read or "--help" in read).read(read)
    args.words, args.others, args.began = [name, *rest], rest[len(read) :], began
    if folder := getattr(args, "cache_dir", None):
        from ordsmed.base import hub

        os.environ[hub.CACHE] = folder
    entry.run(args)


def _stopped(words: Sequence[str], by: KeyboardInterrupt) -> None:
    """End as asked, and say how to go on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more: at once
    status = 128 + (by.number if isinstance(by, ending.Ended) else signal.SIGINT)
    name = verb.named(words) if words else ""
    if not speaks():
        sys.exit(status)
    after = verb.find(name).stopped if name in verb.names() else ""
    fail(ending.stopped(name, words[len(name.split()) :], after), status)

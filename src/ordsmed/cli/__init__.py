"""The command `ordsmed`: find the verb, parse its words, run it, and turn errors and signals into an exit status."""

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
from ordsmed.base.files import errors_in_one_line
from ordsmed.base.machine.host import age
from ordsmed.cli import overview, verb
from ordsmed.cli.output import fail, print_lines, speaks

ALIASES = {"-h": "help", "--help": "help", "--version": "version", "-v": "version", "-V": "version", "site": "sites"}
atexit.register(ending.exit_at_once)  # registered first, so it runs last
atexit.register(gc.freeze)  # with torch, collecting the remaining objects at exit takes half a second


def main(words: Sequence[str] | None = None) -> None:
    """Run a verb. User errors are one line. The exit status is 2 for wrong words, 75 for a lost process, 1 for other
    errors.
    """
    began = time.time() - age() if words is None else None  # None: another program called this function
    with ending.recording_status():
        _main(list(sys.argv[1:] if words is None else words), began)


def _main(words: list[str], began: float | None) -> None:
    try:
        with ending.handling_signals(), errors_in_one_line():
            _run(words, began)
    except OrdsmedError as error:
        # all ranks raise the same RecipeError or UsageError, so only rank 0 prints it
        if error.echo or (isinstance(error, RecipeError | UsageError) and not speaks()):
            sys.exit(error.status)
        fail(str(error), error.status)
    except BrokenPipeError:  # the reader of standard output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except RecursionError as error:
        if "JSON" not in str(error):
            raise
        fail(str(DataError("a JSON file", "is nested too deeply to be read", "a file in the format of this verb")), 1)
    except ending.Stopped as run:  # the command has printed how to resume it
        sys.exit(128 + run.by if run.by else 0)
    except KeyboardInterrupt as stopped:
        _stopped(words, stopped)


def _run(words: list[str], began: float | None) -> None:
    if not words:
        print_lines(overview.first_steps())
        return
    words = [ALIASES.get(words[0], words[0]), *words[1:]]
    name = verb.named(words)
    if name.startswith("-"):
        wanted = "`ordsmed VERB`, followed by flags"
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends at once
    status = 128 + (by.number if isinstance(by, ending.Ended) else signal.SIGINT)
    name = verb.named(words) if words else ""
    if not speaks():
        sys.exit(status)
    after = verb.find(name).stopped if name in verb.names() else ""
    fail(ending.stop_lines(name, words[len(name.split()) :], after), status)

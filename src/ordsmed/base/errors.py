"""The errors a user meets: four classes under one, each message with place, found, wanted and remedy.

OrdsmedError
  RecipeError   what was asked for cannot be (a recipe, a flag, an argument)
  DataError     what a file or folder holds is not what it should
  RunError      what happened on the way (a full disk)
    Trouble     what happened to a training (a loss that is not a number)
    Lost        a process of several is gone, or hangs: the same may go well elsewhere
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator


class OrdsmedError(Exception):
    """One line: `place: found; wanted ...; remedy`. Exit status 1 at the command line."""

    status = 1
    echo = False  # of several processes the first one tells it

    def __init__(self, place: object, found: str, wanted: str = "", remedy: str = "") -> None:
        self.place, self.found, self.wanted, self.remedy = str(place), found, wanted, remedy
        parts = [f"{place}: {found}", f"wanted {wanted}" if wanted else "", remedy]
        message = "; ".join(part for part in parts if part)
        super().__init__(" ".join(message.split("\n")))  # names of files may have line ends in them

    def __reduce__(self) -> tuple[type[OrdsmedError], tuple[str, str, str, str]]:
        return type(self), (self.place, self.found, self.wanted, self.remedy)


class RecipeError(OrdsmedError):
    """What was asked for cannot be."""


class DataError(OrdsmedError):
    """What a file or folder holds is not what it should."""


class RunError(OrdsmedError):
    """What happened on the way."""


class Trouble(RunError):
    """The training itself is ill, and nothing is left to be done about it here; all ranks find the same."""


class Lost(RunError):
    """A process of several is gone, or hangs, and told no error of its own: the same may go well elsewhere."""

    status = 75  # as sysexits.h has it: a failure that passes


DEAD_WORKER = r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal|exited unexpectedly)"
NO_PROCESS = (os.strerror(errno.EAGAIN), "can't start new thread")  # what a failed fork or start of a thread says


def lost_process(error: BaseException) -> Lost | None:
    """Return `error` as one line if a process that makes rows was killed, or none could be started; else None."""
    words = str(error).strip()
    if isinstance(error, RuntimeError) and (dead := re.search(DEAD_WORKER, words)):
        remedy = "give the run more memory or fewer `layout.workers`; the same command goes on from the last checkpoint"
        problem = f"process {dead[1]} was killed, perhaps because memory was full"
        return Lost("a process that makes rows", problem, "", remedy)
    no_fork = isinstance(error, OSError) and (error.errno, error.strerror) == (errno.EAGAIN, NO_PROCESS[0])
    no_thread = isinstance(error, RuntimeError) and (words == NO_PROCESS[0] or NO_PROCESS[1] in words)
    if no_fork or no_thread:
        remedy = "raise `ulimit -u`, or take fewer `processes`, `--devices` or `layout.workers`; then start it again"
        return Lost("processes", f"the system starts no more of them ({NO_PROCESS[0]})", "", remedy)
    return None


@contextlib.contextmanager
def lost_processes() -> Iterator[None]:
    """Raise the death of a process that this one started, and a limit of processes, as `Lost`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if lost := lost_process(error):
            raise lost from error
        raise


MANY = 40  # names that a line can take
FEW = 3  # names that are suggested at most


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that `name` is probably a misspelling of: up to three, and often none.

    Names are compared in lower case, without the signs between their words. The best of these rules decides:
    1. `name` is the same: `top_k` and `top-k`;
    2. it differs by few edits: one, or one for every four characters of the longer name, as `lerning_rate` and
       `learning_rate`; words of one or two characters by none. An edit adds, drops, replaces or swaps characters;
    3. it has three characters or more and is the beginning of names that are at most three times as long: `eval` and
       `evaluate`.
    """
    written_alike = sorted(sorted(set(names)), key=lambda known: ("_" in known) == ("_" in name))
    word, once = _spelling(name), {_spelling(known): known for known in written_alike}  # of two spellings the last one
    spelled = {known: text for text, known in sorted(once.items())}
    edits = {
        known: (count, not text.startswith(word))  # of equally near names those that begin with the word
        for known, text in spelled.items()
        if (count := _edits(word, text)) <= _most_edits(word, text)
    }
    begun = [known for known, text in spelled.items() if 3 <= len(word) >= len(text) / 3 and text.startswith(word)]
    likeliest = [known for known, count in edits.items() if count == min(edits.values())] or begun
    return likeliest if len(likeliest) <= FEW else []


def meant(name: str, names: Iterable[str]) -> str:
    """Return `did you mean X?`; empty if no name is near."""
    return (
        f"did you mean {' or '.join(f'`{known}`' for known in likeliest)}?" if (likeliest := near(name, names)) else ""
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `did you mean X?`; if no name is near, those that contain `name`, or all."""
    names = sorted(names)
    if suggestion := meant(name, names):
        return suggestion
    if len(names) > MANY and len(_spelling(name)) >= 3:
        names = [known for known in names if _spelling(name) in _spelling(known)] or names
    more = f" ... and {len(names) - MANY // 4:,} others" if len(names) > MANY else ""
    return "there are: " + ", ".join(names[: MANY // 4] if more else names) + more


def same_name(word: str, name: str) -> bool:
    """Are two names the same but for capital letters and the signs between their words?"""
    return _spelling(word) == _spelling(name)


def _spelling(name: str) -> str:
    """A name as it is compared."""
    return re.sub(r"[-_\s./]", "", name.lower())


def _most_edits(word: str, name: str) -> int:
    """How many edits a misspelling has at most."""
    return max(1, len(word) // 4, len(name) // 4) if min(len(word), len(name)) > 2 else 0


def _edits(word: str, name: str) -> int:
    """Return the number of edits between two words: characters added, dropped, replaced, or neighbors swapped."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(word, 1):
        before, last, row = row, before, [i]
        for j, sign in enumerate(name, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != sign)))
            if i > 1 < j and letter == name[j - 2] and sign == word[i - 2]:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]

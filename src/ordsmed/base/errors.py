"""The errors that users see, each message with place, found, wanted and remedy.

OrdsmedError
  RecipeError   a recipe, flag or argument is not valid
  DataError     the contents of a file or folder are not valid
  RunError      something failed on the way (a full disk)
    Trouble     the training itself failed (a loss that is not a number)
    Lost        one of several processes died or hangs; another attempt may succeed
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator


class OrdsmedError(Exception):
    """An error of one line: `place: found; wanted ...; remedy`. The exit status of the command is 1."""

    status = 1
    echo = False  # whether another process already reports it

    def __init__(self, place: object, found: str, wanted: str = "", remedy: str = "") -> None:
        self.place, self.found, self.wanted, self.remedy = str(place), found, wanted, remedy
        parts = [f"{place}: {found}", f"wanted {wanted}" if wanted else "", remedy]
        message = "; ".join(part for part in parts if part)
        super().__init__(" ".join(message.split("\n")))  # file names may have line breaks

    def __reduce__(self) -> tuple[type[OrdsmedError], tuple[str, str, str, str]]:
        return type(self), (self.place, self.found, self.wanted, self.remedy)


class RecipeError(OrdsmedError):
    """A recipe, flag or argument is not valid."""


class DataError(OrdsmedError):
    """The contents of a file or folder are not valid."""


class RunError(OrdsmedError):
    """Something failed on the way."""


class Trouble(RunError):
    """The training itself failed and cannot continue. All ranks raise it."""


class Lost(RunError):
    """One of several processes died or hangs, and reported no error. Another attempt may succeed."""

    status = 75  # EX_TEMPFAIL of sysexits.h: a temporary failure


DEAD_WORKER = r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal|exited unexpectedly)"
NO_PROCESS = (os.strerror(errno.EAGAIN), "can't start new thread")  # what a failed fork or start of a thread says


def lost_process(error: BaseException) -> Lost | None:
    """Return a `Lost` if `error` says that a data worker was killed or that no process could be started; else None."""
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
    """Convert errors about a killed child process, or about a limit of processes, to `Lost`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if lost := lost_process(error):
            raise lost from error
        raise


MANY = 40  # most names to list in a message
FEW = 3  # most names to suggest


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that `name` is probably a misspelling of: up to three, and often none.

    Names are compared in lower case, without the characters between their words. The best of these rules decides: 1.
    `name` is the same: `top_k` and `top-k`; 2. it differs by few edits: one, or one per four characters of the longer
    name, such as `lerning_rate` and `learning_rate`; words of one or two characters by none. An edit adds, drops,
    replaces or swaps characters; 3. it has three characters or more and is the beginning of names that are at most
    three times as long: `eval` and `evaluate`.
    """
    written_alike = sorted(sorted(set(names)), key=lambda known: ("_" in known) == ("_" in name))
    # of two names with the same spelling the last one counts
    word, once = _spelling(name), {_spelling(known): known for known in written_alike}
    spelled = {known: text for text, known in sorted(once.items())}
    edits = {
        known: (count, not text.startswith(word))  # among equally near names, prefer those that begin with the word
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
    """Return whether two names differ only in case and in the characters between their words."""
    return _spelling(word) == _spelling(name)


def _spelling(name: str) -> str:
    return re.sub(r"[-_\s./]", "", name.lower())


def _most_edits(word: str, name: str) -> int:
    return max(1, len(word) // 4, len(name) // 4) if min(len(word), len(name)) > 2 else 0


def _edits(word: str, name: str) -> int:
    """Return the number of edits between two words: characters added, dropped, replaced, or neighbors swapped."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(word, 1):
        before, last, row = row, before, [i]
        for j, known_letter in enumerate(name, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != known_letter)))
            if i > 1 < j and letter == name[j - 2] and known_letter == word[i - 2]:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]

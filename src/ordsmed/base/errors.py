"""The errors that users see, each message with place, found, wanted and remedy.

OrdsmedError
  RecipeError   a recipe, flag or argument is not valid
  DataError     the contents of a file or folder are not valid
  RunError      the command failed while it ran (a full disk)
    Trouble     the training failed (a loss that is not a number)
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
    """The command failed while it ran."""


class Trouble(RunError):
    """The training failed and cannot continue. All ranks raise this error."""


class Lost(RunError):
    """One of several processes died or hangs, and reported no error. Another attempt may succeed."""

    status = 75  # EX_TEMPFAIL of sysexits.h: a temporary failure


DEAD_WORKER = r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal|exited unexpectedly)"
NO_PROCESS = (os.strerror(errno.EAGAIN), "can't start new thread")  # messages of a failed fork and of a failed thread


def lost_process(error: BaseException) -> Lost | None:
    """Return a `Lost` if `error` says that a data worker was killed or that no process could be started; else None."""
    words = str(error).strip()
    if isinstance(error, RuntimeError) and (dead := re.search(DEAD_WORKER, words)):
        remedy = "give the run more memory or fewer `layout.workers`; the same command resumes from the last checkpoint"
        problem = f"process {dead[1]} was killed, perhaps because memory ran out"
        return Lost("a data worker", problem, "", remedy)
    no_fork = isinstance(error, OSError) and (error.errno, error.strerror) == (errno.EAGAIN, NO_PROCESS[0])
    no_thread = isinstance(error, RuntimeError) and (words == NO_PROCESS[0] or NO_PROCESS[1] in words)
    if no_fork or no_thread:
        remedy = "raise `ulimit -u`, or use fewer `processes`, `--devices` or `layout.workers`; then start it again"
        return Lost("processes", f"the system allows no more of them ({NO_PROCESS[0]})", "", remedy)
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


MAX_LISTED = 40  # names in a message
MAX_SUGGESTED = 3


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three names of which `name` is probably a misspelling.

    Names are compared in lower case, without separators (`top-k` equals `top_k`). The names with the fewest edits are
    returned: at most one edit per four characters of the longer name (`lerning_rate`), none for one or two characters.
    An edit adds, drops, replaces or swaps characters. If there are none, return the names that begin with `name`, if it
    has at least three characters and a third of their length (`eval` for `evaluate`).
    """
    by_separator = sorted(sorted(set(names)), key=lambda known: ("_" in known) == ("_" in name))
    # of two names with the same spelling, keep the last one, which is written like `name`
    word, unique = _spelling(name), {_spelling(known): known for known in by_separator}
    spelled = {known: text for text, known in sorted(unique.items())}
    edits = {
        known: (count, not text.startswith(word))  # of names with equally many edits, prefer those that begin with it
        for known, text in spelled.items()
        if (count := _edits(word, text)) <= _most_edits(word, text)
    }
    longer = [known for known, text in spelled.items() if 3 <= len(word) >= len(text) / 3 and text.startswith(word)]
    likeliest = [known for known, count in edits.items() if count == min(edits.values())] or longer
    return likeliest if len(likeliest) <= MAX_SUGGESTED else []


def meant(name: str, names: Iterable[str]) -> str:
    """Return `did you mean X?`; empty if no name is similar."""
    return (
        f"did you mean {' or '.join(f'`{known}`' for known in likeliest)}?" if (likeliest := near(name, names)) else ""
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `did you mean X?`; if no name is similar, a list of the names that contain `name`, or of all names."""
    names = sorted(names)
    if suggestion := meant(name, names):
        return suggestion
    if len(names) > MAX_LISTED and len(_spelling(name)) >= 3:
        names = [known for known in names if _spelling(name) in _spelling(known)] or names
    more = f" ... and {len(names) - MAX_LISTED // 4:,} others" if len(names) > MAX_LISTED else ""
    return "there are: " + ", ".join(names[: MAX_LISTED // 4] if more else names) + more


def same_name(word: str, name: str) -> bool:
    """Return whether two names differ only in case and separators."""
    return _spelling(word) == _spelling(name)


def _spelling(name: str) -> str:
    return re.sub(r"[-_\s./]", "", name.lower())


def _most_edits(word: str, name: str) -> int:
    return max(1, len(word) // 4, len(name) // 4) if min(len(word), len(name)) > 2 else 0


def _edits(word: str, name: str) -> int:
    """Return the Damerau-Levenshtein distance between two words (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(word, 1):
        before, last, row = row, before, [i]
        for j, known_letter in enumerate(name, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != known_letter)))
            if i > 1 < j and letter == name[j - 2] and known_letter == word[i - 2]:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]

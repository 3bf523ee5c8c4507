"""Lines for users, which are also logged, progress bars, and numbers in words."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from ordsmed.base.screen import columns, fitted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

YEAR = 365.2425 * 86400
_logs: list[TextIO] = []  # open log files; the last one is that of the innermost run
_bar: Live | None = None  # the active progress bar; lines are printed above it
_on_closed: Callable[[], object] | None = None  # called when standard error is closed; None: raise the error
_silent = False  # True on every rank except one, so that a line is printed once
_verbose = False  # whether `detail` prints to the terminal


def allow_output(allowed: bool) -> None:
    global _silent
    _silent = not allowed


def show_details(shown: bool = True) -> None:
    """Set whether `detail` prints to the terminal."""
    global _verbose
    _verbose = shown


@contextlib.contextmanager
def on_closed_output(then: Callable[[], object]) -> Iterator[None]:
    """Call `then` if standard error is closed in this block, as `tee` does at Ctrl-C, instead of raising an error."""
    global _on_closed
    before, _on_closed = _on_closed, then
    try:
        yield
    finally:
        _on_closed = before


@contextlib.contextmanager
def log_to(path: Path, before: str = "") -> Iterator[None]:
    """In this block, append every line to the log file `path`, which first gets the text `before`."""
    with path.open("a", encoding="utf-8") as log:
        with contextlib.suppress(OSError):  # a full disk, as in `_log`
            log.write(before)
            log.flush()
        _logs.append(log)
        try:
            yield
        finally:
            _logs.remove(log)


@contextlib.contextmanager
def buffered_log() -> Iterator[io.StringIO]:
    """In this block, collect every line for a log file that cannot be opened yet.

    After an error, the lines go to the enclosing log.
    """
    log, enclosing = io.StringIO(), _logs[-1:]
    _logs.append(log)
    try:
        yield log
    except BaseException:
        for outer in enclosing:
            outer.write(log.getvalue())
        raise
    finally:
        _logs.remove(log)


def say(line: str) -> None:
    if not _silent:
        _show(line)
        _log(line)


def detail(line: str) -> None:
    """Write a line to the log, and to standard error if details are shown."""
    if _verbose:
        say(line)
    elif not _silent:
        _log(line)


def _show(text: str) -> None:
    parts = [part for line in text.split("\n") for part in fitted(line, columns(sys.stderr))]
    if _bar is not None:
        for part in parts:
            _bar.console.print(part, markup=False, highlight=False, soft_wrap=True)
    else:
        try:
            print("\n".join(parts), file=sys.stderr, flush=True)
        except BrokenPipeError:
            if _on_closed is None:
                raise
            _on_closed()
        except OSError:  # standard error may be a file on a full disk
            pass


def _log(line: str) -> None:
    for log in _logs[-1:]:
        with contextlib.suppress(OSError):  # a full disk is reported where it affects more than the log
            log.write(line + "\n")
            log.flush()


class Progress:
    """A progress bar on a terminal, else lines at intervals.

    with Progress("encode", total, "MB") as shown: shown.add(1.0, "...")
    """

    def __init__(self, title: str, total: float, unit: str, *, done: float = 0.0, every: float = 10.0) -> None:
        self.title, self.total, self.unit, self.done, self.every = title, total, unit, done, every
        self.began, self.start, self.said = time.monotonic(), done, time.monotonic()
        self.bar: Live | None = None
        self.numbers: Sequence[str] = ()
        self.notes: Sequence[str] = ()
        self.end = 0.0  # estimated end on the clock of `began`; 0: unknown

    def __enter__(self) -> Progress:
        global _bar
        if sys.stderr.isatty() and _bar is None and not _silent:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            if not console.is_dumb_terminal:  # a dumb terminal cannot redraw a line
                self.bar = _bar = Live(get_renderable=lambda: self._redrawn(console), console=console, transient=True)
                self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        global _bar
        if self.bar:
            self.bar.stop()
            _bar = None

    def add(self, amount: float, *numbers: str, notes: Sequence[str] = ()) -> None:
        """Add progress. `numbers` are always shown, `notes` if the terminal is wide enough."""
        self.done += amount
        self.numbers, self.notes = numbers, notes
        now = time.monotonic()
        left = self._seconds_left(now)
        self.end = 0.0 if left is None else now + left
        if not self.bar and now - self.said > self.every:
            self.said = now
            say(f"{self.title}: {', '.join([self._amount(), *numbers, f'{self.left()} left', *notes])}")

    def left(self) -> str:
        return _or_unknown(self._seconds_left(time.monotonic()))

    def line(self, wide: int) -> str:
        """Return the progress line for a terminal of `wide` columns. If it is too long, the bar is dropped first."""
        left = [f"{duration(self.end - time.monotonic())} left"] if self.end else []
        numbers = [self._amount(), *self.numbers, *left]
        if len("  ".join(numbers)) > wide:
            numbers[0] = numbers[0].removesuffix(f" {self.unit}")
            while len(numbers) > 1 and len(" ".join(numbers)) > wide:
                numbers.pop()
            return (" " if len("  ".join(numbers)) > wide else "  ").join(numbers)[:wide]
        share = self.done / self.total if self.total else 0.0
        before, after = [self.title, f"{share:4.0%}"], list(self.notes)
        room = wide - len("  ".join(numbers))
        while len("".join([*before, *after])) + 2 * len([*before, *after]) > room:
            (after or before).pop()
        room -= len("".join([*before, *after])) + 2 * len([*before, *after]) + 2
        if before[1:] and room >= 10:
            before.insert(1, _bar_text(share, min(room, 30)))
        return "  ".join([*before, *numbers, *after])

    def _redrawn(self, console: Console) -> Text:
        from rich.text import Text

        return Text(self.line(console.width), no_wrap=True)

    def _seconds_left(self, now: float) -> float | None:
        passed, gained = now - self.began, self.done - self.start
        return (self.total - self.done) * passed / gained if gained > 0 else None

    def _amount(self) -> str:
        number = "{:,.0f}" if self.total >= 100 or isinstance(self.total, int) else "{:,.1f}"
        return f"{number.format(self.done)}/{number.format(self.total)} {self.unit}"


def _or_unknown(seconds: float | None) -> str:
    return "?" if seconds is None else duration(seconds)


def _bar_text(share: float, wide: int) -> str:
    full = round(min(share, 1.0) * wide)
    return "━" * full + "·" * (wide - full)


def duration(seconds: float) -> str:
    """Return a time in its two largest units: `3 s`, `4 min 10 s`, `5 h 2 min`, `3 d 4 h`, `4 d`, `19.6 years`."""
    s = int(max(seconds, 0))
    if s >= 1000 * 86400:
        return many(s / YEAR, "year")
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    largest = next((n for n, (_, long) in enumerate(units) if s >= long), 3)
    parts: list[str] = []
    for unit, long in units[largest : largest + 2]:
        count, s = divmod(s, long)
        parts += [f"{count} {unit}"] if count or not parts else []
    return " ".join(parts)


def with_article(noun: str) -> str:
    """Return a noun with its article: `a str`, `an int`."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def size(count: float) -> str:
    """Return a number of bytes: `1 byte`, `312 bytes`, `312 kB`, `1.75 GB`."""
    if count < 999.5:
        return many(round(count), "byte")
    sizes = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}
    unit = next((unit for unit, bytes in sizes.items() if count >= 0.9995 * bytes), "kB")  # rounds to 1 of this unit
    number = count / sizes[unit]
    return f"{number:.3g} {unit}" if number < 999.5 else f"{number:,.0f} {unit}"


def operations(count: float) -> str:
    """Return a number of floating point operations: `160 FLOP`, `14.6 GFLOP`, `3.2 EFLOP`."""
    for unit, large in (("Z", 1e21), ("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 0.9995 * large:  # rounds to 1 of this unit
            return f"{float(f'{count / large:.3g}'):,g} {unit}FLOP"
    return f"{count:.3g} FLOP"


def large(count: float) -> str:
    """Return a large number: `123,456`, `1.2 million`, `47 billion`."""
    for unit, factor in (("billion", 1e9), ("million", 1e6)):
        if count >= 0.9995 * factor:  # rounds to 1 of this unit
            return f"{float(f'{count / factor:.3g}'):,g} {unit}"
    return f"{count:,.0f}"


def in_words(value: object) -> str:
    """Return a setting or fact as text: `adamw (betas 0.9 0.999, decay 0.01)`."""
    if isinstance(value, dict):
        inner = ", ".join(f"{key} {in_words(setting)}" for key, setting in value.items() if key != "kind")
        return f"{value['kind']} ({inner})" if "kind" in value and inner else value.get("kind", inner)
    if isinstance(value, list):
        return " ".join(map(in_words, value)) or "none"
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def many(count: float, noun: str, is_: str = "", are: str = "") -> str:
    """Return a number with its noun, and a verb if one is given: `5,463 questions`, `2.5 epochs`, `1 file is`."""
    if isinstance(count, float):  # rounded to three digits
        rounded = float(f"{count:.3g}") if abs(count) < 999.5 else round(count)
        count = int(rounded) if rounded == int(rounded) else rounded
    if count == 1:
        return f"1 {noun} {is_}".rstrip()
    if re.search("(s|x|sh|(?<!epo)ch)$", noun):
        plural = f"{noun}es"
    else:
        plural = f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"
    return f"{count:,} {plural} {are}".rstrip()


def seconds(text: str) -> float:
    """Parse a time such as `3h`, `90m` or `90min`, `1h30m`, `45s`, `2d`, and return seconds."""
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?:{number}d)?(?:{number}h)?(?:{number}m(?:in)?)?(?:{number}s)?", text)
    if not match or len(text) > 20 or not any(float(n or 0) for n in match.groups()):
        raise ValueError(f"{text!r} is not a time: wanted for example 3h, 90m or 1h30m")
    return sum(float(n or 0) * unit for n, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))

"""TensorBoard events as a callback: losses, learning rates and speed during a run, if tensorboard is installed."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ordsmed.base.say import say
from ordsmed.train.callbacks import Callback
from ordsmed.train.job import Job


class Board(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write a number for a step."""

    def close(self) -> None:
        """Write all events and close the file."""


class TensorBoard(Callback):
    """Writes the numbers of metrics.jsonl as events; if the disk fails, events end and the run continues."""

    board: Board | None = None

    def begin(self, job: Job, folder: Path, start: int) -> None:
        self.board = open_board(folder, start)
        self.hook, threading.excepthook = threading.excepthook, self._on_thread_error

    def metrics(self, lines: Sequence[Mapping[str, Any]]) -> None:
        with self._may_fail():
            for line in lines:
                if "validation" in line:
                    numbers = {f"validation/{name}": value for name, value in line.items() if isinstance(value, float)}
                else:
                    known = [name for name in ("loss", "rate", "norm", "scale") if line.get(name) is not None]
                    numbers = {f"training/{name}": line[name] for name in known}
                for tag, value in numbers.items():
                    self._add(tag, value, line["step"])
            if steps := [line for line in lines if "tokens" in line]:
                seconds = sum(line["seconds"] for line in steps) or 1e-9
                self._add("speed/tokens_per_second", sum(line["tokens"] for line in steps) / seconds, steps[-1]["step"])

    def end(self) -> None:
        with self._may_fail():
            if self.board:
                self.board.close()
        threading.excepthook = self.hook

    def _add(self, tag: str, value: float, step: int) -> None:
        if self.board:
            self.board.add_scalar(tag, value, step)

    @contextlib.contextmanager
    def _may_fail(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.board = None
            say(f"no more TensorBoard events: {error.strerror or error}; metrics.jsonl has every number")

    def _on_thread_error(self, fault: threading.ExceptHookArgs) -> None:
        """Ignore disk errors in TensorBoard's writing thread: the next call raises them again."""
        if not (type(fault.thread).__module__.startswith("tensorboard") and issubclass(fault.exc_type, OSError)):
            self.hook(fault)


def open_board(folder: Path, start: int) -> Board | None:
    if importlib.util.find_spec("tensorboard") is None:
        _say_missing()
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1 if start else None)


@functools.cache
def _say_missing() -> None:
    say("no TensorBoard events (`pip install tensorboard` adds them); metrics.jsonl has every number")

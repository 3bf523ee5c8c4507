"""TensorBoard's events: every number of metrics.jsonl; a board that fails ends the events and not the run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.train import tensorboard
from ordsmed.train.tensorboard import TensorBoard

LINES: list[dict[str, Any]] = [
    {"step": 1, "loss": 8.0, "rate": 0.5, "norm": 1.0, "tokens": 40, "seconds": 0.5, "a": 3.0},
    {"step": 2, "loss": 4.0, "rate": 0.25, "norm": None, "scale": 64.0, "tokens": 60, "seconds": 1.5},
]


class Board:
    """As much of TensorBoard as is written to."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []
        self.full = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.seen.append((name, value, step))

    def close(self) -> None:
        self.seen.append(("closed", 0.0, 0))


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    opened = Board()
    monkeypatch.setattr(tensorboard, "open_board", lambda folder, start: opened)
    hook = threading.excepthook
    yield opened
    threading.excepthook = hook


@pytest.fixture
def events(board: Board, tmp_path: Path) -> TensorBoard:
    callback = TensorBoard()
    callback.begin(None, tmp_path, 0)  # type: ignore[arg-type]
    return callback


def test_every_number_of_steps_and_validations(events: TensorBoard, board: Board) -> None:
    events.metrics(LINES)
    events.metrics([{"step": 2, "phase": 1, "validation": 2.5, "mlm_right": 0.5}])
    events.end()
    assert board.seen == [
        ("training/loss", 8.0, 1),
        ("training/rate", 0.5, 1),
        ("training/norm", 1.0, 1),
        ("training/loss", 4.0, 2),
        ("training/rate", 0.25, 2),
        ("training/scale", 64.0, 2),
        ("speed/tokens_per_second", 50.0, 2),
        ("validation/validation", 2.5, 2),
        ("validation/mlm_right", 0.5, 2),
        ("closed", 0.0, 0),
    ]


@pytest.mark.parametrize(("start", "purged"), [(0, None), (4, 5)])
def test_events_after_the_step_that_is_resumed_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, purged: int | None
) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard")
    monkeypatch.setattr(writer, "SummaryWriter", lambda folder, purge_step: (folder, purge_step))
    assert tensorboard.open_board(tmp_path, start) == (str(tmp_path / "tensorboard"), purged)


def test_a_board_that_cannot_be_written_ends_and_the_run_goes_on(
    events: TensorBoard, board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    board.full = True
    events.metrics(LINES)
    assert events.board is None
    assert "no more TensorBoard events: No space left on device" in capsys.readouterr().err
    events.metrics([{"step": 1, "validation": 1.0}])
    events.end()
    assert board.seen == []


def test_only_its_boards_faults_are_swallowed(board: Board, tmp_path: Path) -> None:
    heard: list[Any] = []
    threading.excepthook = heard.append
    events = TensorBoard()
    events.begin(None, tmp_path, 0)  # type: ignore[arg-type]
    writer = type("Thread", (), {"__module__": "tensorboard.summary.writer"})()
    for thread, kind in ((writer, OSError), (writer, ValueError), (threading.Thread(), OSError)):
        threading.excepthook(SimpleNamespace(thread=thread, exc_type=kind))  # type: ignore[arg-type]
    assert [fault.exc_type for fault in heard] == [ValueError, OSError]
    events.end()
    assert threading.excepthook == heard.append

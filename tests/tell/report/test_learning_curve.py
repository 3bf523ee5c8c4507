"""Learning curves: metrics files of any length and state become a bounded number of points whose sums are exact."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from kit.planted_runs import falling, step_line
from ordsmed.tell.report import learning_curve
from ordsmed.tell.report.learning_curve import Known, LearningCurve


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_short_run_is_kept_step_by_step(tmp_path: Path) -> None:
    path = written(tmp_path / "m", [step_line(1, 3.0), step_line(2, 2.0, tokens=50), step_line(3, 2.5, phase=2)])
    found = learning_curve.read(path, Known({1: 10.0, 2: 100.0}))
    assert found["points"] == [
        [1.0, 3.0, 3.0, 3.0, 100.0, 0.5 / 3600, 10.0],
        [2.0, 2.0, 2.0, 2.0, 150.0, 1.0 / 3600, 20.0],
        [3.0, 2.5, 2.5, 2.5, 250.0, 1.5 / 3600, 120.0],
    ]
    assert (found["tokens"], found["flops"], found["loss"], found["lowest"], found["lowest_at"]) == (
        250,
        120.0,
        2.5,
        2.0,
        2.0,
    )
    assert found["phases"] == [[1, 1.0], [2, 3.0]]


@pytest.mark.parametrize("block", [1, 7, 1000, 1 << 20])
def test_blocks_of_any_size_give_the_same(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "m", [step_line(step, loss) for step, loss in enumerate(falling(60), 1)])
    whole = learning_curve.read(path, Known({}))
    monkeypatch.setattr(learning_curve, "BLOCK", block)
    assert learning_curve.read(path, Known({})) == whole


def test_long_ones_are_thinned_and_their_ends_and_extremes_are_exact() -> None:
    losses = falling(5003)
    losses[2500], losses[3000] = 40.0, 0.25
    found = LearningCurve(Known({1: 2.0}), most=50)
    for step, loss in enumerate(losses, 1):
        found.feed(json.dumps(step_line(step, loss)).encode() + b"\n")
    facts = found.facts()
    points = facts["points"]
    assert 50 <= len(points) <= 103
    assert points[0][:4] == [1.0, losses[0], losses[0], losses[0]]
    assert points[-1][:4] == [5003.0, losses[-1], losses[-1], losses[-1]]
    assert min(point[1] for point in points) == 0.25
    assert max(point[3] for point in points) == 40.0
    assert (facts["lowest"], facts["lowest_at"]) == (0.25, 3001.0)
    assert facts["tokens"] == points[-1][4] == 500_300
    assert facts["flops"] == points[-1][6] == 10_006.0
    steps = [point[0] for point in points]
    assert steps == sorted(steps)


def test_a_stretch_has_the_mean_of_its_steps() -> None:
    found = LearningCurve(Known({}), most=2)
    for step in range(1, 9):
        found.feed(json.dumps(step_line(step, float(step))).encode() + b"\n")
    inner = found.facts()["points"][1:-1]
    assert [point[:4] for point in inner] == [[4.0, 1.0, 2.5, 4.0], [8.0, 5.0, 6.5, 8.0]]


def test_a_last_line_that_was_cut_off_is_left_out_and_told(tmp_path: Path) -> None:
    path = written(tmp_path / "m", [step_line(1, 3.0), step_line(2, 2.0)])
    path.write_bytes(path.read_bytes()[:-30])
    found = learning_curve.read(path, Known({}))
    assert found["steps"] == 1
    assert found["cut"] == "line 2, the last, is incomplete; it is left out"
    assert found["damaged_count"] == 0


def test_a_last_line_without_its_end_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "m", [step_line(1, 3.0), step_line(2, 2.0)])
    path.write_bytes(path.read_bytes()[:-1])
    assert learning_curve.read(path, Known({}))["steps"] == 2


def test_losses_that_are_no_numbers_leave_a_gap(tmp_path: Path) -> None:
    lines = [step_line(1, 3.0), step_line(2, math.nan), step_line(3, math.inf), {**step_line(4, 0.0), "loss": None}]
    found = learning_curve.read(written(tmp_path / "m", [*lines, step_line(5, 2.0)]), Known({}))
    assert [point[2] for point in found["points"]] == [3.0, None, None, None, 2.0]
    assert (found["steps"], found["no_numbers"], found["first_no_number"], found["loss"]) == (5, 3, 2.0, 2.5)


def test_damaged_lines_are_counted_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "m"
    good = json.dumps(step_line(1, 3.0)).encode()
    path.write_bytes(
        b"\n".join([good, b"\xff\xfe garbage", b"[1, 2]", b'{"loss": 3}', good.replace(b"1,", b"2,", 1), b""])
    )
    found = learning_curve.read(path, Known({}))
    assert (found["steps"], found["damaged_count"], found["damaged"]) == (2, 3, [2, 3, 4])


def test_of_many_damaged_lines_the_first_three_are_named() -> None:
    found = LearningCurve(Known({}))
    for _ in range(3):
        found.feed(b"x\nx\n")
    assert (found.damaged, found.damaged_count) == ([1, 2, 3], 6)


def test_the_first_loss_that_is_no_number_is_the_first_of_all_blocks() -> None:
    found = LearningCurve(Known({}))
    for first in (1, 4, 7):
        lines = [step_line(first, 3.0), step_line(first + 1, math.nan), step_line(first + 2, math.nan)]
        found.feed("".join(json.dumps(line) + "\n" for line in lines).encode())
    facts = found.facts()
    assert (facts["no_numbers"], facts["first_no_number"], facts["loss_over"]) == (6, 2.0, 3)


def test_of_equal_losses_the_first_is_the_lowest() -> None:
    found = LearningCurve(Known({}))
    for step, loss in enumerate((3.0, 2.0, 2.5, 2.0), 1):
        found.feed(json.dumps(step_line(step, loss)).encode() + b"\n")
    assert found.lowest == (2.0, 2.0)


def test_the_best_validation_is_a_number() -> None:
    found = LearningCurve(Known({}))
    judged = [{"step": step, "validation": value} for step, value in enumerate((math.nan, 3.0, 2.0, math.inf, 2.5), 1)]
    found.feed("".join(json.dumps(line) + "\n" for line in judged).encode())
    assert found.facts()["best_judged"] == {"step": 3.0, "validation": 2.0}


def test_a_line_that_never_ends_is_one_that_is_damaged() -> None:
    found, good = LearningCurve(Known({})), json.dumps(step_line(1, 3.0)).encode() + b"\n"
    found.feed(good)
    for _ in range(5):
        found.feed(b"\0" * (learning_curve.LONGEST // 4))
    assert (found.rest, found.damaged) == (b"", [2])
    found.feed(good)
    assert (found.steps, found.damaged_count) == (2, 1)


def test_what_has_no_lines_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"\0" * (3 << 20))
    found = learning_curve.read(tmp_path / "m", Known({}))
    assert ((found["steps"], found["points"]) == (0, []) and found["cut"]) or found["damaged_count"]


def test_validations_stand_where_their_step_was_done(tmp_path: Path) -> None:
    lines = [
        step_line(1, 3.0),
        {"step": 1, "validation": 2.5, "f1": 80.0},
        step_line(2, 2.0),
        {"step": 2, "validation": 2.75},
    ]
    found = learning_curve.read(written(tmp_path / "m", lines), Known({1: 10.0}))
    assert found["validations"] == [[1.0, 2.5, 100.0, 0.5 / 3600, 10.0], [2.0, 2.75, 200.0, 1.0 / 3600, 20.0]]
    assert found["best_judged"] == {"step": 1.0, "validation": 2.5, "f1": 80.0}
    assert found["last_judged"] == {"step": 2.0, "validation": 2.75}


@pytest.mark.parametrize(("count", "kept", "apart"), [(1200, 1200, 1), (1201, 601, 2), (1202, 602, 2), (2402, 602, 4)])
def test_of_many_validations_in_a_block_the_last_is_the_last(count: int, kept: int, apart: int) -> None:
    """The first and the last are kept, the others are thinned evenly; the best one is reported in any case."""
    found = LearningCurve(Known({}))
    lines = [{"step": step, "validation": 1.0 + abs(step - 2)} for step in range(1, count + 1)]
    found.feed("".join(json.dumps(line) + "\n" for line in lines).encode())
    steps = [line["step"] for line in found.validations]
    assert (steps[0], steps[-1], len(steps)) == (1, count, kept)
    assert set(np.diff(steps)[:-1]) == {apart}
    assert found.best_validation == lines[1]


def test_device_hours_count_the_processes_of_each_step(tmp_path: Path) -> None:
    path = written(tmp_path / "m", [step_line(step, 3.0, seconds=3600.0) for step in range(1, 6)])
    found = learning_curve.read(path, Known({}, ((0, 4), (3, 8))))  # eight from the step after the third on
    assert (found["hours"], found["device_hours"]) == (5.0, 3 * 4 + 2 * 8)


def test_flops_that_are_not_known_are_none(tmp_path: Path) -> None:
    found = learning_curve.read(written(tmp_path / "m", [step_line(1, 3.0)]), Known({}))
    assert found["flops"] is None
    assert found["points"][0][6] is None

"""Measurements: what is written is read again, whatever a kill left."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kit.measurements import measurement
from ordsmed.base import measurements
from ordsmed.base.errors import DataError, RecipeError


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new/measurements.jsonl"
    first = measurement(energy=12.5, energy_of="RAPL", device="Prozessor ø")
    measurements.add(path, [first])
    measurements.add(path, [measurement(batch=7), measurement(compile=True)])
    assert measurements.read(path) == [first, measurement(batch=7), measurement(compile=True)]
    assert len(path.read_text().splitlines()) == 3
    assert json.loads(path.read_text().splitlines()[1])["batch"] == 7


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_line_that_was_cut_off_takes_nothing_with_it(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "measurements.jsonl"
    measurements.add(path, [measurement(batch=1), measurement(batch=2)])
    path.write_bytes(path.read_bytes()[:-cut])
    assert [each.batch for each in measurements.read(path)] == [1]
    measurements.add(path, [measurement(batch=3)])
    assert [each.batch for each in measurements.read(path)] == [1, 3]


def test_what_another_version_says_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "measurements.jsonl"
    table = dataclasses.asdict(measurement())
    path.write_text(json.dumps({**table, "colour": "blue"}) + "\n\n")
    assert measurements.read(path) == [measurement()]
    del table["width"]
    path.write_text(json.dumps(table) + "\n")
    with pytest.raises(RecipeError, match=r"measurements\.jsonl:1: width: missing"):
        measurements.read(path)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", ":1: is not a measurement; wanted a table"),
        ("[1]", ":1: is not a measurement"),
        ("\x00", ":1: is not a measurement"),
    ],
)
def test_a_line_that_is_none(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "measurements.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=why):
        measurements.read(path)


@pytest.mark.parametrize("changed", [{"batch": "many"}, {"step_seconds": 0.0}, {"sequences_per_second": float("inf")}])
def test_a_value_that_cannot_be(tmp_path: Path, changed: dict[str, object]) -> None:
    path = tmp_path / "measurements.jsonl"
    path.write_text(json.dumps(dataclasses.asdict(measurement()) | changed) + "\n")
    with pytest.raises(RecipeError, match=f":1: {next(iter(changed))}: found"):
        measurements.read(path)


def test_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file or directory; wanted measurements; `ordsmed bench RECIPE`"):
        measurements.read(tmp_path / "measurements.jsonl")

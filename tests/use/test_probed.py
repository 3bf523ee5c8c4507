"""What probes found, read again: results, what is none, and what is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.weights import probe_results

WHOLE: dict[str, Any] = {
    "accuracy": 0.5,
    "probe": "pairs",
    "way": "causal",
    "files": ["a/w.txt", "b.txt"],
    "key": "k",
    "model": "x/m",
    "step": 1000,
    "errors": {"accuracy": 0.1},
    "guessing": {"accuracy": None},
}
TOLD = "pairs (causal) of w.txt and 1 more at step 1,000: accuracy 0.5 ± 0.1"


def test_results_are_told_and_others_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores/a-1.json").write_text(json.dumps(WHOLE))
    (tmp_path / "scores/b-1.json").write_text("{}")
    assert probe_results.lines(tmp_path) == [TOLD]
    assert capsys.readouterr().err == ""


def test_results_of_one_probe_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    (tmp_path / "scores").mkdir()
    for number, settings in enumerate(({"least": 1, "most": 9}, {"least": 4, "most": 9})):
        (tmp_path / f"scores/a-{number}.json").write_text(json.dumps(WHOLE | {"settings": settings}))
    before, _, scores = TOLD.partition(":")
    assert probe_results.lines(tmp_path) == [f"{before}, least=1:{scores}", f"{before}, least=4:{scores}"]


@pytest.mark.parametrize(
    "damage",
    [
        {"files": []},
        {"files": None},
        {"files": [1]},
        {"files": {"a": 1}},
        {"model": 1},
        {"step": "x"},
        {"errors": None},
        {"errors": {"accuracy": "x"}},
        {"guessing": []},
        {"probe": None},
        {"precision": []},
        {"settings": []},
    ],
)
def test_a_damaged_result_is_told_and_costs_the_others_nothing(
    tmp_path: Path, damage: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores/a-1.json").write_text(json.dumps(WHOLE))
    (tmp_path / "scores/b-1.json").write_text(json.dumps(WHOLE | damage))
    assert probe_results.lines(tmp_path) == [TOLD]
    assert "b-1.json: " in (told := capsys.readouterr().err)
    assert "the file is damaged; `ordsmed evaluate` computes it again; skipped" in told
    with pytest.raises(DataError, match=next(iter(damage))):
        probe_results.read_one(tmp_path / "scores/b-1.json")

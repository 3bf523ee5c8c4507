"""Runs with arbitrary wrong values in their files still give a page, as JSON, HTML and Markdown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from kit.damage import OTHERS, changed, damages, places, written
from kit.planted_runs import plant, plant_trials, step_line
from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.tell.report import content, folders, learning_curve, parts, report, values
from ordsmed.tell.report.learning_curve import Known

STORE = {
    "train": {"documents": 5, "tokens": 31},
    "validation": {"tokens": 9},
    "vocabulary": 45,
    "kind": "words",
    "fingerprint": "f",
    "licence": "CC0",
}
PROBE = {
    "accuracy": 0.5,
    "probe": "pairs",
    "way": "causal",
    "files": ["a/w.txt"],
    "key": "k",
    "model": "m",
    "step": 1,
    "errors": {"accuracy": 0.1},
    "guessing": {"accuracy": 0.5},
    "seen": {"words": 4, "tokens": 5},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with every file that is read."""
    path = plant(
        tmp_path / "run",
        [3.0, 2.0],
        validations={2: 2.5},
        scores={"f1": 1.0, "guessing": {"f1": 0.5}},
        layouts=[{"from": 0, "processes": 2}],
        flops=[2.0],
        steps_asked=[2],
        left_out=[{"first": 1, "last": 2, "why": "nan"}],
    )
    (path / "data.json").write_text(json.dumps({"books": STORE, "t.tsv": {"split": "train", "examples": 7}}))
    (path / "scores").mkdir()
    (path / "scores/pairs-1.json").write_text(json.dumps(PROBE))
    grid = plant_trials(tmp_path / "grid", [({"learning_rate": 0.1}, 1, {"f1": 80.0})])
    (grid / "trials.json").rename(path / "trials.json")
    return path


@pytest.mark.parametrize(
    "name", ["status.json", "data.json", "environment.json", "scores.json", "trials.json", "scores/pairs-1.json"]
)
def test_any_value_of_a_file_may_be_another(run: Path, name: str) -> None:
    file = run / name
    whole = json.loads(file.read_text())
    for at, other in damages(whole):
        if at != ("verb",) or not isinstance(other, str):  # of another verb: no run
            file.write_text(json.dumps(changed(whole, at, other)))
            written(run)


def test_any_value_of_a_recipe_may_be_another(run: Path) -> None:
    whole = settings.read(run / "recipe.toml")
    others: list[Any] = ["x", -1, float("inf"), float("nan"), [], {"a": [1]}, [{}]]
    for at, other in damages(whole, others):
        if at or isinstance(other, dict):
            (run / "recipe.toml").write_text(tomli_w.dumps(changed(whole, at, other)))
            written(run)


def test_any_value_of_a_line_may_be_another(tmp_path: Path) -> None:
    """A line whose numbers are none is left out and counted, with its place; a loss that is none is a gap."""
    path, lines = tmp_path / "m", [step_line(1, 3.0), step_line(2, 2.0), {"step": 2, "validation": 2.5, "mlm": 2.5}]
    for number, at in [(0, at) for at in places(lines[0])] + [(2, at) for at in places(lines[2])]:
        for other in OTHERS:
            each = [*lines[:number], changed(lines[number], at, other), *lines[number + 1 :]]
            path.write_text("".join(json.dumps(line) + "\n" for line in each))
            found = learning_curve.read(path, Known({1: 10.0}))
            assert parts.dumps(found).encode()
            assert found["steps"] == 2 - (number == 0 and found["damaged_count"])
    path.write_text("".join(json.dumps(line) + "\n" for line in [lines[0], {**lines[1], "tokens": 1e400}]))
    found = learning_curve.read(path, Known({}))
    assert (found["damaged"], found["tokens"], found["lines"]) == ([2], 100, 2)


def test_what_json_cannot_hold_is_null_or_a_question_mark() -> None:
    given = {"a\ud800": [1e400, float("nan"), 10**400, 10**20, True, "\udcff", None], "b": {"c": 1.5}}
    assert values.clean(given) == {"a?": [None, None, None, 10**20, True, "?", None], "b": {"c": 1.5}}
    assert [values.count(each) for each in (3.0, 2.5, True, "x", None, 1e400)] == [3, 2.5, None, None, None, None]


def test_a_name_that_is_no_text_is_shown_with_question_marks(run: Path) -> None:
    moved = run.rename(run.with_name(os.fsdecode(b"ru\xffn")))
    written(moved)
    assert content.content([str(moved)])["made"]["named"] == [f"{run.parent}/ru?n"]


def test_tables_without_end_are_told(run: Path) -> None:
    (run / "status.json").write_text("[" * 100_000)
    (run / "scores.json").write_text('{"a":' * 100_000)
    written(run)
    assert [note.split(":")[0] for note in folders.read([run])[0]["notes"]][:2] == ["status.json", "scores.json"]


def test_one_file_is_not_two(tmp_path: Path) -> None:
    plant(tmp_path / "run", [3.0])
    words = "x: is the output of two formats; wanted separate files for the page, the Markdown and the JSON"
    with pytest.raises(RecipeError, match=words):
        report.write([str(tmp_path / "run")], markdown=str(tmp_path / "x"), json=f"{tmp_path}/run/../x")
    assert not (tmp_path / "x").exists()


def test_a_run_from_another_machine_is_read(run: Path) -> None:
    """None of the files that it names exist on this machine."""
    for name in ("recipe.toml", "status.json", "trials.json"):
        text = (run / name).read_text().replace(str(run), "/gone/far/away")
        (run / name).write_text(text)
    moved = run.rename(run.with_name("moved"))
    (facts,) = folders.read([moved])
    assert (facts["name"], facts["course"]["steps"], facts["notes"]) == ("moved", 2, [])
    written(moved)


@pytest.mark.parametrize("name", ["metrics.jsonl", "status.json", "recipe.toml", "scores.json", "log.txt", "data.json"])
def test_what_cannot_be_read_is_told(run: Path, name: str) -> None:
    """As a folder of that name: also one that may read everything cannot."""
    (run / name).unlink()
    (run / name).mkdir()
    notes = folders.read([run])[0]["notes"]
    assert [note for note in notes if note.startswith(f"{name}: ")] or name == "log.txt"
    written(run)


@pytest.mark.parametrize(
    "name",
    [
        "metrics.jsonl",
        "status.json",
        "recipe.toml",
        "scores.json",
        "log.txt",
        "data.json",
        "trials.json",
        "environment.json",
    ],
)
def test_what_nobody_may_look_at_ends_no_report(run: Path, name: str) -> None:
    """As a name that the disk refuses to look up, which is the same for those who may read everything."""
    (run / name).unlink()
    (run / name).symlink_to("x" * 300)
    with pytest.raises(OSError, match="name too long"):
        (run / name).exists()
    plant(run.parent / "other", [3.0])
    written(run.parent)
    assert [facts["name"] for facts in folders.read(folders.find([str(run.parent)]))] == ["grid", "other", "run"]

"""What is read of a run's folder: its work, its state, its data, what it learned nothing from."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import TinyRuns
from kit.planted_runs import plant, plant_trials
from ordsmed.base.run import is_locked, locked
from ordsmed.tell.report import content, folders, learning_curve, page, tables
from ordsmed.tell.report.learning_curve import Known
from ordsmed.tell.report.markdown import statement

LINES = """network: 1,010 parameters, 989 without heads; vocabulary 4,500
phase 1: {} a step
phase 1: 3 steps of 8 rows x 32 tokens; batch = micro 8 x accumulation 1 x devices 1
cpu, 1 thread; measured peak of all 182 GFLOP/s
"""


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("160 FLOP", 160.0),
        ("909 MFLOP", 9.09e8),
        ("14.6 GFLOP", 1.46e10),
        ("1,000 TFLOP", 1e15),
        ("3.2 EFLOP", 3.2e18),
        ("2e+09 FLOPs", 2e9),
        ("1.5 kFLOP", 1500.0),
        ("7 PFLOP", 7e15),
    ],
)
def test_work_is_read_from_the_log_of_an_older_run(tmp_path: Path, said: str, count: float) -> None:
    run = plant(tmp_path / "run", [3.0, 2.0, 1.0], log=LINES.format(said))
    (facts,) = folders.read([run])
    assert facts["course"]["flops"] == pytest.approx(3 * count)
    assert [point[6] for point in facts["course"]["points"]] == pytest.approx([count, 2 * count, 3 * count])


def test_what_a_run_noted_goes_before_its_log(tmp_path: Path) -> None:
    (facts,) = folders.read([plant(tmp_path / "run", [3.0, 2.0], flops=[1.25e9, 7e9])])
    assert facts["course"]["flops"] == 2.5e9


@pytest.mark.parametrize("noted", [[None], "much", [0.0], [-1.0], {"1": 2.0}, [float("nan")]])
def test_a_note_that_is_none_is_passed_over(tmp_path: Path, noted: object) -> None:
    (facts,) = folders.read([plant(tmp_path / "run", [3.0, 2.0], flops=noted)])
    assert facts["course"]["flops"] == 4e9  # those of the log


@pytest.mark.long
def test_a_real_run_tells_its_work(tiny_run: TinyRuns, tmp_path: Path) -> None:
    """Exactly; to three digits where it has its log alone, as runs of older versions."""
    own = json.loads((tiny_run.bert / "status.json").read_text())["flops"]
    lines = [json.loads(line) for line in (tiny_run.bert / "metrics.jsonl").read_text().splitlines()]
    work = sum(own[line["phase"] - 1] for line in lines if "validation" not in line)
    report = content.content([str(tiny_run.bert)])
    assert report["cost"]["flops"] == work > 1e6
    assert report["cost"]["without_flops"] == 0
    assert ">FLOPs</label>" in page.page(report)
    older = tmp_path / "older"
    shutil.copytree(tiny_run.bert, older, ignore=shutil.ignore_patterns("checkpoints", "weights"))
    status = json.loads((older / "status.json").read_text())
    (older / "status.json").write_text(json.dumps({key: own for key, own in status.items() if key != "flops"}))
    assert content.content([str(older)])["cost"]["flops"] == pytest.approx(work, rel=5e-3)


def test_stretches_that_grew_count_once(tmp_path: Path) -> None:
    noted = [
        {"first": 1, "last": 2, "why": "nan"},
        {"first": 1, "last": 4, "why": "nan"},
        3,
        {"first": 7, "last": 7, "why": "nan"},
        {"first": 7, "last": 9, "why": "jump"},
        {"first": 1},
    ]
    (facts,) = folders.read([plant(tmp_path / "run", [3.0], left_out=noted)])
    assert facts["left_out"] == [
        {"first": 1, "last": 4, "why": "nan", "times": 2},
        {"first": 7, "last": 7, "why": "nan", "times": 1},
        {"first": 7, "last": 9, "why": "jump", "times": 1},
    ]


def test_a_run_that_nobody_works_on_was_killed(tmp_path: Path) -> None:
    """By its lock, if it was started on this machine; otherwise it is unknown."""
    run = plant(tmp_path / "run", [3.0, 2.0], state="running")
    (run / "environment.json").write_text(json.dumps({"host": platform.node()}))
    assert is_locked(run) is None
    with locked(run):
        assert is_locked(run) is True
        (facts,) = folders.read([run])
        assert (facts["state"], facts["notes"]) == ("running", [])
    assert is_locked(run) is False
    (facts,) = folders.read([run])
    assert facts["state"] == "killed"
    assert facts["notes"] == ["killed: no process is working on it; the same command resumes it"]
    (run / "environment.json").write_text(json.dumps({"host": "hall"}))
    assert folders.read([run])[0]["state"] == "running"
    for lock in tmp_path.glob(".run.*"):
        lock.unlink()
    (run / "environment.json").write_text(json.dumps({"host": platform.node()}))
    assert folders.read([run])[0]["state"] == "running"


@pytest.mark.parametrize(
    ("verb", "scores", "note"),
    [
        (
            "pretrain",
            {"validation": 7.5, "mlm_right": 0.9, "guessing": {"validation": 6.25, "mlm_right": 0.1}},
            "no better than guessing: validation 7.5 (guessing: 6.25)",
        ),
        ("pretrain", {"validation": 6.0, "mlm_right": 0.0, "guessing": {"validation": 6.25, "mlm_right": 0.1}}, ""),
        (
            "finetune",
            {"f1": 50.0, "total": 9, "guessing": {"f1": 50.0, "total": 9}},
            "no better than guessing: f1 50 (guessing: 50)",
        ),
        ("finetune", {"f1": 50.0, "exact": 41.0, "guessing": {"f1": 50.0, "exact": 40.0}}, ""),
        (
            "finetune",
            {"squared_error": 3.0, "guessing": {"squared_error": 2.0}},
            "no better than guessing: squared_error 3 (guessing: 2)",
        ),
        ("finetune", {"f1": 50.0, "guessing": 3}, ""),
        ("finetune", {"f1": 50.0}, ""),
    ],
)
def test_a_run_that_learned_nothing_is_told(tmp_path: Path, verb: str, scores: dict[str, object], note: str) -> None:
    (facts,) = folders.read([plant(tmp_path / "run", [3.0], verb=verb, scores=scores)])
    assert facts["notes"] == ([note] if note else [])


def test_files_of_a_task_are_data_too(tmp_path: Path) -> None:
    """Each once, however many runs read it; in words with its examples."""
    file = {"split": "train", "records": 70, "examples": 72, "tokens": 900, "longest": 22}
    for name in ("a", "b"):
        run = plant(
            tmp_path / name,
            [3.0],
            verb="finetune",
            recipe={"task": {"kind": "squad", "train": "d/t.json"}, "rate": name},
        )
        (run / "data.json").write_text(json.dumps({"d/t.json": file, "books": {"train": {"tokens": 7}}}))
    report = content.content([str(tmp_path)])
    shown = {t.key: [t.head, *([cell.text for cell in row] for row in t.rows)] for t in tables.tables(report)}
    assert shown["files"] == [("file", "split", "examples", "tokens"), ["d/t.json", "train", "72", "900"]]
    assert shown["data"] == [("store", "tokens"), ["books", "7"]]
    assert statement(report)[0] == (
        "**Data.** Trained on books, 7 tokens, language not stated, license not stated; the files of the task squad "
        "(t.json, 72 examples). All runs together read 200 tokens."
    )


def test_probes_stand_in_the_order_of_their_steps(tmp_path: Path) -> None:
    run = plant(tmp_path / "run", [3.0])
    (run / "scores").mkdir()
    for name, step in (("a", 90), ("b", 0), ("c", 100), ("d", 9)):
        probe = {
            "accuracy": 0.5,
            "probe": "pairs",
            "way": "causal",
            "files": ["w.txt"],
            "key": "k",
            "model": "m",
            "errors": {},
            "guessing": {},
            "step": step,
        }
        (run / f"scores/pairs-{name}.json").write_text(json.dumps(probe))
    assert [row["step"] for row in folders.read([run])[0]["probes"]] == [0, 9, 90, 100]


def test_scores_of_trials_stand_in_their_own_table(tmp_path: Path) -> None:
    grid = plant_trials(tmp_path / "grid", [({"learning_rate": 0.1}, 1, {"f1": 80.0})])
    plant(grid / "trials/trial-0", [3.0], verb="finetune", scores={"f1": 80.0, "total": 7, "guessing": {"f1": 90.0}})
    plant(tmp_path / "alone", [3.0], verb="finetune", scores={"f1": 70.0, "total": 7}, recipe={"data": "other"})
    report = content.content([str(tmp_path)])
    assert [run["notes"] for run in report["runs"] if run["scores"]] == [[], []]  # a trial need not be good
    (table,) = (t for t in tables.tables(report) if t.key == "scores")
    assert [[cell.text for cell in row] for row in table.rows] == [["alone", "f1", "70.00"]]


def test_scores_of_trials_without_a_table_stand_among_the_others(tmp_path: Path) -> None:
    """There is no table of trials until the grid is done."""
    grid = plant_trials(tmp_path / "grid", [({"learning_rate": 0.1}, 1, {"f1": 80.0})])
    (grid / "trials.json").unlink()
    plant(grid / "trials/trial-0", [3.0], verb="finetune", scores={"f1": 80.0})
    (table,) = (t for t in tables.tables(content.content([str(tmp_path)])) if t.key == "scores")
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [["trial-0", "f1", "80.00"]]


def test_scores_of_a_run_in_a_folder_called_trials_stand_among_the_others(tmp_path: Path) -> None:
    """Or of one that lies in a grid's folder and is none of its trials."""
    grid = plant_trials(tmp_path / "grid", [({"learning_rate": 0.1}, 1, {"f1": 80.0})])
    plant(tmp_path / "mine/trials/one", [3.0], verb="finetune", scores={"f1": 70.0})
    plant(grid / "trials/trial-0", [3.0], verb="finetune", scores={"f1": 80.0}, recipe={"data": "other"})
    (table,) = (t for t in tables.tables(content.content([str(tmp_path)])) if t.key == "scores")
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [["one", "f1", "70.00"]]


def test_a_grid_with_several_seeds_keeps_its_row_of_scores(tmp_path: Path) -> None:
    """The table of trials has a row per trial; only this table shows their deviation."""
    grid = plant_trials(tmp_path / "grid", [({}, 1, {"f1": 80.0}), ({}, 2, {"f1": 84.0})])
    for number, f1 in enumerate((80.0, 84.0)):
        plant(grid / f"trials/trial-{number}", [3.0], verb="finetune", recipe={"seed": number}, scores={"f1": f1})
    (table,) = (t for t in tables.tables(content.content([str(tmp_path)])) if t.key == "scores")
    assert [[cell.text for cell in row[1:4]] for row in table.rows] == [["f1", "2", "82.00"]]


def test_costs_name_devices_in_short(tmp_path: Path) -> None:
    plant(tmp_path / "run", [3.0])
    shown = {table.key: table for table in tables.tables(content.content([str(tmp_path)]))}
    assert [cell.text for cell in shown["cost"].rows[0]][:2] == ["run", "cpu, 1 thread"]
    assert "cpu, 1 thread; measured peak of all 100 GFLOP/s" in [cell.text for cell in shown["environment"].rows[0]]


def test_a_log_that_is_little_longer_than_what_is_read_is_read_once(tmp_path: Path) -> None:
    """Its beginning and its end must not overlap, or starts would count twice."""
    start = "cpu, 1 thread; measured peak of all 100 GFLOP/s\n"
    for size in (0.9, 1.2, 1.9, 2.5):
        lines = ["x" * 99] * int(size * folders.ENDS / 100)
        lines[int(0.8 * folders.ENDS / 100)] = start
        (tmp_path / "log.txt").write_text("\n".join([*lines, start]))
        assert folders._log(tmp_path / "log.txt")["starts"] == 2, size


@pytest.mark.parametrize(("count", "most"), [(1, 600), (33, 600), (34, 588), (100, 200), (400, 60)])
def test_curves_of_many_runs_have_fewer_points(tmp_path: Path, count: int, most: int) -> None:
    """So that a page stays one that a browser can show."""
    asked: list[int] = []

    def read(path: Path, known: Known, points: int) -> dict[str, Any]:
        asked.append(points)
        return learning_curve.read(path, known)

    folders.read([plant(tmp_path / "run", [3.0])] * count, read=read)
    assert asked == [most] * count


@pytest.mark.parametrize(
    ("phases", "asked", "planned"),
    [
        ([{"steps": 30}, {"steps": 5}], None, 35),
        ([{"steps": 0, "epochs": 2.0}], [70], 70),
        ([{"steps": 30}, {"epochs": 2.0}], [30, 12], 42),
        ([], [7], 7),
        ([{"epochs": 1.0}], None, None),
        ([{"epochs": 1.0}], [0], None),
    ],
)
def test_steps_that_were_asked_for(phases: list[Any], asked: list[int] | None, planned: int | None) -> None:
    """By the recipe, or where that counts epochs by what its data came to."""
    status = {} if asked is None else {"steps_asked": asked}
    assert folders._planned({"phase": phases}, status) == planned


def test_runs_are_not_looked_for_where_runs_keep_their_files(tmp_path: Path) -> None:
    for name in (
        "checkpoints",
        "weights",
        "tokenizer",
        "tensorboard",
        "predictions",
        ".hidden",
        "mine",
        "seed-10",
        "seed-2",
    ):
        plant(tmp_path / name / "run", [3.0])
    found = folders.find([str(tmp_path)])
    assert [path.parent.name for path in found] == ["mine", "seed-2", "seed-10"]
    assert folders.find([str(tmp_path / "weights")]) == [tmp_path / "weights/run"], "unless it is named"


def test_runs_are_looked_for_so_deep(tmp_path: Path) -> None:
    for place in ("one", "a/two", "b/c/three", "d/e/f/four"):
        plant(tmp_path / place, [3.0])
    assert sorted(path.name for path in folders.find([str(tmp_path)])) == ["one", "three", "two"]


def test_processes_of_steps_stand_in_their_order() -> None:
    layouts = [{"from": 8, "processes": 4}, {"from": 0, "processes": 1}, {"from": 3}, {"processes": 9}]
    assert folders._processes({"layouts": layouts}) == [(0, 1), (8, 4)]
    assert folders._processes({}) == [(0, 1)]


@pytest.mark.parametrize(
    ("names", "said"),
    [(["a/x.txt"], "x.txt"), (["a/x.txt", "b/y.txt"], "x.txt and 1 more"), (["x", "y", "z"], "x and 2 more"), ([], "")],
)
def test_files_of_a_probe_in_short(names: list[str], said: str) -> None:
    assert folders._files(names) == said

"""Trackers: what runs wrote arrives there step by step; what is new goes when they are sent again."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kit.planted_runs import plant, step_line
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.tell.report import send


@pytest.fixture
def calls() -> list[tuple[Any, ...]]:
    return []


def modules(calls: list[tuple[Any, ...]]) -> dict[str, ModuleType]:
    """Packages of the same names that note what they are asked to do."""
    wandb, trackio = ModuleType("wandb"), ModuleType("trackio")
    run = SimpleNamespace(
        log=lambda numbers, step: calls.append(("log", step, numbers)),
        summary=SimpleNamespace(update=lambda numbers: calls.append(("summary", numbers))),
        finish=lambda exit_code: calls.append(("finish", exit_code)),
    )

    def begin(**how: Any) -> Any:
        calls.append(("init", how))
        return run

    own: Any = wandb
    own.init, own.Settings = begin, lambda **how: how
    own = trackio
    own.init, own.finish = begin, lambda: calls.append(("finish",))
    own.log = lambda numbers, step=None: calls.append(("log", step, numbers))
    return {"wandb": wandb, "trackio": trackio, **mlflow(calls)}


def mlflow(calls: list[tuple[Any, ...]]) -> dict[str, ModuleType]:
    stored: dict[str, Any] = {}

    class MlflowClient:
        def __init__(self, tracking_uri: str | None) -> None:
            calls.append(("init", tracking_uri))

        def get_experiment_by_name(self, name: str) -> Any:
            return stored.get(name)

        def create_experiment(self, name: str, **how: Any) -> str:
            stored[name] = SimpleNamespace(experiment_id="7")
            return "7"

        def search_runs(self, experiments: list[str], words: str) -> list[Any]:
            return [run for key, run in stored.items() if words == f"tags.ordsmed = '{key}'"]

        def create_run(self, experiment: str, start_time: int, run_name: str, tags: dict[str, str]) -> Any:
            calls.append(("run", experiment, start_time, run_name))
            stored[tags["ordsmed"]] = run = SimpleNamespace(
                info=SimpleNamespace(run_id="r1", status="RUNNING"), data=SimpleNamespace(params={})
            )
            return run

        def log_batch(self, key: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(metrics) <= 1000
            assert len(params) <= 100
            assert all(re.fullmatch(r"[\w .:/-]+", each[0], re.ASCII) for each in (*metrics, *params))
            if params:
                next(run for run in stored.values() if hasattr(run, "data")).data.params["told"] = True
            calls.append(("batch", key, list(metrics), list(params)))

        def log_metric(self, key: str, name: str, value: float, step: int) -> None:
            calls.append(("metric", name, value, step))

        def set_terminated(self, key: str, status: str) -> None:
            calls.append(("finish", status))
            next(run for run in stored.values() if hasattr(run, "info")).info.status = status

        def update_run(self, key: str, status: str) -> None:
            calls.append(("again", status))

    package, tracking, entities = (ModuleType(name) for name in ("mlflow", "mlflow.tracking", "mlflow.entities"))
    own: Any = tracking
    own.MlflowClient = MlflowClient
    own = entities
    own.Metric, own.Param = (lambda *given: given), (lambda *given: given)
    return {"mlflow": package, "mlflow.tracking": tracking, "mlflow.entities": entities}


@pytest.fixture
def run(tmp_path: Path, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two steps and a validation, with substitutes for the packages of trackers."""
    for name, module in modules(calls).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("TRACKIO_DIR", "elsewhere")
    return plant(tmp_path / "run", [3.0, 2.0], validations={2: 2.5}, scores={"step": 2, "f1": 81.5})


FIRST = {"training/loss": 3.0, "training/rate": 0.001, "training/norm": 1.5, "speed/tokens_per_second": 200.0}
SECOND = {**FIRST, "training/loss": 2.0, "validation/validation": 2.5, "validation/mlm": 2.5}


@pytest.mark.parametrize("kind", ["wandb", "trackio"])
def test_steps_scores_and_settings_arrive(run: Path, calls: list[tuple[Any, ...]], kind: str, tmp_path: Path) -> None:
    lines = send.send([str(run)], kind, project="mine", offline=str(tmp_path / "off"))
    assert lines[0] == f"{run}: 2 steps sent to {kind}, up to step 2, in {tmp_path / 'off'}"
    assert [str(tmp_path / "off") in line for line in lines[1:]] == [True]
    how = calls[0][1]
    assert how["project"] == "mine"
    assert re.fullmatch("run" if kind == "wandb" else "run-[0-9a-f]{4}", how["name"])
    assert how["config"]["model.width"] == "128"
    assert calls[1:3] == [("log", 1, FIRST), ("log", 2, SECOND)]
    found = ("summary", {"scores/f1": 81.5}) if kind == "wandb" else ("log", 2, {"scores/f1": 81.5})
    assert calls[3:] == [found, ("finish", 0) if kind == "wandb" else ("finish",)]


def test_mlflow_is_sent_batches(run: Path, calls: list[tuple[Any, ...]]) -> None:
    send.send([str(run)], "mlflow")
    assert calls[:2] == [("init", None), ("run", "7", 1_700_000_000_000, "run")]
    assert {("model.width", "128"), ("phase.1.learning_rate", "0.001")} <= set(calls[2][3])
    metrics = calls[3][2]
    assert ("training/loss", 3.0, 1_700_000_000_500, 1) in metrics
    assert ("validation/validation", 2.5, 1_700_000_001_000, 2) in metrics
    assert calls[4:] == [("metric", "scores/f1", 81.5, 2), ("finish", "FINISHED")]


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_sent_again_only_what_is_new_goes(run: Path, calls: list[tuple[Any, ...]], kind: str) -> None:
    send.send([str(run)], kind)
    first = list(calls)
    calls.clear()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(step_line(3, 1.5)) + "\n" + json.dumps(step_line(4, 1.0))[:-20])
    assert send.send([str(run)], kind)[0].startswith(f"{run}: 1 step sent")
    told = [(c[1], c[2]["training/loss"]) for c in calls if c[0] == "log" and "training/loss" in c[2]]
    told += [
        (metric[3], metric[1]) for call in calls if call[0] == "batch" for metric in call[2] if "loss" in metric[0]
    ]
    assert told == [(3, 1.5)]
    if kind == "wandb":
        assert calls[0][1]["id"] == first[0][1]["id"]
    if kind == "trackio":
        assert calls[0][1]["name"] == first[0][1]["name"]
    assert not [call for call in calls if call[0] == "run"]


def test_a_project_of_its_own_is_sent_all(run: Path) -> None:
    send.send([str(run)], "wandb")
    assert send.send([str(run)], "wandb", project="other")[0].startswith(f"{run}: 2 steps sent")


def test_numbers_that_are_none_stay_away(tmp_path: Path) -> None:
    path = plant(tmp_path / "run", [3.0, math.nan, 2.0]) / "metrics.jsonl"
    losses = [numbers.get("training/loss") for _, numbers, _ in send.steps(path, 0.0)]
    assert losses == [3.0, None, 2.0]


def test_a_run_under_way_stays_open(run: Path, calls: list[tuple[Any, ...]]) -> None:
    (run / "status.json").write_text('{"verb": "pretrain", "state": "running"}')
    send.send([str(run)], "mlflow")
    assert not [call for call in calls if call[0] in ("finish", "again")]


def test_a_run_that_goes_on_is_opened_again(run: Path, calls: list[tuple[Any, ...]]) -> None:
    (run / "status.json").write_text('{"verb": "pretrain", "state": "stopped"}')
    send.send([str(run)], "mlflow")
    assert calls[-1] == ("finish", "KILLED")
    (run / "status.json").write_text('{"verb": "pretrain", "state": "running"}')
    send.send([str(run)], "mlflow")
    assert calls[-1] == ("again", "RUNNING")


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_where_nothing_is_new_nothing_goes(run: Path, calls: list[tuple[Any, ...]], kind: str) -> None:
    """Scores neither: a tracker would have them twice. Others, since the run was evaluated again, do."""
    send.send([str(run)], kind)
    calls.clear()
    assert send.send([str(run)], kind) == [f"{run}: nothing new for {kind} since step 2"]
    assert calls == []
    (run / "scores.json").write_text('{"f1": 82.5}')
    assert send.send([str(run)], kind) == [f"{run}: 0 steps sent to {kind}, up to step 2"]
    sent = [each for call in calls for each in call if isinstance(each, float | dict)]
    assert any(each in (82.5, {"scores/f1": 82.5}) for each in sent)
    assert [call[1] for call in calls if call[0] == "log"] == ([2] if kind == "trackio" else [])


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_a_validation_that_comes_after_its_step_is_not_lost(run: Path, calls: list[tuple[Any, ...]], kind: str) -> None:
    whole = (run / "metrics.jsonl").read_text()
    (run / "status.json").write_text('{"verb": "pretrain", "state": "running"}')
    (run / "metrics.jsonl").write_text("".join(whole.splitlines(keepends=True)[:2]))
    assert send.send([str(run)], kind) == [f"{run}: 1 step sent to {kind}, up to step 1"]
    (run / "metrics.jsonl").write_text(whole)
    (run / "status.json").write_text('{"verb": "pretrain", "state": "done"}')
    assert send.send([str(run)], kind) == [f"{run}: 1 step sent to {kind}, up to step 2"]
    assert str(calls).count("validation/validation") == 1


def test_a_run_keeps_the_name_it_was_begun_with(run: Path, calls: list[tuple[Any, ...]]) -> None:
    """Named together with another run it gets a longer name."""
    send.send([str(run)], "trackio")
    plant(run.parent / "b/run", [3.0])
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(step_line(3, 1.5)) + "\n")
    send.send([str(run), str(run.parent / "b")], "trackio")
    names = [call[1]["name"] for call in calls if call[0] == "init"]
    assert names[0] == names[1] != names[2]


def test_notes_that_are_damaged_are_none(run: Path) -> None:
    for text in ('{"wandb ordsmed": 3}', '{"wandb ordsmed": {"key": "k", "step": "x"}}', "{", "[1]"):
        (run / "sent.json").write_text(text)
        assert send.send([str(run)], "wandb") == [f"{run}: 2 steps sent to wandb, up to step 2"]


def test_what_trackers_print_is_no_output(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["trackio"], "finish", lambda: print("* Run finished"))
    send.send([str(run)], "trackio")
    assert capsys.readouterr() == ("", "* Run finished\n")


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_a_package_that_is_absent_is_named(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (kind, f"{kind}.entities", f"{kind}.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RecipeError, match=f"--to {kind}: {kind} .*`pip install {kind}`, then run the same command"):
        send.send([str(plant(tmp_path / "run", [3.0]))], kind)


def test_what_a_tracker_raises_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**how: Any) -> Any:
        raise ValueError("many lines\nno login")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(RunError, match="wandb: ValueError: no login; check its address and login") as caught:
        send.send([str(run)], "wandb")
    assert "\n" not in str(caught.value)
    assert [note["step"] for note in json.loads((run / "sent.json").read_text()).values()] == [0]


def test_unknown_trackers_and_runs_without_steps_are_refused(tmp_path: Path) -> None:
    empty = plant(tmp_path / "run")
    with pytest.raises(RecipeError, match="no such tracker; did you mean `wandb`"):
        send.send([str(empty)], "wandbb")
    with pytest.raises(RecipeError, match="no run there has written a step"):
        send.send([str(empty)], "wandb")

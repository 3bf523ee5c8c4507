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
from ordsmed.report import send


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
                info=SimpleNamespace(run_id="r1"), data=SimpleNamespace(params={})
            )
            return run

        def log_batch(self, key: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(metrics) <= 1000
            assert len(params) <= 100
            assert all(re.fullmatch(r"[\w .:/-]+", each[0], re.ASCII) for each in (*metrics, *params))
            if params:
                next(run for run in stored.values() if hasattr(run, "data")).data.params["told"] = True
            calls.append(("batch", key, list(metrics), list(params)))

        def log_metric(self, key: str, name: str, value: float) -> None:
            calls.append(("metric", name, value))

        def set_terminated(self, key: str, status: str) -> None:
            calls.append(("finish", status))

    package, tracking, entities = (ModuleType(name) for name in ("mlflow", "mlflow.tracking", "mlflow.entities"))
    own: Any = tracking
    own.MlflowClient = MlflowClient
    own = entities
    own.Metric, own.Param = (lambda *given: given), (lambda *given: given)
    return {"mlflow": package, "mlflow.tracking": tracking, "mlflow.entities": entities}


@pytest.fixture
def run(tmp_path: Path, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two steps and a validation, where packages of trackers stand."""
    for name, module in modules(calls).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("TRACKIO_DIR", "elsewhere")
    return plant(tmp_path / "run", [3.0, 2.0], validations={2: 2.5}, scores={"step": 2, "f1": 81.5})


FIRST = {"training/loss": 3.0, "training/rate": 0.001, "training/norm": 1.5, "speed/tokens_per_second": 200.0}
SECOND = {**FIRST, "training/loss": 2.0, "validation/validation": 2.5, "validation/mlm": 2.5}


@pytest.mark.parametrize("kind", ["wandb", "trackio"])
def test_steps_scores_and_settings_arrive(run: Path, calls: list[tuple[Any, ...]], kind: str, tmp_path: Path) -> None:
    lines = send.send([str(run)], kind, project="mine", offline=str(tmp_path / "off"))
    assert lines == [f"{run}: 2 steps sent to {kind}, up to step 2, in {tmp_path / 'off'}"]
    how = calls[0][1]
    assert (how["project"], how["name"]) == ("mine", "run")
    assert how["config"]["model.width"] == "128"
    assert calls[1:3] == [("log", 1, FIRST), ("log", 2, SECOND)]
    found = ("summary", {"scores/f1": 81.5}) if kind == "wandb" else ("log", None, {"scores/f1": 81.5})
    assert calls[3:] == [found, ("finish", 0) if kind == "wandb" else ("finish",)]


def test_mlflow_is_sent_batches(run: Path, calls: list[tuple[Any, ...]]) -> None:
    send.send([str(run)], "mlflow")
    assert calls[:2] == [("init", None), ("run", "7", 1_700_000_000_000, "run")]
    assert {("model.width", "128"), ("phase.1.rate", "0.001")} <= set(calls[2][3])
    metrics = calls[3][2]
    assert ("training/loss", 3.0, 1_700_000_000_500, 1) in metrics
    assert ("validation/validation", 2.5, 1_700_000_001_000, 2) in metrics
    assert calls[4:] == [("metric", "scores/f1", 81.5), ("finish", "FINISHED")]


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_sent_again_only_what_is_new_goes(run: Path, calls: list[tuple[Any, ...]], kind: str) -> None:
    send.send([str(run)], kind)
    first = list(calls)
    calls.clear()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(step_line(3, 1.5)) + "\n" + json.dumps(step_line(4, 1.0))[:-20])
    assert send.send([str(run)], kind)[0].startswith(f"{run}: 1 step sent")
    told = [(step, each["training/loss"]) for _, step, each in (c for c in calls if c[0] == "log") if step]
    told += [
        (metric[3], metric[1]) for call in calls if call[0] == "batch" for metric in call[2] if "loss" in metric[0]
    ]
    assert told == [(3, 1.5)]
    if kind == "wandb":
        assert calls[0][1]["id"] == first[0][1]["id"]
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
    assert not [call for call in calls if call[0] == "finish"]


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_a_package_that_is_absent_is_named(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (kind, f"{kind}.entities", f"{kind}.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RecipeError, match=f"--to {kind}: {kind} .*`pip install {kind}`, then the same command"):
        send.send([str(plant(tmp_path / "run", [3.0]))], kind)


def test_what_a_tracker_raises_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**how: Any) -> Any:
        raise ValueError("many lines\nno login")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(RunError, match="wandb: ValueError: no login; look at its address and login") as caught:
        send.send([str(run)], "wandb")
    assert "\n" not in str(caught.value)
    assert [note["step"] for note in json.loads((run / "sent.json").read_text()).values()] == [0]


def test_unknown_trackers_and_runs_without_steps_are_refused(tmp_path: Path) -> None:
    empty = plant(tmp_path / "run")
    with pytest.raises(RecipeError, match="no such tracker; did you mean `wandb`"):
        send.send([str(empty)], "wandbb")
    with pytest.raises(RecipeError, match="no run there has written a step"):
        send.send([str(empty)], "wandb")

"""More hours: a command that ran out of time, and a finished model, continue; what was made before stays."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from maker.test_texts import prose
from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import threads
from ordsmed.cli import main
from ordsmed.maker import hours, more_hours, request, runner
from ordsmed.maker import make as making
from ordsmed.maker import plan as planning
from ordsmed.maker.more_hours import LongerPlan
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.runner import Clock, Stage

PREPARED = ("corpus", "tokenizer", "data")


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seconds are enough here."""
    monkeypatch.setattr(request, "SHORTEST_HOURS", 0.0)
    monkeypatch.setattr(hours, "CLOSING_SECONDS", 1.0)
    monkeypatch.setattr(planning, "_speed", lambda device, count: 2e10)
    monkeypatch.setattr(planning, "TRIALS", 0)
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    for number in range(30):
        Path(f"texts/{number}.txt").write_text(prose(10, seed=number))


def made(names: tuple[str, ...] = PREPARED) -> list[int]:
    """When these folders were made."""
    return [Path(f"out/{name}/status.json").stat().st_mtime_ns for name in names]


def steps() -> list[int]:
    lines = map(json.loads, Path("out/model/metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if "loss" in line]


def make(capsys: pytest.CaptureFixture[str], hours: float, *more: str) -> str:
    capsys.readouterr()
    main(["make", "texts", "out", "--hours", str(hours), *more])
    return capsys.readouterr().err


def hours_from_now(seconds: float) -> float:
    """The hours with which so many seconds are left."""
    return (run.Run(Path("out")).status["seconds"] + seconds) / 3600


@pytest.mark.long
@pytest.mark.parametrize("purpose", ["fill", "both"])
def test_more_hours_continue_what_had_too_few(
    purpose: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stop behind the preparation, and the hours that the message names are enough."""
    with monkeypatch.context() as slow:
        slow.setattr(hours.Hours, "deadline", lambda *_: 0.01)
        with pytest.raises(RecipeError, match="too few") as error:
            making.make("texts", "out", hours=0.002, purpose=purpose)  # type: ignore[arg-type]
    assert "--anew" not in str(error.value)
    stood, recipe = made(), Path("out/model.toml").read_text()
    named = re.search(r"wanted ([\d.]+) or more", str(error.value))
    assert named
    said = make(capsys, float(named[1]), "--for", purpose)
    assert more_hours.KEPT in said
    assert made() == stood
    assert Path("out/model.toml").read_text() != recipe
    assert run.Run(Path("out")).status["state"] == "done"


@pytest.mark.long
def test_more_hours_continue_a_finished_model(capsys: pytest.CaptureFixture[str]) -> None:
    said = make(capsys, 0.004)
    first, stood = steps(), made()
    assert "is finished" in make(capsys, 0.003)
    assert "is finished" in make(capsys, 0.004)
    assert steps() == first
    enough = hours_from_now(30.0)
    plan = runner.rehearse(making.MakeJob(MakeRequest(("texts",), "out", enough)))
    assert isinstance(plan, LongerPlan)
    assert json.loads(json.dumps(plan.facts()))["from_step"] == first[-1]
    assert steps() == first, "a dry run changes nothing"
    said = make(capsys, enough)
    assert "one more phase of" in said
    assert "the finished model stays until" in said
    assert steps()[: len(first)] == first
    assert len(steps()) > len(first)
    assert made() == stood
    status = run.Run(Path("out")).status
    assert (status["state"], status["request"]["hours"]) == ("done", enough)
    again = enough + 0.0001
    run.Run(Path("out")).set(seconds=again * 3600)  # on a fast machine some of the time is left
    with pytest.raises(RecipeError, match=r"^--hours: .* are too few: .* the same command with more hours continues"):
        making.make("texts", "out", hours=again)
    assert "is finished" in make(capsys, enough)


@pytest.mark.long
def test_a_search_engine_is_made_again_from_the_longer_model(capsys: pytest.CaptureFixture[str]) -> None:
    make(capsys, 0.006, "--for", "search", "--kind", "bert")
    before = made(("dense", "cross", "index", "corpus"))
    make(capsys, hours_from_now(60.0), "--for", "search", "--kind", "bert")
    after = made(("dense", "cross", "index", "corpus"))
    assert [new != old for new, old in zip(after, before, strict=True)] == [True, True, True, False]
    assert not list(Path("out").glob(f"*{runner.ASIDE}"))
    assert run.Run(Path("out")).status["state"] == "done"


def test_a_recipe_that_was_changed_by_hand_stays(capsys: pytest.CaptureFixture[str]) -> None:
    place = run.Run(Path("out"))
    asked = MakeRequest(("texts",), "out", 0.01)
    plan = planning.plan(asked)
    Path("out").mkdir()
    paths = planning_write(place, plan)
    place.set(verb="make", state="running", request={"hours": 0.01}, planned={"lines": []})
    Path("out/model.toml").write_text(changed := paths["model"].read_text() + "# mine\n")
    tokenizer = paths["tokenizer"].read_text()
    again = more_hours.plan_more(MakeRequest(("texts",), "out", 0.1), place, 5.0)
    again.write(place)
    assert Path("out/model.toml").read_text() == changed
    assert "model.toml: was changed by hand, and stays" in capsys.readouterr().err
    assert Path("out/tokenizer.toml").read_text() == tokenizer
    Path("out/model.toml").write_text(changed.removesuffix("# mine\n"))
    again.write(place)
    assert Path("out/model.toml").read_text() not in (changed, changed.removesuffix("# mine\n"))


def planning_write(place: run.Run, plan: Any) -> dict[str, Path]:
    """The recipes of a plan, as `make` leaves them."""
    paths = {path.stem: path for path in more_hours.write(plan.recipes, place.path)}
    place.set(written={name: more_hours.files.checksum(path) for name, path in paths.items()})
    return paths


def test_folders_that_are_replaced_are_set_aside_until_the_end(tmp_path: Path) -> None:
    place = run.Run(tmp_path)
    (tmp_path / "dense").mkdir()
    (tmp_path / "dense/old").touch()
    place.set(replaces=["dense", "cross", "index"])
    dense, clock = tmp_path / "dense", Clock(place)

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clock.run(Stage("dense", killed, [dense]))
    assert (tmp_path / "dense.before/old").exists()
    assert place.status["replaces"] == ["cross", "index"]
    clock.run(Stage("dense", dense.mkdir, [dense]))  # type: ignore[arg-type]
    clock.run(Stage("dense", lambda: None, [dense]))
    assert dense.exists(), "what was made since stays"
    assert (tmp_path / "dense.before/old").exists()


@pytest.mark.parametrize(("said", "cores", "count"), [("1", 4, 1), ("2,1", 4, 2), ("9", 4, 4), ("1", 1, 1)])
def test_the_plan_counts_the_threads_of_the_training(
    monkeypatch: pytest.MonkeyPatch, said: str, cores: int, count: int
) -> None:
    """With OMP_NUM_THREADS=1 a plan promised 8,103 steps, and the run made 1,529."""
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads.host, "cores", lambda: cores)
    asked = []
    monkeypatch.setattr(planning, "_speed", lambda device, count: asked.append(count) or 2e10)
    plan = planning.plan(MakeRequest(("texts",), "out", 0.1))
    assert asked == [plan.threads] == [count] == [threads.threads_of()]
    assert f", {count} thread{'s' if count > 1 else ''}" in "\n".join(plan.lines())


def test_threads_of_several_processes_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.host, "cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert planning.threads_here(2) == 2 * threads.threads_of(local_world=2) == 4


@pytest.mark.parametrize("hours", [0.0312, 0.5, 7.0, 26.0])
@pytest.mark.parametrize("purpose", ["fill", "search"])
def test_the_hours_that_are_named_are_enough(hours: float, purpose: Any) -> None:
    asked = MakeRequest(("texts",), "out", 0.1, purpose)
    enough = asked.time.enough(hours * 3600)
    left = enough * 3600 - MakeRequest(("texts",), "out", enough, purpose).time.after_training()
    assert hours * 3600 <= left <= 1.2 * hours * 3600 + 60


@pytest.fixture
def place(tiny_run: Any) -> run.Run:
    """The folder of a command that is done, with a small trained model."""
    shutil.copytree(tiny_run.bert, "out/model")
    shutil.copytree(tiny_run.folder / "encode-bert", "out/data")
    place = run.Run(Path("out"))
    asked = asdict(MakeRequest(("texts",), "out", 0.5))
    place.set(verb="make", state="done", request=asked, planned={"lines": []}, seconds=1_200.0)
    return place


@pytest.mark.parametrize(("purpose", "state"), [("fill", "done"), ("search", "done"), ("fill", "running")])
def test_the_plan_of_a_finished_model_says_what_stays_and_what_is_trained(
    place: run.Run, purpose: Any, state: str
) -> None:
    """Its end comes once more, in a share of what is left, if it was there: else in that of all hours."""
    place.set(state=state)
    asked, left = MakeRequest(("texts",), "out", 1.0, purpose), 2_400.0
    plan = more_hours.plan_more(asked, place, 3_600 - left)
    assert isinstance(plan, LongerPlan)
    ending = asked.time.after_training(left if state == "done" else 0.0)
    assert plan.training == pytest.approx(left - ending)
    facts, tokens = plan.facts(), run.Run(Path("out/data")).status["train"]["tokens"]
    read = [phase["steps"] * phase["batch"] * phase["length"] for phase in facts["phases"]]
    assert (facts["from_step"], facts["finished"], len(read), read[0]) == (12, True, 3, 8 * 4 * 32)
    assert facts["passes"] == plan.passes == pytest.approx(sum(read) / tokens)
    assert (facts["seconds"], facts["used"], facts["training"]) == (3_600.0, 1_200.0, plan.training)
    screen = "\n".join(plan.lines())
    loss = run.Run(Path("out/model")).status["validation"]
    assert f"kept       {more_hours.KEPT}; the model continues from step 12, validation loss {loss:.3f}" in screen
    assert f"about {plan.extension.steps:,} steps more, of 4 rows of 64 tokens: {plan.passes:.3g} times" in screen
    assert " of 1 h, of which 20 min are used; on " in screen
    assert (planning.SEARCHED in screen, planning.CLOSED in screen) == (purpose == "search", purpose == "fill")
    assert "the finished model stays until the longer training is at least as good" in screen
    assert "over so little text teach little" in screen
    few = replace(plan, passes=plan.max_passes, extension=replace(plan.extension, finished=False))
    assert few._notes() == []
    facts = plan.write(place)
    again = [*more_hours.LEARNED_FROM_PAIRS, *more_hours.BUILT] if purpose == "search" else None
    assert facts["replaces"] == again
    assert run.Run(Path("out/model")).status["state"] == "stopped"


def test_hours_that_are_too_few_for_more_steps_name_enough(place: run.Run) -> None:
    asked = MakeRequest(("texts",), "out", 0.4)
    with pytest.raises(
        RecipeError, match=r"^--hours: 0.4 are too few: 24 min are used, .*; wanted ([\d.]+) or more"
    ) as error:
        more_hours.plan_more(asked, place, 0.4 * 3600)
    named = re.search(r"wanted ([\d.]+) or more", str(error.value))
    assert named
    assert isinstance(more_hours.plan_more(replace(asked, hours=float(named[1])), place, 0.4 * 3600), LongerPlan)

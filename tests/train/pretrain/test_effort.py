"""Effort: passes over the text and expected time, told by start and dry run; what makes no sense is refused there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ordsmed.base import run, settings
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.machines.cluster import submit
from ordsmed.others.verbs import as_
from ordsmed.tell.stability import stability
from ordsmed.tell.stability.stability import StudyOptions
from ordsmed.train import pace
from ordsmed.train.plan import planned
from ordsmed.train.pretrain import plan as plans
from ordsmed.train.pretrain.effort import DAY, Effort
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.train.pretrain.recipe import Pretraining

Recipe = Callable[..., Path]
PHASE = Phase(steps=1_000, length=100, batch=10, learning_rate=1e-3, warmup=100)


def effort(*phases: Phase, tokens: int = 1_000_000, lacks: bool = False, seconds: float = 0.0) -> Effort:
    return Effort(phases or (PHASE,), tokens, by_epochs=False, lacks_validation=lacks, seconds=seconds)


def places(of: Effort) -> list[str]:
    return [problem.place for problem in of.problems()]


def test_a_line_tells_passes_and_time() -> None:
    assert effort().line == "1 pass over 1 million tokens"
    assert effort(tokens=300_000, seconds=840).line == "3.33 passes over 300,000 tokens; about 14 min on this machine"
    assert effort(tokens=23).line == "43,478 passes over 23 tokens"
    assert effort(PHASE, PHASE, tokens=1_234_567).line == "1.62 passes over 1.23 million tokens"


def test_what_makes_sense_is_no_problem() -> None:
    assert places(effort()) == []
    assert places(effort(tokens=1_000, seconds=60 * DAY)) == []


@pytest.mark.parametrize(
    ("which", "place", "words"),
    [
        (effort(tokens=999), "phase.steps", "1,001 passes over 999 tokens; wanted at most 1,000 passes"),
        (
            effort(Phase(steps=2, length=8, batch=10, learning_rate=1), tokens=79),
            "data",
            "79 tokens, less than the 80 of one",
        ),
        (effort(lacks=True), "data", "no held-out text: the corpus has one document"),
        (effort(seconds=61 * DAY), "phase.steps", "1,000 steps, about 61 d on this machine; wanted at most 60 days"),
    ],
)
def test_what_makes_none_says_what_to_write_instead(which: Effort, place: str, words: str) -> None:
    problem = next(which.problems())
    assert problem.place == place
    assert words in str(problem)
    assert "`ordsmed make TEXTS OUT --hours H`" in problem.remedy
    assert "--yes" in problem.remedy
    assert "\n" not in str(problem)


@pytest.mark.parametrize("epochs", [False, True])
def test_fewer_steps_are_words_that_work(recipe: Recipe, epochs: bool) -> None:
    steps = "epochs = 10_000\nwarmup = 20" if epochs else "steps = 200_000\nwarmup = 20_000"
    path = recipe(extra="[[phase]]\nlength = 16\nbatch = 8\nrate = 1e-3\n" + steps)
    with pytest.raises(RecipeError, match="passes over") as refused:
        rehearse(str(path))
    match = re.search(r"`(phase\[1\][^`]*)` for 40", refused.value.remedy)
    assert match
    passes = next(line for line in rehearse(str(path), match[1].split())[1] if "passes over" in line)
    assert float(passes.split()[0]) == pytest.approx(40, rel=0.1)


def test_a_text_of_a_few_words_is_refused_before_anything_is_made(recipe: Recipe, tmp_path: Path) -> None:
    path = str(recipe(steps=1_000_000))
    with pytest.raises(
        RecipeError, match=r"run\.toml: phase\.steps: found 1,000,000 steps, \d+,\d+ passes over"
    ) as dry:
        rehearse(path)
    with pytest.raises(RecipeError) as real:
        pretrain(path)
    assert str(real.value) == str(dry.value)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def absurd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time is too long."""
    monkeypatch.setattr(plans, "expected_seconds", lambda plan: 61 * DAY)


def test_yes_a_deadline_and_a_run_that_goes_on_are_not_refused(
    recipe: Recipe, tmp_path: Path, absurd: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recipe(steps=4))
    with pytest.raises(RecipeError, match="about 61 d"):
        pretrain(path)
    assert rehearse(path, deadline=600.0)
    monkeypatch.setenv("ORDSMED_STOP_AT", "2")
    with pytest.raises(Stopped):
        pretrain(path, yes=True)
    monkeypatch.delenv("ORDSMED_STOP_AT")
    told = capsys.readouterr().err
    assert "about 61 d on this machine; wanted at most 60 days; training anyway" in " ".join(told.split())
    assert rehearse(path), "a run that goes on"
    with pytest.raises(RecipeError, match="about 61 d"):
        pretrain(path, anew=True)
    assert Run(tmp_path / "run").status["state"] == "stopped", "refused before it is deleted"
    pretrain(path)
    assert Run(tmp_path / "run").status["state"] == "done"


def test_the_command_line_of_another_code_goes_on(
    recipe: Recipe, absurd: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_._perform(["pretrain", str(recipe(steps=2))])
    assert Run(tmp_path / "run").status["state"] == "done"
    assert "about 61 d on this machine" in " ".join(capsys.readouterr().err.split())


def test_a_job_and_a_study_are_refused_by_the_same_words(recipe: Recipe, tmp_path: Path) -> None:
    path = str(recipe(steps=1_000_000))
    wish = submit.JobRequest(site="ex3", gpus=1, account="a", time="1h")
    with pytest.raises(RecipeError, match="passes over"):
        submit.prepare(path, [], wish, out=str(tmp_path / "job.sh"))
    assert not (tmp_path / "job.sh").exists()
    with pytest.raises(RecipeError, match="passes over"):
        stability.stability(path, [f"out={tmp_path / 'study'}"], StudyOptions(seeds=(1, 2)))


def test_of_a_corpus_of_one_document_nothing_is_held_out(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ordsmed.corpus.pipeline import Corpus
    from ordsmed.data.encode import Encoding

    monkeypatch.chdir(tmp_path)
    Path("text").write_text("w1 w2 w3 w4 w5 w6 w7 w8\n" * 100)  # a single document
    tokenizer = f"{settings.read(recipe())['data']}/tokenizer"
    for name, share in (("wanted", 0.01), ("unwanted", 0.0)):
        Path(f"{name}.toml").write_text(f'validation = {share}\n[source]\nkind = "text"\npath = "text"\n')
        Path(f"{name}-ids.toml").write_text(f'corpus = "{name}.toml"\ntokenizer = "{tokenizer}"\n')
        run.obtain(Corpus, f"{name}.toml")
        run.obtain(Encoding, f"{name}-ids.toml")
    with pytest.raises(RecipeError, match="data: found no held-out text"):
        rehearse(str(recipe(steps=4, data="wanted-ids.toml")))
    assert rehearse(str(recipe(steps=4, data="unwanted-ids.toml")))


def plan_of(path: Path) -> PretrainingPlan:
    loaded = run.load(Pretraining, str(path))[0]
    return PretrainingPlan.of(loaded, planned(loaded.layout)).completed(make=True)


def test_the_speed_of_the_first_steps_is_kept_for_the_next_start(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: dict[str, float] = {}
    monkeypatch.setattr(pace, "cached_figure", lambda key: kept.get(key, 0.0))
    monkeypatch.setattr(pace, "cache_figure", kept.__setitem__)
    monkeypatch.setattr(pace, "measured_peak", lambda device, precision: 1e9)
    plan = plan_of(recipe(steps=10))
    work = sum(plan.work())
    assert pace.expected_seconds(plan) == pytest.approx(work / 0.55e9)
    timed = pace.SpeedMeter(plan.with_estimate(here=True, yes=False))
    line = {"phase": 1, "loss": 3.0, "rows": plan.recipe.phase[0].batch}
    timed.metrics([{**line, "step": n, "seconds": 100.0} for n in (1, 2, 3)])
    timed.metrics([{"phase": 1, "step": 3, "validation": 3.0}])
    assert kept == {}, "the first steps wake threads and libraries"
    timed.metrics([{**line, "step": n, "seconds": 5.0} for n in (4, 5)])
    timed.metrics([{**line, "step": 6, "seconds": 1000.0}])
    assert list(kept.values()) == [pytest.approx(plan.flops(0) / 5)]
    assert pace.expected_seconds(plan) == pytest.approx(work / (plan.flops(0) / 5))
    assert "by 5 steps: about" in capsys.readouterr().err
    unlike = plan_of(recipe("unlike", steps=10, kind="gpt2", objective="clm"))
    assert pace.flops_per_second(unlike) == pytest.approx(0.55e9), "of another network nothing is known"

"""When a failed checkpoint ends a run, and what a checkpoint says of the step it is of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.makers import change, job_of
from ordsmed.base import settings
from ordsmed.base.errors import RunError
from ordsmed.train import checkpoint, saving
from ordsmed.train.saving import Saving

FULL = ["here", "no space", "some", "free some"]


@pytest.fixture
def told(recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Saving]:
    """Saving whose writer finds what it is told to."""

    def make(*outcomes: list[str] | None) -> Saving:
        made = Saving(job_of(recipe(), "model.width=16", "model.layers=1"), tmp_path / "told")
        found = iter(outcomes)
        nothing = lambda *_, **__: None  # noqa: E731
        made.writer = SimpleNamespace(  # type: ignore[assignment]
            wait_for_part=nothing,
            outcome=lambda give_up: next(found),
            reset=nothing,
            save=nothing,
            complaint=None,
            thread=object(),
        )
        made.can_write = True
        return made

    return make


def test_three_failures_in_a_row_end_a_run(told: Callable[..., Saving], capsys: pytest.CaptureFixture[str]) -> None:
    """Not three with a good checkpoint among them."""
    saved = told(FULL, FULL, None, FULL, FULL, FULL)
    for _ in range(5):
        saved.wait()
    assert capsys.readouterr().err.count("here: no space; wanted some; free some; training continues") == 4
    with pytest.raises(RunError, match="here: no space"):
        saved.wait()


def test_a_run_whose_first_checkpoint_fails_stops_at_once(told: Callable[..., Saving]) -> None:
    """A run that has a checkpoint, or has `layout.unsaved`, trains on."""
    saved = told(None, FULL)
    saved.can_write = False
    saved.writer.thread = None
    with pytest.raises(RunError, match=r"here: the run's first checkpoint: no space; .*`layout.unsaved=true` trains"):
        saved.save(4)
    saved = told(None, FULL, FULL)
    saved.can_write = False
    change(
        saved.job,
        recipe=settings.decode(
            type(saved.job.recipe), settings.override(settings.plain(saved.job.recipe), ["layout.unsaved=true"]), "x"
        ),
    )
    saved.writer.thread = None
    saved.save(4)
    assert (saved.failures, saved.can_write) == (1, False)
    saved = told(None, None)
    saved.can_write = False
    saved.save(4)
    assert saved.can_write


def test_the_last_checkpoint_must_stand(told: Callable[..., Saving]) -> None:
    saved = told(None, FULL)
    with pytest.raises(RunError, match="here: no space"):
        saved.save(4, final=True)
    saved = told(FULL)
    saved.save(4)  # the one before it failed; this one is not waited for
    assert saved.failures == 1


def test_a_checkpoint_says_where_in_the_run_it_is(recipe: Callable[..., Path], tmp_path: Path) -> None:
    second = "[[phase]]\nsteps = 6\nlength = 16\nbatch = 4\nrate = 1e-3"
    job = job_of(recipe(steps=5, extra=second), "model.width=16", "model.layers=1", "trouble.spike=2.0")
    change(job, phases_before=3)
    job.state.losses.trouble(1.5, 1.0)
    places = {step: saving.facts(job, step) for step in (0, 4, 5, 11)}
    assert [(facts["phase"], facts["phase_step"]) for facts in places.values()] == [(1, 0), (1, 4), (2, 0), (3, 0)]
    assert (places[4]["phases"], places[4]["course"]) == (5, [1.5])
    assert (places[4]["mesh"], places[4]["micro"], places[4]["threads"]) == ([1, 1, 1], [8, 4], 1)
    Saving(job, tmp_path).save(4, final=True)
    found: Any = checkpoint.latest(tmp_path / "checkpoints", place=tmp_path)
    assert found[1]["step"] == 4
    assert {key: found[1][key] for key in places[4]} == places[4]


def test_checkpoints_stay_for_each_reason_alone(told: Callable[..., Saving], monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision, the best, the end before an extension, one that a hand named."""
    saved = told()
    monkeypatch.setattr(type(saved.job.recipe), "is_revision", lambda recipe, step: step == 1)
    monkeypatch.setattr(
        type(saved.job.recipe), "best_of", lambda recipe, lines: max((x["step"] for x in lines), default=0)
    )
    monkeypatch.setattr(saving, "steps", lambda folder: [1, 2, 3, 4, 5])
    monkeypatch.setattr(saving.snapshots, "labels", lambda path: ["mine"] if path.name.endswith("4") else [])
    saved.job.state.validations[:] = [{"step": 2}, {"step": 9}]  # whose checkpoint is gone
    saved.job.state.ends.append(3)
    assert [step for step in range(1, 10) if saved._is_permanent(step)] == [1, 2, 3, 4]


def test_ranks_that_are_slow_are_looked_for_ever_less_often(told: Callable[..., Saving], tmp_path: Path) -> None:
    pauses: list[float] = []
    writer = checkpoint.CheckpointWriter(tmp_path, told().job.ranks, 2, background=False)

    def wait(pause: float) -> bool:
        pauses.append(pause)
        if len(pauses) == 12:
            (tmp_path / "done-0.json").write_text('[{"model": "1f"}, {}]')
        return False

    writer.cancelled = SimpleNamespace(wait=wait)  # type: ignore[assignment]
    writer.writing = [0]
    assert writer._wait_for_parts(tmp_path / "step", tmp_path) == ({"model": "1f"}, {})
    assert pauses[:5] == [0.02 * 2**n for n in range(5)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == checkpoint.MAX_PAUSE
    assert not (tmp_path / "done-0.json").exists()


class Board:
    """The store that ranks share."""

    def __init__(self, **kept: Any) -> None:
        self.kept = {key.replace("_", "/"): json.dumps(value) for key, value in kept.items()}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value

    def get(self, key: str) -> bytes:
        return self.kept[key].encode()

    def wait(self, keys: list[str], patience: object) -> None:
        assert all(key in self.kept for key in keys), "it would wait for ever"


@pytest.mark.parametrize("theirs", [None, ["theirs", "no space", "", ""]])
def test_what_another_rank_could_not_write_is_told_in_its_words(
    told: Callable[..., Saving], theirs: list[str] | None
) -> None:
    """The first rank hears it before it waits for that part, which never comes."""
    saved, asked = told(), []
    board = Board(part_0_1=theirs, part_1_1=None)
    change(saved.job, ranks=dataclasses.replace(saved.job.ranks, world=2, store=board))

    def outcome(give_up: bool) -> list[str] | None:
        asked.append(give_up)
        return ["mine", "a part is missing", "", ""] if give_up else None

    saved.writer.outcome = outcome  # type: ignore[method-assign, assignment]
    saved.wait()
    assert (asked, saved.failures) == ([bool(theirs)], int(bool(theirs)))
    assert json.loads(board.kept["part/0/0"]) is None
    saved.wait()
    assert (asked[1], saved.failures) == (False, 0)


def test_a_second_rank_tells_its_own_and_hears_the_outcome(
    told: Callable[..., Saving], capsys: pytest.CaptureFixture[str]
) -> None:
    saved = told()
    from ordsmed.base import ranks

    board = Board()
    board.kept[f"agreed/{ranks._answers + 1}"] = json.dumps({"is": FULL})
    change(saved.job, ranks=dataclasses.replace(saved.job.ranks, rank=1, world=2, store=board))
    saved.writer.complaint = FULL  # type: ignore[misc]
    saved.wait()
    assert json.loads(board.kept["part/0/1"]) == FULL
    assert saved.failures == 1
    assert "here: no space" in capsys.readouterr().err


def test_a_step_is_saved_as_it_is_unless_it_stands(
    told: Callable[..., Saving], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = told(None, None, None)
    asked: list[tuple[int, bool]] = []
    monkeypatch.setattr(saving, "steps", lambda folder: [4])
    monkeypatch.setattr(saved, "save", lambda step, final: asked.append((step, final)))
    for step in (0, 4, 5):
        saved.save_now(step)
    assert (asked, saved.count) == ([(5, True)], 3)
    with pytest.raises(RunError, match="here: no space"):
        told(FULL).save_now(0)


def test_revisions_and_the_best_that_stands_are_kept(told: Callable[..., Saving]) -> None:
    """A checkpoint that could not be written does not make the best one of those that were go away."""
    saved = told()
    change(saved.job, recipe=dataclasses.replace(saved.job.recipe, revisions=(3,)))
    saved.job.state.validations = [{"step": n, "phase": 1, "validation": 9.0 - n} for n in (1, 2, 5)]
    for step in (1, 2, 3):
        path = checkpoint.path_of(saved.folder, step)
        path.mkdir(parents=True)
        (path / "state.json").write_text("{}")
    assert [step for step in (1, 2, 3) if saved._is_permanent(step)] == [2, 3]

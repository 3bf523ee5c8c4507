"""Training that is ill: it fails with its reason, keeps what one can go on from, and the way on it names works."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ordsmed.base.errors import RunError, Trouble
from ordsmed.base.run import Run
from ordsmed.tell.show.picture import Pictures
from ordsmed.tell.show.show import show
from ordsmed.train import checkpoint, loop
from ordsmed.train.guard import count_skipped
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.texts import TextData

Recipe = Callable[..., Path]


def acting(action: str) -> str:
    return f'[trouble]\naction = "{action}"'


def judged_as_nan(monkeypatch: pytest.MonkeyPatch, at: Callable[[int], bool]) -> None:
    """Those of the run's validations are no number whose count (from 1) is one of these."""
    judge, seen = TextData.validate, []

    def judged(self: TextData, job: Any, index: int) -> dict[str, Any]:
        seen.append(1)
        found = judge(self, job, index)
        return {**found, "validation": math.nan} if at(len(seen)) else found

    monkeypatch.setattr(TextData, "validate", judged)


def broken_after(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The update of one step, the first time it comes, leaves weights with NaN or Inf."""
    update, seen = loop.train_step, []

    def updated(job, *given, **more):  # type: ignore[no-untyped-def]
        found = update(job, *given, **more)
        seen.append(1)
        if len(seen) == at:
            with torch.no_grad():
                job.objective.model.words.weight[3, 0] = math.nan  # a word's, which the next rows may not hold
        return found

    monkeypatch.setattr(loop, "train_step", updated)


def overrides(error: RunError) -> list[str]:
    """The words of the command that a complaint names, behind verb and folder."""
    told = re.search(r"`(ordsmed pretrain [^`]*)`", str(error))
    assert told
    return shlex.split(told[1])[2:]


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_a_validation_that_is_no_number_fails_and_can_be_gone_on_from(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    judged_as_nan(monkeypatch, lambda count: count == 1)
    asked = recipe(extra=acting(action))
    with pytest.raises(
        Trouble, match=r"step 6: validation loss nan; .*; the last complete one is of step 4: `"
    ) as caught:
        pretrain(str(asked))
    folder = asked.with_suffix("")
    assert Run(folder).status["state"] == "failed"
    assert Run(folder).status["why"] == str(caught.value)
    told = show(str(folder))
    assert told[1:4] == ["state: failed", f"why: {caught.value}", "step 4 of 12, phase 1"]
    assert "validation at step 6: loss nan" in "\n".join(told)
    _, *words = overrides(caught.value)
    pretrain(str(folder), words)
    assert Run(folder).status["state"] == "done"
    assert "why" not in Run(folder).status


def test_a_validation_that_is_no_number_is_gone_back_from(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_as_nan(monkeypatch, lambda count: count == 1)
    folder = pretrain(str(recipe(extra=acting("rewind"))), callbacks=[Pictures()])
    status = Run(folder).status
    assert status["state"] == "done"
    assert status["left_out"] == [{"first": 5, "last": 6, "why": "validation loss nan"}]
    assert all(math.isfinite(line.get("validation", 0.0)) for line in read(folder / "metrics.jsonl"))
    assert "left out: 2 steps skipped, the last for validation loss nan" in show(str(folder))
    assert "nan" not in (folder / "loss.svg").read_text()


def test_what_going_back_does_not_help_ends(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_as_nan(monkeypatch, lambda count: True)
    asked = recipe(extra=acting("rewind"))
    with pytest.raises(
        Trouble,
        match=r"step 6: validation loss nan; all steps since the checkpoint of step 4 were skipped .*start again",
    ):
        pretrain(str(asked))
    assert Run(asked.with_suffix("")).status["state"] == "failed"


def test_trouble_at_the_first_step_after_a_checkpoint_is_gone_back_from(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortest way back: that step alone teaches nothing, and what follows is learned from where the other was."""
    look, seen = loop.find_trouble, []

    def looked(job: Any, found: Any, norm: torch.Tensor) -> str:
        seen.append(1)
        return "loss nan" if len(seen) == 5 else look(job, found, norm)

    monkeypatch.setattr(loop, "find_trouble", looked)
    folder = pretrain(str(recipe(steps=6, validate=0, extra=acting("rewind"))))
    assert Run(folder).status["state"] == "done"
    assert Run(folder).status["left_out"] == [{"first": 5, "last": 5, "why": "loss nan"}]
    assert [line["step"] for line in read(folder / "metrics.jsonl") if "loss" in line] == [1, 2, 3, 4, 6]


@pytest.mark.parametrize(("broken", "fails"), [(6, False), (7, True)])
def test_a_run_most_of_whose_steps_taught_nothing_is_not_done(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, broken: int, fails: bool
) -> None:
    """Half of twelve steps may; one more may not, also when it is asked again."""
    look, seen = loop.find_trouble, []

    def looked(job, found, norm):  # type: ignore[no-untyped-def]
        seen.append(1)
        return "loss nan" if len(seen) <= broken else look(job, found, norm)

    monkeypatch.setattr(loop, "find_trouble", looked)
    asked = recipe(extra=acting("skip"))
    folder = asked.with_suffix("")
    for name in (asked, folder):
        if fails:
            with pytest.raises(
                Trouble, match=r"7 of 12 steps were skipped, the last for loss nan; wanted at least half"
            ):
                pretrain(str(name))
        else:
            pretrain(str(name))
        assert Run(folder).status["state"] == ("failed" if fails else "done")


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_weights_that_are_no_numbers_are_not_saved(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    broken_after(monkeypatch, 8)
    asked = recipe(extra=acting(action), validate=0, keep=1)
    with pytest.raises(Trouble, match="NaN or Inf") as caught:
        pretrain(str(asked))
    folder = asked.with_suffix("")
    assert checkpoint.steps(folder / "checkpoints") == [4]
    pretrain(str(folder), overrides(caught.value)[1:])
    assert Run(folder).status["state"] == "done"


def test_without_a_checkpoint_none_is_promised(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_after(monkeypatch, 2)
    asked = recipe(validate=0)
    with pytest.raises(Trouble, match=r"; no checkpoint is complete: `.*` resumes from the start and") as caught:
        pretrain(str(asked))
    folder = asked.with_suffix("")
    assert not checkpoint.steps(folder / "checkpoints")
    pretrain(str(folder), overrides(caught.value)[1:])
    assert Run(folder).status["state"] == "done"


def test_a_checkpoint_of_no_numbers_is_named(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As older versions may have left it."""
    from ordsmed.train.job import Job

    monkeypatch.setattr(Job, "finite", True)
    broken_after(monkeypatch, 8)
    asked = recipe(validate=0)
    with pytest.raises(Trouble):
        pretrain(str(asked))
    monkeypatch.undo()
    folder = asked.with_suffix("")
    assert checkpoint.steps(folder / "checkpoints") == [4, 8]
    with pytest.raises(Trouble, match=r"step-000000008: has weights with NaN or Inf.*delete it to resume from step 4"):
        pretrain(str(folder))


def test_stretches_over_each_other_count_once() -> None:
    def stretches(*pairs: tuple[int, int]) -> list[dict[str, int]]:
        return [{"first": first, "last": last} for first, last in pairs]

    assert count_skipped([]) == 0
    assert count_skipped(stretches((3, 3))) == 1
    assert count_skipped(stretches((5, 6), (5, 8), (1, 1), (8, 9))) == 6
    assert count_skipped(stretches((1, 10), (2, 3))) == 10

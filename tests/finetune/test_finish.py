"""What a finished fine-tuning leaves: by which checkpoint it is judged, whatever is wrong with some of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.learn.tasks import classify
from ordsmed.train.finetune import finish
from ordsmed.train.finetune.recipe import Finetuning

JUDGED = ((4, 70.0), (8, 90.0), (12, 80.0), (16, None))  # step and accuracy


def chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damaged: tuple[int, ...] = (), judged: Any = JUDGED, **how: Any
) -> int:
    """The step that is taken of four that stand, of which some are damaged."""
    recipe = Finetuning(task=classify.Classify(train="a.tsv", labels=("a", "b")), init="x", **how)
    lines = [{"step": step, **({} if score is None else {"accuracy": score})} for step, score in judged]
    job: Any = SimpleNamespace(state=SimpleNamespace(validations=lines))
    monkeypatch.setattr(finish.checkpoint, "steps", lambda _: [4, 8, 12, 16])
    whole = finish.checkpoint.KINDS if how.get("average") else finish.checkpoint.KINDS[:1]

    def damage(path: Path, kinds: tuple[str, ...]) -> str:
        assert kinds == whole, "running means stand beside the moments"
        return "is damaged" if int(path.name.removeprefix("step-")) in damaged else ""

    monkeypatch.setattr(finish.checkpoint, "damage", damage)
    step, path = finish._chosen(job, recipe, folder)
    assert path == finish.checkpoint.path_of(folder, step)
    return step


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize(
    ("damaged", "wanted"), [((), 8), ((8,), 12), ((8, 12), 4), ((12,), 8), ((4, 8, 12), 16), ((16,), 8)]
)
def test_the_best_check_that_is_whole_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: tuple[int, ...], wanted: int, average: float
) -> None:
    """Else the next best, at last the last that stands."""
    assert chosen(tmp_path, monkeypatch, damaged, average=average) == wanted


def test_without_a_check_the_last_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(tmp_path, monkeypatch, judged=()) == 16
    with pytest.raises(DataError, match="is damaged; wanted a whole checkpoint; start anew with --anew"):
        chosen(tmp_path, monkeypatch, (16,), judged=())

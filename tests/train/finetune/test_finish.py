"""What a finished fine-tuning leaves: by which checkpoint it is judged, whatever is wrong with some of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base.errors import DataError
from ordsmed.learn.task import no_better
from ordsmed.learn.tasks import classify
from ordsmed.train import checkpoint
from ordsmed.train.finetune import finish
from ordsmed.train.finetune.examples import TaskData
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.use import predict
from ordsmed.weights import boxes


class Taken(Exception):
    """Weights are read from this checkpoint."""


JUDGED = ((4, 70.0), (8, 90.0), (12, 80.0), (16, None))  # step and accuracy


def chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damaged: tuple[int, ...] = (), judged: Any = JUDGED, **how: Any
) -> int:
    """The step that is taken of four that stand, of which some are damaged."""
    recipe = Finetuning(task=classify.Classify(train="a.tsv", labels=("a", "b")), init="x", **how)
    lines = [{"step": step, **({} if score is None else {"accuracy": score})} for step, score in judged]
    job: Any = SimpleNamespace(recipe=recipe, data=object.__new__(TaskData), state=SimpleNamespace(validations=lines))

    def read(path: Path) -> None:
        raise Taken(path)

    monkeypatch.setattr(checkpoint, "steps", lambda _: [4, 8, 12, 16])
    whole = checkpoint.KINDS if how.get("average") else checkpoint.KINDS[:1]

    def damage(path: Path, kinds: tuple[str, ...]) -> str:
        assert kinds == whole, "running means stand beside the moments"
        return "is damaged" if int(path.name.removeprefix("step-")) in damaged else ""

    monkeypatch.setattr(checkpoint, "damage", damage)
    monkeypatch.setattr(boxes, "read_weights", read)
    with pytest.raises(Taken) as taken:
        finish.finish(job, folder)
    [path] = taken.value.args
    assert path.parent == folder / "checkpoints"
    return int(path.name.removeprefix("step-"))


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize(
    ("damaged", "wanted"), [((), 8), ((8,), 12), ((8, 12), 4), ((12,), 8), ((4, 8, 12), 16), ((16,), 8)]
)
def test_the_best_check_that_is_whole_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: tuple[int, ...], wanted: int, average: float
) -> None:
    assert chosen(tmp_path, monkeypatch, damaged, average=average) == wanted


def test_without_a_check_the_last_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(tmp_path, monkeypatch, judged=()) == 16
    with pytest.raises(DataError, match="is damaged; wanted a whole checkpoint; start again with --anew"):
        chosen(tmp_path, monkeypatch, (16,), judged=())


def test_no_better_than_guessing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the score that counts; not where nobody knows, nor where guessing is right throughout."""
    worse = "f1 39.20 is no better than guessing by frequency (45.10); try more `epochs`"
    assert no_better("f1", {"f1": 39.2, "accuracy": 90.0}, {"f1": 45.1, "accuracy": 80.0}).startswith(worse)
    assert no_better("f1", {"f1": 0.0}, {"f1": 0.0})
    near = no_better("f1", {"f1": 50.5}, {"f1": 45.1})
    assert near.startswith("f1 50.50 is hardly better than guessing by frequency (45.10); try more `epochs`")
    below = no_better("f1", {"f1": 66.2}, {"f1": 45.1}, {"f1": 71.3})
    assert below.startswith("f1 66.20 is below a baseline that counts the words of each class (71.30)")
    assert "; try `task.pool=mean`, more `epochs`" in below
    mean = no_better("f1", {"f1": 66.2}, {"f1": 45.1}, {"f1": 71.3}, "mean")
    assert mean == below.replace("`task.pool=mean`, ", "")
    assert below.endswith("`fresh=true out=...` trains from random weights to compare")
    assert no_better("f1", {"f1": 66.2}, {"f1": 45.1}, {"f1": 66.1}) == ""
    for scores, guessing in (({"f1": 50.7}, {"f1": 45.1}), ({"f1": 3.0}, {}), ({}, {"f1": 3.0}), ({"f1": 100.0},) * 2):
        assert no_better("f1", scores, guessing) == ""
    (tmp_path / "scores.json").write_text('{"f1": 39.2, "guessing": {"f1": 45.1}}')
    said = {"tags": ["O"]}
    settings = SimpleNamespace(paths=lambda _: ["dev"], record="f1", details=lambda *_: [], count_scored=len)
    model = SimpleNamespace(settings=settings, trained=SimpleNamespace(folder=tmp_path))
    monkeypatch.setattr(predict, "open_task", lambda *_, **__: model)
    monkeypatch.setattr(predict, "_dev_files", lambda _, paths: paths)
    monkeypatch.setattr(predict, "_predicted", lambda *_, **__: (said, said, {"f1": 39.2}, None))
    assert any(line.startswith(worse) for line in predict.evaluate("run").lines)
    assert not any("guessing" in line for line in predict.evaluate("run", ["other"]).lines), "of those it is not known"

"""Callbacks: what is done after a step, in order; those that a recipe names, and what is refused of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.makers import job_of
from ordsmed.base import run
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.train import callbacks, loop
from ordsmed.train.callbacks import AfterStep, Callback
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.training import Training

Recipe = Callable[..., Path]

HISTOGRAM = """
import json
from ordsmed.train.callbacks import Callback

class Histogram(Callback):
    def begin(self, job, folder, start):
        self.file = (folder / "weights.jsonl").open("a")
        self.note(begins=start)
    def after_step(self, state):
        if state.step % 3 == 0:
            weights = [float(weight.detach().abs().max()) for weight in state.model.parameters()]
            self.note(step=state.step, most=max(weights), loss=state.metrics.get("mean", 1.0))
    def metrics(self, lines):
        self.note(lines=[line["step"] for line in lines])
    def end(self):
        self.file.close()
    def finished(self, folder):
        (folder / "finished.txt").write_text(str((folder / "weights/model.safetensors").exists()))
    def note(self, **facts):
        print(json.dumps(facts), file=self.file)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes a module of a user's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "my_lab").mkdir()

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "my_lab"]:
            del sys.modules[name]

    def write(text: str) -> None:
        forget()
        (tmp_path / "my_lab/histogram.py").write_text(text)

    yield write
    forget()


def noted(folder: Path, key: str) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "weights.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


def test_a_callback_of_a_recipe_is_called_with_the_run(recipe: Recipe, lab: Callable[..., None]) -> None:
    lab(HISTOGRAM)
    folder = pretrain(str(recipe(steps=6, callbacks=["my_lab.histogram"], log=1)))
    assert (noted(folder, "begins"), noted(folder, "step")) == ([0], [3, 6])
    assert all(0 < value < 10 for key in ("most", "loss") for value in noted(folder, key))
    assert noted(folder, "lines") == [[1], [2], [3], [4], [5], [6], [6]], "the last is of the validation"
    assert (folder / "finished.txt").read_text() == "True"
    assert run.read_recipe(Pretraining, folder).callbacks == ("my_lab.histogram",)


def test_callbacks_are_no_part_of_what_a_run_is(
    recipe: Recipe, lab: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that began without them is resumed with them, by its recipe or its folder; and without them again."""
    lab(HISTOGRAM)
    path, with_it = recipe(steps=6), ["callbacks=['my_lab.histogram']"]
    folder = path.parent / "run"
    starts: list[tuple[str, Path, list[str], list[int] | None]] = [
        ("2", path, [], None),
        ("4", path, with_it, [2]),
        ("5", folder, [], [2, 4]),
        ("6", folder, ["callbacks=[]"], [2, 4]),
    ]
    for step, name, words, begins in starts:
        monkeypatch.setenv("ORDSMED_STOP_AT", step)
        if step == "6":
            pretrain(str(name), words)
        else:
            with pytest.raises(Stopped):
                pretrain(str(name), words)
        assert (noted(folder, "begins") if begins else None) == begins
    assert Run(folder).status["state"] == "done"


def test_a_function_is_called_after_each_step(recipe: Recipe, lab: Callable[..., None]) -> None:
    lab("steps = []\ndef after_step(state):\n    steps.append(state.step)\ndef other(state):\n    steps.append(0)")
    pretrain(str(recipe(steps=3)), ['callbacks=["my_lab.histogram", "my_lab.histogram:other"]'])
    assert sys.modules["my_lab.histogram"].steps == [1, 0, 2, 0, 3, 0]


REFUSED = [
    ("x = 1", "my_lab.histogram", "`my_lab.histogram` has no callback; wanted a class that derives from"),
    ("x = 1", "my_lab.histogram:draw", "`my_lab.histogram:draw` has no draw; wanted a class"),
    ("draw = 1", "my_lab.histogram:draw", "`my_lab.histogram:draw` is not a callback; wanted a class"),
    ("class Draw: pass", "my_lab.histogram:Draw", "`my_lab.histogram:Draw` is not a callback; wanted a class"),
    ("def after_step(): pass", "my_lab.histogram", "after_step cannot be called (too many positional arguments)"),
    ("import nothing_at_all", "my_lab.histogram", "cannot be imported: ModuleNotFoundError"),
    ("", "my_lab.nowhere", "No module named 'my_lab.nowhere'"),
    ("class A(Callback): pass\nclass B(Callback): pass", "my_lab.histogram", 'has A and B; wanted one; name it: "my_'),
    ("class A(Callback):\n def __init__(self, n): pass", "my_lab.histogram", "A() fails: TypeError: "),
    ("class A(Callback):\n def metrics(self): pass", "my_lab.histogram", "metrics cannot be called (too many"),
]


@pytest.mark.parametrize(("text", "name", "said"), REFUSED, ids=[f"{text} {name}" for text, name, _ in REFUSED])
def test_what_is_no_callback_is_refused_before_anything_is_made(
    recipe: Recipe, lab: Callable[..., None], text: str, name: str, said: str
) -> None:
    lab("from ordsmed.train.callbacks import Callback\n" + text)
    path = recipe(steps=3)
    for act in (rehearse, pretrain):
        with pytest.raises(RecipeError, match=re.escape(said)) as error:
            act(str(path), [f'callbacks=["{name}"]'])
        assert re.match(r"\S*run\.toml: callbacks: ", str(error.value))
        assert "\n" not in str(error.value)
    assert not (path.parent / "run").exists()


def test_what_goes_wrong_in_a_callback_is_one_line(recipe: Recipe, lab: Callable[..., None]) -> None:
    """The run ends there, with its name and the line; it is resumed without it."""
    lab("def after_step(state):\n    if state.step == 3:\n        return [][7]")
    path = recipe(steps=4, callbacks=["my_lab.histogram"], save=2)
    with pytest.raises(RunError, match=r"^callbacks: my_lab\.histogram: after_step: IndexError: .*line 3") as error:
        pretrain(str(path))
    assert str(error.value).endswith("correct it, or resume the run with `callbacks=[]`")
    assert pretrain(str(path.parent / "run"), ["callbacks=[]"])


def test_a_callback_may_be_handed_in(recipe: Recipe) -> None:
    """By who starts a run from Python or above; what it raises goes through."""

    class Given(Callback):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def begin(self, job: Any, folder: Path, start: int) -> None:
            self.calls.append("begin")

        def end(self) -> None:
            self.calls.append("end")

        def finished(self, folder: Path) -> None:
            self.calls.append(f"finished {folder.name}")

    class Enough(Exception): ...

    def stop(state: callbacks.LoopState) -> None:
        raise Enough

    given = Given()
    pretrain(str(recipe(steps=2)), callbacks=[given])
    assert given.calls == ["begin", "end", "finished run"]
    with pytest.raises(Enough):
        pretrain(str(recipe("again", steps=2)), callbacks=[given, AfterStep(stop)])
    assert given.calls[-2:] == ["begin", "end"]


@pytest.mark.parametrize(("first", "every_rank", "calls"), [(True, False, 4), (False, False, 0), (False, True, 4)])
def test_the_first_rank_calls_them_unless_they_say_otherwise(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool, every_rank: bool, calls: int
) -> None:
    steps: list[int] = []
    callback = AfterStep(lambda state: steps.append(state.step), every_rank=every_rank)
    job = job_of(recipe(steps=4), "model.width=16", "model.layers=1")
    monkeypatch.setattr(type(job.ranks), "first", property(lambda ranks: first))
    loop.train(job, tmp_path, 0, 1e9, callbacks=[callback])
    assert len(steps) == calls


def test_callbacks_are_in_no_fingerprint_of_either_training() -> None:
    """Whatever else a class names as how it is done."""
    assert all("callbacks" in kind.HOW for kind in (Training, Pretraining, Finetuning))


def test_the_order_of_what_is_done_after_a_step() -> None:
    names = [act.__name__ for act in callbacks.step_actions([Callback()])]
    assert names == ["write_metrics", "<lambda>", "apply_deadline", "validate", "save", "stop_or_replan"]

"""Keywords of Python change a recipe as the words of the command line do; what is not clear is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ordsmed
from ordsmed.api.keywords import words_of
from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.nn.models import bert
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.pretrain.plan import PretrainingPlan

ONE = """
data = "there"
model = { kind = "bert", width = 64, layers = 2, heads = 2 }
objective = "mlm"
[[phase]]
steps = 500
length = 32
batch = 8
learning_rate = 1e-3
warmup = 50
"""


@pytest.fixture
def one(tmp_path: Path) -> str:
    path = tmp_path / "one.toml"
    path.write_text(ONE)
    return str(path)


def changed(name: str, overrides: tuple[str, ...] = (), **keywords: Any) -> Any:
    """The recipe that a pretraining is started with."""
    words = words_of(PretrainingPlan.recipes, name, overrides, keywords)
    return run.load(PretrainingPlan.recipes, name, words)[0]


def test_settings_of_the_one_phase_are_those_of_the_recipe(one: str) -> None:
    recipe = changed(one, steps=100, learning_rate=2e-5, seed=3)
    assert [(p.steps, p.learning_rate, p.length, p.warmup) for p in recipe.phase] == [(100, 2e-5, 32, 10)]
    assert recipe.seed == 3
    assert (
        recipe
        == run.load(
            PretrainingPlan.recipes, one, ["phase.steps=100", "phase.learning_rate=2e-5", "phase.warmup=10", "seed=3"]
        )[0]
    )
    assert changed(one, steps=100, warmup=7).phase[0].warmup == 7
    bound = ("phase.steps=0", "phase.epochs=3", "phase.warmup=0", "phase.max_steps=9")
    assert (changed(one, bound, epochs=2).phase[0].max_steps, changed(one, bound, steps=2).phase[0].max_steps) == (9, 0)
    assert changed(one, ("phase.schedule.over=1000",), steps=100).phase[0].schedule.over == 200, "so does its course"
    cut = changed(one, ("phase.schedule.over=5000", "phase.warmup=1000"), steps=100).phase[0]
    assert (cut.warmup, cut.schedule.over) == (200, 1000), "a warm-up may be longer than the phase that cuts it off"
    assert changed(one, warmup=7, steps=100).phase[0].warmup == 7, "in whatever order"
    for both in ({"steps": 5, "epochs": 3.0}, {"epochs": 3.0, "steps": 5}):
        with pytest.raises(RecipeError, match="epochs: found 3 and 5 steps; wanted one of the two"):
            changed(one, **both)
    assert changed(one, epochs=2.0).phase[0].epochs == 2
    by_epochs = ("phase.steps=0", "phase.epochs=3", "phase.warmup=0.1")
    assert [changed(one, by_epochs, steps=9).phase[0].steps, changed(one, by_epochs).phase[0].epochs] == [9, 3]
    with pytest.raises(RecipeError, match=r"steps: found 0; wanted a whole number, 1 or more$"):
        changed(one, steps=0)


def test_steps_of_several_phases_are_those_of_all_together() -> None:
    recipe = changed("tiny/bert", steps=100)
    assert [p.steps for p in recipe.phase] == [97, 3]
    assert [p.warmup for p in recipe.phase] == [10, 0]
    assert [p.steps for p in changed("tiny/bert", steps=1040).phase] == [1000, 40]
    assert [p.warmup for p in changed("tiny/bert", steps=1040).phase] == [100, 0]
    assert [p.steps for p in changed("tiny/bert", steps=2).phase] == [1, 1]
    for count in range(2, 60):
        assert sum(p.steps for p in changed("tiny/bert", steps=count).phase) == count
    assert [p.steps for p in changed("tiny/bert", steps=np.int64(100)).phase] == [97, 3]
    with pytest.raises(RecipeError, match="steps: found 1; wanted a whole number, 2 or more"):
        changed("tiny/bert", steps=1)
    with pytest.raises(RecipeError, match=r"steps: found 9\.5; wanted a whole number"):
        changed("tiny/bert", steps=9.5)


def test_no_phase_of_many_is_left_without_a_step(tmp_path: Path) -> None:
    phases = ",".join(f"{{length=32,batch=8,steps={steps},learning_rate=1e-3}}" for steps in (40, 40, 1, 1, 1))
    (tmp_path / "five.toml").write_text(f'like = "tiny/bert"\nphase = [{phases}]\n')
    for count in range(5, 90):
        steps = [phase.steps for phase in changed(str(tmp_path / "five.toml"), steps=count).phase]
        assert (min(steps) >= 1, sum(steps)) == (True, count)


@pytest.mark.parametrize(("key", "value"), [("steps", '"many"'), ("warmup", '"x"'), ("steps", "true")])
def test_a_phase_of_another_type_is_refused_by_its_place(tmp_path: Path, key: str, value: str) -> None:
    phase = {"steps": "4", "length": "32", "batch": "8", "learning_rate": "1e-3", key: value}
    table = ", ".join(f"{name} = {each}" for name, each in phase.items())
    (tmp_path / "odd.toml").write_text(f'like = "tiny/bert"\nphase = [{{{table}}}, {{{table}}}]\n')
    with pytest.raises(RecipeError, match=rf"{key}: found "):
        changed(str(tmp_path / "odd.toml"), steps=6)


def test_a_setting_of_one_phase_among_several_is_to_say_which() -> None:
    with pytest.raises(RecipeError, match=r'rate: found with 2 phases; wanted \{"phase\[1\].learning_rate": '):
        changed("tiny/bert", learning_rate=1e-3)
    assert [p.learning_rate for p in changed("tiny/bert", **{"phase.learning_rate": 0.5}).phase] == [0.5, 0.5]
    assert [p.learning_rate for p in changed("tiny/bert", **{"phase[2].learning_rate": 0.5}).phase] == [2e-3, 0.5]
    assert [p.learning_rate for p in changed("tiny/bert", phase={"learning_rate": 0.5}).phase] == [0.5, 0.5]
    assert changed("tiny/bert", ("phase[1].learning_rate=0.25",)).phase[0].learning_rate == 0.25
    with pytest.raises(RecipeError, match=r"steps: found with 2 phases"):
        changed("tiny/bert", ("phase.steps=0", "phase.epochs=1"), steps=9)


def test_tables_change_what_they_say_alone_unless_they_name_a_kind(one: str) -> None:
    assert (changed(one, model={"width": 32}).model.width, changed(one, model={"width": 32}).model.layers) == (32, 2)
    assert changed(one, model={"kind": "bert", "width": 32, "heads": 2}).model.layers != 2
    assert changed(one, model=bert.Bert(width=48, layers=3, heads=3)).model == bert.Bert(48, 3, 3)
    assert changed(one, objective={"mask_prob": 0.3}).objective.mask_prob == 0.3
    assert changed(one, layout={"threads": 2}, **{"layout.micro": 4}).layout.threads == 2
    assert changed(one, data={"a/b": 0.5, "c": 0.5}).data == {"a/b": 0.5, "c": 0.5}, "names are the user's: as a whole"


def test_values_are_those_that_python_has(one: str) -> None:
    recipe = changed(one, out=Path("some") / "where", revisions=(1, 2), seed=np.int64(4), clip=np.float32(0.5))
    assert (recipe.out, recipe.revisions, recipe.seed, recipe.clip) == ("some/where", (1, 2), 4, 0.5)
    assert changed(one, revisions=range(1, 3)).revisions == changed(one, revisions=np.array([1, 2])).revisions == (1, 2)
    assert changed(one, tokenizer="100").tokenizer == "100", "a text stays a text"
    assert changed(one, tokenizer='with "quotes" and \\ æ').tokenizer == 'with "quotes" and \\ æ'
    assert changed(one, init=None, out=None).init is None
    with pytest.raises(RecipeError, match="data: found None, but the recipe sets it"):
        changed(one, data=None)
    with pytest.raises(RecipeError, match="found object; wanted a text, a number, a list or a table"):
        changed(one, seed=object())


@pytest.mark.parametrize(
    "value", [1, -2.5, 1e-5, 1e300, "none", "a=b", True, [1, [2.0, "x"]], {"a": {"b c": 1}}, float("inf")]
)
def test_every_value_comes_back_from_its_word(value: Any) -> None:
    assert settings.override({}, [f"key={settings.literal(value)}"]) == {"key": value}


def test_unknown_settings_lead_to_what_was_meant(one: str) -> None:
    with pytest.raises(RecipeError, match=r"overrides: found the text 'seed=1'; wanted \[\"key.path=value\", ...\]"):
        changed(one, "seed=1")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="no recipe of `pretrain` and no file; did you mean `tiny/bert`"):
        changed("tiny/brt", steps=3)


def test_what_a_fine_tuning_says_of_steps_is_its_own() -> None:
    keywords = {"steps": 7, "learning_rate": 1e-4, "task": {"length": 32}, "grid": {"learning_rate": [1e-4, 1e-3]}}
    words = words_of(FinetuningPlan.recipes, "tiny/words", (), keywords)
    recipe = run.load(FinetuningPlan.recipes, "tiny/words", words)[0]
    assert (recipe.steps, recipe.learning_rate, recipe.task.length) == (7, 1e-4, 32)
    assert (recipe.task.train, recipe.grid) == ("lessons/words-train.conll", {"learning_rate": [1e-4, 1e-3]})


def test_another_thread_is_told_to_leave_it_to_the_first(one: str) -> None:
    complaints: list[str] = []

    def call() -> None:
        with pytest.raises(RecipeError) as error:
            changed(one)
        complaints.append(str(error.value))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    wanted = "the main thread, which receives Ctrl-C and signals"
    assert complaints == [f"pretrain: called from another thread; wanted {wanted}"]


def test_a_layout_is_a_mesh_in_words_or_a_table_of_the_recipe(one: str, tmp_path: Path) -> None:
    """Refused by what it holds, before anything is made."""
    out = str(tmp_path / "out")
    calls: list[tuple[Any, str]] = [(ordsmed.pretrain, one), (ordsmed.finetune, "tiny/words")]
    for call, recipe in calls:
        with pytest.raises(RecipeError, match=r"layout\.thread: unknown setting; did you mean `layout.threads`"):
            call(recipe, layout={"thread": 1}, out=out)
        with pytest.raises(RecipeError, match=r"layout: found 3; wanted "):
            call(recipe, layout=3, out=out)
        with pytest.raises(RecipeError, match=r"--layout: found 2x1; wanted auto, or replicate x shard x tensor"):
            call(recipe, layout="2x1", out=out)


@pytest.mark.parametrize("deadline", ["soon", "0s", "", 0, -1.5, float("nan"), float("inf")])
def test_a_deadline_that_is_none_is_refused(one: str, deadline: str | float) -> None:
    with pytest.raises(
        RecipeError, match=r"^deadline: found .*; wanted seconds above 0, or a text such as 3h, 90m or 1h30m"
    ):
        ordsmed.pretrain(one, deadline=deadline)

"""What is wrong in a file of somebody's own, told with the line it comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ordsmed.base import offers
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.learn.classification.records import Part, Records
from ordsmed.learn.tasks.classify import Classify


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python finds."""
    (tmp_path / "lab_of_offers").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "lab_of_offers"
    for name in [name for name in sys.modules if name.startswith("lab_of_offers")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError: division by zero ({file}, line 2)", "correct that line"),
        ("x = (\n", "'(' was never closed ({file}, line 1)", "correct that line"),
        ("\nraise SyntaxError('odd')\n", "SyntaxError: odd ({file}, line 2)", "correct that line"),
        ("raise ValueError('a\\nb')\n", "ValueError: a b ({file}, line 1)", "correct that line"),
        (
            "import no_such_module\n",
            "ModuleNotFoundError: No module named 'no_such_module' ({file}, line 1)",
            "correct or install that module",
        ),
        (
            "raise ModuleNotFoundError('x')\n",
            "ModuleNotFoundError: x ({file}, line 1)",
            "correct or install that module",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(lab: Path, text: str, said: str, remedy: str) -> None:
    (lab / "thing.py").write_text(text)
    with pytest.raises(RecipeError) as error:
        offers.import_module("lab_of_offers.thing", "r.toml: model.kind")
    told = said.format(file=lab / "thing.py")
    assert str(error.value) == f"r.toml: model.kind: `lab_of_offers.thing` cannot be imported: {told}; {remedy}"


def test_a_file_that_python_does_not_find(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One below the folder where one stands needs only that folder on the path."""
    monkeypatch.chdir(lab)
    Path("mine").mkdir()
    Path("mine/thing.py").write_text("")
    (lab / "shouting.py").write_text("")
    (lab / "poems.py").write_text("")
    for kind, remedy in (
        ("mine.thing", "`export PYTHONPATH=$PWD`"),
        ("mine.other", "put the folder above it"),
        ("lab_of_offers.shoutin", "`lab_of_offers` is found; did you mean `shouting`?"),
        ("lab_of_offers.xyz", "`lab_of_offers` is found; there are: poems, shouting"),
        ("lab_of_offers.poems.more", "put the folder above it on PYTHONPATH"),
    ):
        with pytest.raises(RecipeError, match="wanted a module that Python finds; ") as error:
            offers.import_module(kind, "here")
        assert error.value.remedy.startswith(remedy)


def test_what_a_base_class_leaves_is_named() -> None:
    class Base:
        def whole(self, text: str, *, fast: bool = False) -> int:
            raise NotImplementedError

        def alone(self) -> int:
            return 3

    class Made(Base):
        pass

    with pytest.raises(
        RecipeError, match=r"^here: Made has no `whole`; wanted `whole\(text: 'str', \*, fast: 'bool' = F"
    ):
        offers.check_finished("tasks", Made, "Made", "here")
    Made.whole = lambda self, text, *, fast=False: 4  # type: ignore[assignment, method-assign]
    offers.check_finished("tasks", Made, "Made", "here")


def test_a_method_goes_on_under_its_former_name() -> None:
    """What a task of somebody's calls `settled` is called as `complete`, and its call of the one above it arrives."""

    @dataclass(frozen=True, kw_only=True)
    class Mine(Classify, Choice):
        def settled(self, records: Records) -> Classify:
            return replace(super().settled(records), length=7)  # type: ignore[misc, no-any-return]

    @dataclass(frozen=True, kw_only=True)
    class Later(Mine, Choice):
        def complete(self, records: Records) -> Classify:
            return replace(super().complete(records), pool="mean")

    records = Records(["x", "y"], [], ["a", "b"], [Part(Path("x.tsv"), [1, 2])])
    for choice in (Later, Mine):
        offers.check("tasks", "my_lab.mine", choice, "here")
    assert Mine().complete(records) == Mine(labels=("a", "b"), length=7)
    assert Later().settled(records) == Later().complete(records) == Later(labels=("a", "b"), length=7, pool="mean")
    assert Classify().complete(records) == Classify(labels=("a", "b"))

"""Menus: files of a folder are the choices; help is read from their source."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import menu
from ordsmed.base.arguments import UsageError
from ordsmed.base.errors import RecipeError
from ordsmed.cli import main, verb
from ordsmed.nn.models import bert

SAMPLE = '''"""A head line
over two lines.

And more."""
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal
from ordsmed.base.menu import Menu

@dataclass(frozen=True)
class Other:
    """Not this one."""
    wrong: int = 1

@dataclass(frozen=True)
class Settings:
    """Of a lab of one's own."""
    verb: ClassVar[str] = "x"
    first: int
    """has no
    default"""
    bare: str = "no doc"
    model: Annotated[Any, Menu("models")] = None
    "a choice"
    way: Literal["up", "down"] = "up"
    """one of two"""
    only: Literal["up"] = "up"
    many: tuple[int, ...] = (1, 2)
    inner: Other = field(default_factory=Other)
    listed: list[int] = field(default_factory=lambda: [1])
    def clean(self, text, meta):
        "not a setting"
'''


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An importable module outside the house."""
    (tmp_path / "my_lab_for_menus").mkdir()
    (tmp_path / "my_lab_for_menus" / "thing.py").write_text(SAMPLE)
    (tmp_path / "my_lab_for_menus" / "empty.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_lab_for_menus.thing"


def test_lines_from_the_source(lab: str) -> None:
    found = {line.name: (line.type, line.default, line.doc) for line in menu.lines(lab)}
    assert found == {
        "first": ("int", "required", "has no default"),
        "bare": ("str", "'no doc'", ""),
        "model": ("one of models", "None", "a choice"),
        "way": ("'up' | 'down'", "'up'", "one of two"),
        "only": ("'up'", "'up'", ""),
        "many": ("list of int", "[1, 2]", ""),
        "inner": ("table", "its defaults", ""),
        "listed": ("list[int]", "[1]", ""),
    }
    assert menu.headline(lab) == "A head line over two lines."
    assert [line.name for line in menu.lines(lab, "Other")] == ["wrong"]


WITHIN = '''"""Settings with tables in them, of this file, of another, and of the house."""

import decimal
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from my_lab_for_menus import deeper
from my_lab_for_menus.deeper import Inner as Renamed
from ordsmed.base.menu import Menu
from ordsmed.learn.schedules import Schedule

Way = Literal["up", "down"]

class Plain:
    pass

@dataclass(frozen=True)
class Base:
    base: Renamed | None = None
    """of a base class"""

@dataclass(frozen=True)
class Settings(Base):
    SHARED: ClassVar[Renamed]
    many: tuple[Schedule, ...] = ()
    """several"""
    way: Way | None = None
    plain: Plain | decimal.Decimal | None = None
    attribute: deeper.Inner = field(default_factory=deeper.Inner)
    itself: "Settings | None" = None
    again: Base | None = None
    outer: Renamed.Way | None = None
    task: Annotated[Any, Menu("tasks")] = None
'''
DEEPER = '''"""The other file."""

from dataclasses import dataclass

@dataclass(frozen=True)
class Innermost:
    number: int = 0

@dataclass(frozen=True)
class Inner:
    innermost: Innermost | None = None
    itself: Inner | None = None
'''


def test_tables_within_settings_follow_from_annotations(lab: str, tmp_path: Path) -> None:
    """By names as they were imported, through bases, unions and tuples, and each level of them; no other class."""
    (tmp_path / "my_lab_for_menus" / "within.py").write_text(WITHIN)
    (tmp_path / "my_lab_for_menus" / "deeper.py").write_text(DEEPER)
    here, other = "my_lab_for_menus.within", "my_lab_for_menus.deeper"
    found = {one.key: (one.module, one.name) for one in menu.nested(here)}
    assert found == {
        "base": (other, "Inner"),
        "base.innermost": (other, "Innermost"),
        "many": ("ordsmed.learn.schedules", "Schedule"),
        "attribute": (other, "Inner"),
        "attribute.innermost": (other, "Innermost"),
        "again": (here, "Base"),
        "again.base": (other, "Inner"),
        "again.base.innermost": (other, "Innermost"),
        "task.mining": ("ordsmed.learn.embedding.mining", "Mining"),
        "task.top": ("ordsmed.learn.upper_layers", "Top"),
    }


def test_tables_of_a_menu_name_the_kinds_that_have_them() -> None:
    found = {one.key: one for one in menu.nested("ordsmed.train.pretrain.recipe", "Pretraining")}
    assert found["objective.generator"].kinds == ("rtd",)
    assert found["objective.mask_prob"].kinds == ("hybrid", "mlm")
    assert found["phase.schedule"].kinds == ()
    assert {one.key: one.kinds for one in menu.nested("ordsmed.train.finetune.recipe", "Finetuning")}["task.top"] == ()


def test_a_source_that_changed_is_read_again(lab: str, tmp_path: Path) -> None:
    path = tmp_path / "my_lab_for_menus" / "thing.py"
    assert menu.lines(lab)[0].name == "first"
    path.write_text(SAMPLE.replace("    first: int", "    other: int"))
    os.utime(path, ns=(1, 1))
    assert menu.lines(lab)[0].name == "other"


def test_a_module_outside_the_house_is_a_choice(lab: str) -> None:
    chosen = menu.load("cleaners", lab)
    assert chosen.__doc__ == "Of a lab of one's own."
    assert menu.kind_of(chosen(first=1)) == lab
    with pytest.raises(RecipeError, match="has no such class"):
        menu.load("models", "my_lab_for_menus.empty")
    with pytest.raises(RecipeError, match="`my_lab_for_menus` is found; "):
        menu.load("models", "my_lab_for_menus.nothing")


def module_of_lines(folder: Path, name: str, *lines: str) -> str:
    """A module of somebody's own, next to the one of the fixture."""
    head = "from dataclasses import dataclass\nfrom ordsmed.base.menu import Choice\n"
    head += "from ordsmed.corpus.cleaners.length import Length\n\n"
    (folder / "my_lab_for_menus" / f"{name}.py").write_text(head + "\n".join(lines) + "\n")
    importlib.invalidate_caches()
    return f"my_lab_for_menus.{name}"


def test_a_choice_derives_from_the_mark_itself_or_by_its_base(lab: str, tmp_path: Path) -> None:
    frozen = "@dataclass(frozen=True)"
    kind = module_of_lines(tmp_path, "longer", frozen, "class Longer(Length):", "    most: int = 9", "    'most'")
    assert menu.load("cleaners", kind).__name__ == "Longer"
    assert [line.name for line in menu.lines(kind)][-1] == "most"
    two = module_of_lines(tmp_path, "two", frozen, "class A(Length): pass", frozen, "class B(A): pass")
    with pytest.raises(RecipeError, match=r"r: A and B derive from `Choice`; wanted one such class in a module"):
        menu.load("cleaners", two, place="r")


def test_a_class_settings_goes_on_with_a_line_of_advice(
    lab: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("@dataclass(frozen=True)", "class Settings:", "    def clean(self, text, meta): return text")
    kind = module_of_lines(tmp_path, "former", *lines)
    chosen = menu.load("cleaners", kind)
    assert menu.load("cleaners", kind) is chosen
    assert chosen.__name__ == "Settings"
    assert menu.is_choice(chosen())
    output = capsys.readouterr()
    assert (output.out + output.err).count("derive the class from `ordsmed.base.menu.Choice` and rename it") == 1


@pytest.mark.parametrize("name", menu.MENUS)
def test_entries_are_the_files(name: str) -> None:
    files = {p.stem for folder in menu.folders_of(name) for p in folder.glob("*.py")} - {"__init__"}
    assert set(menu.entries(name)) == files != set()
    for kind in menu.entries(name):
        chosen: Any = menu.load(name, kind)
        module = importlib.import_module(menu.module_of(name, kind))
        assert chosen is menu.choice(module)
        assert [line.name for line in menu.lines(module.__name__)] == [f.name for f in dataclasses.fields(chosen)]


def test_a_missing_add_on_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(menu, "PACKAGES", menu.PACKAGES | {"corpora": ("corpus",), "verbs": ("cli",)})
    with pytest.raises(
        RecipeError, match=r"`web` is part of the add-on ordsmed\.web, which is not installed; install ordsmed with"
    ):
        menu.load("corpora", "web", place="source.kind")
    with pytest.raises(UsageError, match=r"`corpus addresses`: is part of the add-on ordsmed\.web, which is not"):
        verb.find("corpus addresses")
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "work/run", "--port", "0"])
    wanted = "`serve`: is part of the add-on ordsmed.serve, which is not installed; install ordsmed with its add-ons"
    assert capsys.readouterr().err == f"ordsmed: {wanted}, not only its core\n"


def test_kind_of() -> None:
    assert menu.kind_of(bert.Bert()) == "bert"
    assert menu.kind_of(object()) == "builtins"


def test_reading_help_imports_nothing_heavy() -> None:
    code = (
        "from ordsmed.base import menu; menu.lines('ordsmed.nn.models.bert'); import sys; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_settings_of_a_base_class_come_first_as_the_class_has_them() -> None:
    """Those that it changes stay at their place, in its own words."""
    found = {line.name: line for line in menu.lines("ordsmed.train.finetune.recipe", "Finetuning")}
    assert list(found)[:2] == ["model", "optimizer"]
    assert list(found).index("layer_decay") < list(found).index("task")
    assert (found["layer_decay"].type, found["layer_decay"].default) == ("float | None", "None")
    assert (
        found["layer_decay"].doc
        == "learning rate of a layer as a share of that of the layer above it; 1: the same for all layers"
    )
    assert (found["model"].type, found["task"].default) == ("one of models", "required")
    assert menu.lines("ordsmed.train.training", "Training")[0] == found["model"]


def test_types_in_words() -> None:
    found = {line.name: (line.type, line.default) for line in menu.lines("ordsmed.corpus.pipeline", "Corpus")}
    assert found["clean"] == ("some of cleaners", "[]")
    assert found["source"] == ("some of corpora", "required")
    assert found["duplicates"] == ("'drop' | 'keep'", "'drop'")
    assert found["near"] == ("table | None", "None")
    assert found["given"] == ("table", "its defaults")
    assert found["normalise"] == ("'NFC' | 'none'", "'NFC'"), "what a name of another module stands for"
    held_out = {line.name: line.default for line in menu.lines("ordsmed.corpus.decontamination", "Decontaminate")}
    assert held_out["shortest"] == "8", "the number, not the name of a constant"
    choices = {line.name: line.type for line in menu.lines("ordsmed.measure.probes.choices")}
    assert choices["metrics"].startswith("list of ('acc' | 'acc_norm' | ")
    assert choices["choices"] == "str | list of str | None"


def test_a_kind_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, place, said in (
        ("brt", "", r"^models kind: `brt` is not in models; did you mean `bert`\?$"),
        ("brt", "r.toml: model.kind", r"^r.toml: model.kind: `brt` is not in models"),
        ("no.such", "", r"^models kind: `no.such`: No module named 'no'"),
    ):
        with pytest.raises(RecipeError, match=said):
            menu.load("models", kind, place=place)
    assert menu.module_of("models", "bert") == "ordsmed.nn.models.bert"
    assert menu.module_of("models", "my.own") == "my.own"
    assert menu.kind_of(type("X", (), {"__module__": "ordsmed.nn.models.deep.bert"})()) == "ordsmed.nn.models.deep.bert"
    assert menu.kind_of(type("X", (), {"__module__": "ordsmed.train.mesh.layout"})()) == "ordsmed.train.mesh.layout"
    assert not [name for name in menu.MENUS for kind in menu.entries(name) if kind.startswith("_")]

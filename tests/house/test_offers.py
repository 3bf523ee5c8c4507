"""A contract of every menu: each entry offers what its menu asks for, and a probe of a user's own is held to it."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import pytest

from ordsmed.base import menu, offers
from ordsmed.base.errors import RecipeError
from ordsmed.cli import verb
from ordsmed.others.translate.program import Flag, Program
from ordsmed.tell.report.send import RunTracker

ENTRIES = [(name, kind) for name in menu.PACKAGES for kind in menu.entries(name)]


def test_every_menu_says_what_it_asks_for() -> None:
    assert set(offers.REQUIRED) == set(menu.PACKAGES)
    for name in (*menu.PACKAGES, "callbacks"):
        assert (Path(__file__).parents[2] / offers.page(name).removesuffix(" shows one")).is_file()
    assert len(ENTRIES) > 100


@pytest.mark.parametrize(("name", "kind"), ENTRIES, ids=lambda word: word)
def test_an_entry_offers_what_its_menu_asks_for(name: str, kind: str) -> None:
    if name in menu.MENUS:
        offers.check(name, kind, menu.load(name, kind), "here")
        assert menu.load(name, kind).__doc__
    else:
        module = menu.import_choice(name, kind)
        offers.check_names(name, module, kind, "here")
        assert module.__doc__


@pytest.mark.parametrize("kind", menu.entries("trackers"))
def test_a_tracker_takes_steps_and_an_end(kind: str) -> None:
    tracker = menu.import_choice("trackers", kind).Tracker
    for name in ("log", "end"):
        wanted = [*inspect.signature(getattr(RunTracker, name)).parameters]
        assert [*inspect.signature(getattr(tracker, name)).parameters] == wanted
    assert "{}" in menu.import_choice("trackers", kind).LATER


@pytest.mark.parametrize("kind", menu.entries("dialects"))
def test_a_dialect_is_programs_of_flags(kind: str) -> None:
    module = menu.import_choice("dialects", kind)
    names = [program.name for program in module.PROGRAMS]
    assert names
    for program in module.PROGRAMS:
        assert isinstance(program, Program)
        assert all(isinstance(flag, Flag) for flag in program.flags)
        assert len({flag.key for flag in program.flags}) == len(program.flags), program.name
        assert not program.verb or program.verb in verb.names(), program.name
    assert set(names).isdisjoint(getattr(module, "INSTEAD", {}))


def test_what_an_entry_does_not_have_is_refused() -> None:
    module = ModuleType("mine")
    module.LATER = ""  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=r"mine has no `Tracker`; wanted `Tracker\(sending\)`"):
        offers.check_names("trackers", module, "mine", "here")
    module.Tracker = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=r"mine\.Tracker has other parameters"):
        offers.check_names("trackers", module, "mine", "here")
    module.Tracker = "name"  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=r"mine\.Tracker is not a method"):
        offers.check_names("trackers", module, "mine", "here")


PROBE = """
from dataclasses import dataclass
from ordsmed.base.menu import Choice
from ordsmed.measure.probes.perplexity import Perplexity

@dataclass(frozen=True)
class Mine(Perplexity, Choice):
    "Perplexity by another name."
"""


def test_a_probe_of_a_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lab_of_probes").mkdir()
    (tmp_path / "lab_of_probes/my_probe.py").write_text(PROBE)
    (tmp_path / "lab_of_probes/my_broken_probe.py").write_text(PROBE + "    def as_line(self): ...\n")
    assert menu.load("probes", "lab_of_probes.my_probe")().best is False
    with pytest.raises(RecipeError, match=r"Mine\.as_line has other parameters"):
        menu.load("probes", "lab_of_probes.my_broken_probe")

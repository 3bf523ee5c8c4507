"""Modules that moved in 0.2 are found by the names they had, with a line that says where they are."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from kit.absent import ADD_ONS
from ordsmed.base import former_modules, menu


@pytest.mark.parametrize(
    ("before", "place"),
    [
        ("ordsmed.tasks.classify", "ordsmed.learn.tasks.classify"),
        ("ordsmed.apply.origin", "ordsmed.weights.origin"),
        ("ordsmed.apply.generation.options", "ordsmed.use.generation.options"),
        ("ordsmed.nn.weights", "ordsmed.weights.weights"),
        ("ordsmed.binary.crc32c", "ordsmed.base.binary.crc32c"),
    ],
)
def test_a_module_is_found_by_the_name_it_had(before: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if former_modules.new_name(name)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.warns(DeprecationWarning, match=f"{before} is {place} since 0.2"):
        found = importlib.import_module(before)
    assert found is importlib.import_module(place)
    assert found.__spec__ is not None
    assert found.__spec__.name == place


def test_every_new_name_is_a_module() -> None:
    for before, place in former_modules.NEW_NAMES.items():
        folder = menu.PACKAGE_ROOT.joinpath(*place.split("."))
        if folder.relative_to(menu.PACKAGE_ROOT).parts[0] in ADD_ONS:  # `make core`
            continue
        assert folder.is_dir() or folder.with_suffix(".py").is_file(), before


def test_what_was_never_there_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'ordsmed\.never'"):
        importlib.import_module("ordsmed.never")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'ordsmed\.learn\.tasks\.never'"):
        importlib.import_module("ordsmed.tasks.never")
    assert former_modules.new_name("numpy.linalg") == ""


def test_the_functions_of_the_package_stay_functions() -> None:
    """A module of their names would hide them."""
    code = (
        "import ordsmed\n"
        "try:\n    import ordsmed.pretrain.plan\nexcept ModuleNotFoundError as error:\n    print(error)\n"
        "import ordsmed.train.pretrain.plan\nprint(ordsmed.pretrain.__name__, ordsmed.finetune.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["ordsmed.pretrain is ordsmed.train.pretrain since 0.2", "pretrain finetune"]

"""`import ordsmed` costs next to nothing, offers what its stub says; its verbs can be called whatever came before."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ordsmed

MADE = ("corpus", "tokenizer", "encode", "export", "report", "evaluate", "compare")
STUB = Path(ordsmed.__file__).with_suffix(".pyi")


def alone(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_import_brings_in_nothing_but_itself() -> None:
    code = "import sys, importlib; before = set(sys.modules); import ordsmed; print(*(set(sys.modules) - before))"
    assert alone(code).split() in (["ordsmed"], ["ordsmed", "__future__"], ["__future__", "ordsmed"])
    assert alone("import sys, ordsmed; dir(ordsmed); ordsmed.OrdsmedError; print('torch' in sys.modules)") == "False"


def test_what_is_offered_is_what_the_stub_types() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    typed = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert [alias.asname for alias in node.names] == [alias.name for alias in node.names], "offered to others"
            typed |= {alias.name: node.module for alias in node.names}
    assert sorted(typed) == sorted(ordsmed.FACE) == sorted({*ordsmed.__all__} - {"__version__"})
    for name in ordsmed.FACE:
        offered, function = getattr(ordsmed, name), getattr(importlib.import_module(str(typed[name])), name)
        if isinstance(offered, ModuleType):  # a package of that name, which is called as the function
            assert inspect.signature(offered) == inspect.signature(function)
        else:
            assert offered is function
    assert set(ordsmed.__all__) <= set(dir(ordsmed))
    assert (STUB.parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="module 'ordsmed' has no attribute 'fil'"):
        _ = ordsmed.fil  # type: ignore[attr-defined]


def test_what_is_offered_says_what_it_is_and_shows_an_example() -> None:
    from ordsmed.api.training import finetune, pretrain

    methods = [
        getattr(ordsmed.OpenModel, name)
        for name in ("fill", "generate", "embed", "embed_file", "answer", "classify", "tag", "predict", "evaluate")
    ]
    made = [getattr(importlib.import_module(f"ordsmed.{ordsmed.FACE[name]}"), name) for name in MADE]
    for each in (ordsmed.open, pretrain, finetune, *made, *methods):
        doc = inspect.getdoc(each)
        assert doc
        assert "ordsmed." in doc or "model." in doc, each
        hints = inspect.signature(each).parameters.values()
        assert all(
            parameter.annotation is not inspect.Parameter.empty for parameter in hints if parameter.name != "self"
        )


@pytest.mark.parametrize(
    "before", ["import ordsmed.train.VERB.plan", "from ordsmed import VERB", "from ordsmed.train import VERB", "pass"]
)
@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_verb_is_called_whatever_was_imported_before(verb: str, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exec(before.replace("VERB", verb), {})
    asked: list[Any] = []
    monkeypatch.setattr(f"ordsmed.api.training.{verb}", lambda *given, **how: asked.append((given, how)))
    getattr(ordsmed, verb)("some/recipe", steps=3)
    assert asked == [(("some/recipe",), {"steps": 3})]


@pytest.mark.parametrize("before", ["pass", "import ordsmed.NAME.PART", "from ordsmed import NAME"])
@pytest.mark.parametrize(("name", "part"), [("corpus", "pipeline"), ("report", "page")])
def test_a_function_is_called_though_a_package_has_its_name(name: str, part: str, before: str) -> None:
    code = f"""
import warnings; warnings.simplefilter("ignore")
{before.replace("NAME", name).replace("PART", part)}
import ordsmed, ordsmed.{name}.{part} as part
from ordsmed.{name} import {part}
assert part is {part} is ordsmed.{name}.{part}
try: ordsmed.{name}("nowhere", out="x")
except ordsmed.RecipeError as error: print(error)
"""
    assert alone(code).startswith(("`nowhere`: no recipe of `corpus`", "nowhere: no such folder"))

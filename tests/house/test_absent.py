"""Tests of packages that are not installed are skipped for want of them, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kit import absent
from ordsmed.base.errors import DataError, RecipeError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (ModuleNotFoundError(name="ftfy"), "ftfy"),
        (ModuleNotFoundError(name="ftfy.bad_codecs"), "ftfy"),
        (ModuleNotFoundError(name="here"), ""),
        (ModuleNotFoundError(name="no_optional_one"), ""),
        (ImportError("cannot import name", name="ftfy"), ""),
        (RecipeError("mojibake", "`ftfy` is not installed", "", "pip install it"), "ftfy"),
        (RecipeError("x.h5", "needs ftfy, which is not installed", "", "pip install it"), "ftfy"),
        (RecipeError("x", "`here` is not installed", "", "pip install it"), ""),
        (RecipeError("ftfy", "found 3", "4"), ""),
        (DataError("x", "`ftfy` is not installed"), ""),
        (AssertionError("`ftfy` is not installed"), ""),
    ],
)
def test_what_was_wanted(error: BaseException, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent, "ABSENT", {"ftfy"})
    assert absent.wanted(error) == package


def test_each_optional_package_is_known() -> None:
    """But those without which no test runs."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {word.partition(">")[0] for words in extras.values() for word in words}
    modules = {"scikit-learn": "sklearn", "pyyaml": "yaml", "faiss-cpu": "faiss", "pytrec_eval-terrier": "pytrec_eval"}
    needed = {"pytest", "pytest-xdist", "hypothesis", "ruff", "mypy"}
    assert {modules.get(name, name.replace("-", "_")) for name in names - needed} <= set(absent.OPTIONAL)


def test_all_is_every_other_extra() -> None:
    """But those of who works on Ordsmed itself, and faiss, which indexes of millions of passages alone want."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    left_out = ("all", "dev", "docs", "faiss")
    parts = {word for name, words in extras.items() if name not in left_out for word in words}
    assert set(extras["all"]) == parts


@pytest.mark.long
def test_where_one_is_hidden_its_tests_skip_and_say_why() -> None:
    words = ["without.py", "ftfy,lxml", "-n", "0", "-rs", "-k", "mojibake or headlines", "-m", "not long"]
    run = subprocess.run(
        [sys.executable, *words, "tests/corpus/cleaners/test_cleaners.py", "tests/web/test_html.py"],
        cwd=ROOT / "tests/measure",
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert "`ftfy` is not installed" in run.stdout
    assert "failed" not in run.stdout

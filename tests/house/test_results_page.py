"""The page of results: written from the files beside it, every number and every command of them."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.measurements import measurement
from ordsmed.base import measurements, run
from ordsmed.cli import verb

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/results"
NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "docs/results.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_make_writes_the_page(tmp_path: Path) -> None:
    """As it stands; `make results` after one of its files was changed."""
    script = re.findall(r"^results: .*\n\t\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert script == ["docs/results.py"]
    page = tmp_path / "page.md"
    subprocess.run([sys.executable, ROOT / script[0], KEPT, page], check=True)
    assert page.read_text(encoding="utf-8") == (ROOT / "docs/results.md").read_text(encoding="utf-8")


def numbers(value: Any) -> Iterator[float]:
    """All within what was read of a file, those in texts too."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from (float(each.replace(",", "")) for each in NUMBER.findall(value))
    elif value is not None:
        yield float(value)


def cells(page: str) -> Iterator[str]:
    """Of all tables."""
    for line in page.splitlines():
        if line.startswith("| "):
            yield from line.strip("| ").split(" | ")


def test_every_number_of_a_table_is_in_the_files(results: ModuleType, tmp_path: Path) -> None:
    for name in ("figures.json", "published.json"):
        shutil.copy(KEPT / name, tmp_path)
    (tmp_path / "measurements.jsonl").touch()
    sources = [json.loads((tmp_path / name).read_text()) for name in ("figures.json", "published.json")]
    known = {number for one in [*sources, tomllib.loads(results.RATES.read_text())] for number in numbers(one)}
    shown = [float(each.replace(",", "")) for cell in cells(results.page(tmp_path)) for each in NUMBER.findall(cell)]
    assert len(shown) > 400
    assert [number for number in shown if number not in known] == []


def test_measurements_are_shown_with_what_was_beside_them(results: ModuleType, tmp_path: Path) -> None:
    for name in ("figures.json", "published.json"):
        (tmp_path / name).write_text("[]")
    ours = measurement(
        bench="bert-mini",
        sequences_per_second=1234.567,
        step_seconds=0.5,
        step_seconds_least=0.25,
        step_seconds_most=1.0,
        date="2026-11-23T10:00:00Z",
        length=64,
        batch=8,
    )
    other = measurement(
        bench="bert-mini",
        software="transformers",
        sequences_per_second=45.678,
        length=64,
        batch=8,
        date="2026-11-23T10:00:00Z",
    )
    later = measurement(
        bench="bert-mini",
        software="transformers",
        sequences_per_second=1.0,
        length=64,
        batch=8,
        date="2026-11-23T11:00:00Z",
    )
    larger = dataclasses.replace(other, batch=9)
    measurements.add(tmp_path / "measurements.jsonl", [ours, other, later, larger])
    assert results.NO_GPU in results.page(tmp_path)
    shown = list(cells(results.page(tmp_path)))
    row = shown[shown.index("bert-mini") :][:7]
    assert row[2:] == ["64, 8", "1,235", "617.3 to 2,469", "transformers 45.68", "2026-11-23"]
    measurements.add(tmp_path / "measurements.jsonl", [measurement(kind="cuda", device="Some GPU")])
    page = results.page(tmp_path)
    assert results.NO_GPU not in page
    assert "Some GPU, processes x threads" in page


def test_commands_of_the_page_can_be_given() -> None:
    commands = set(re.findall(r"`ordsmed ([^`]+)`", (ROOT / "docs/results.md").read_text(encoding="utf-8")))
    assert len(commands) > 25
    others = {"bench NAME --keep docs/results/measurements.jsonl", "estimate --claims"}
    for words in map(shlex.split, commands - others):
        one = verb.find(words[0])
        asked = one.parser().read(words[1:])
        assert one.recipe
        module, kind = one.recipe
        run.load(getattr(importlib.import_module(module), kind), asked.name, asked.overrides)


def test_the_readme_tells_the_figures_of_the_page() -> None:
    """Of every bench that both name: the row of the same command has the same numbers."""
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page if line.startswith("| ")]
    figures = {row[-1].strip("`"): row for row in rows if row[-1].startswith("`ordsmed bench ")}
    checked = 0
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and "`ordsmed bench " in line:
            told = [cell.strip() for cell in line.split("|")[1:-1]]
            wanted = set(NUMBER.findall(" ".join(figures[told[-1].strip("`").replace(" --json", "")])))
            assert set(NUMBER.findall(" ".join(told[1:3]))) - {"1"} <= wanted, line
            checked += 1
    assert checked >= 5

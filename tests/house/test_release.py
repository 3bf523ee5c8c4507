"""A release: one version, a changelog with dates, a wheel that runs anywhere, workflows that run what all run."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from ordsmed.base.identity import STAMP, commit_of, digest_of, identity

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src/ordsmed"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ordsmed.__version__)
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]
    wide = [path for path in HOUSE.rglob("*.py") if f'"{ordsmed.__version__}"' in path.read_text(encoding="utf-8")]
    assert [path.relative_to(HOUSE).as_posix() for path in wide] == ["__init__.py"]


def test_the_changelog_has_dates() -> None:
    """Newest first, which is the version that the code has."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    assert all(released), headings
    versions = [tuple(map(int, each.groups()[:3])) for each in released if each]
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(map(str, versions[0])) == ordsmed.__version__
    days = [datetime.date.fromisoformat(each[4]) for each in released if each]
    assert days == sorted(days, reverse=True)
    for release in text.split("\n## ")[1:]:
        parts = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert len(parts) == len(set(parts))
        assert set(parts) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_release_has_a_page_of_what_is_new() -> None:
    """Named by its first two numbers, listed in docs/new.md and in the changelog, newest first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = list(dict.fromkeys(re.findall(r"^## \[(\d+\.\d+)\.\d+\]", text, re.MULTILINE)))
    assert sorted(page.stem for page in (ROOT / "docs/new").glob("*.md")) == sorted(releases)
    for page, folder in ((text, "docs/new"), ((ROOT / "docs/new.md").read_text(encoding="utf-8"), "new")):
        assert re.findall(rf"\]\({folder}/([\d.]+)\.md\)", page) == releases


def read(path: Path) -> Any:
    return pytest.importorskip("yaml").safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_is_here(path: Path) -> None:
    """Scripts of the checkout and targets of make, so that nothing holds there alone."""
    flow = read(path)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert flow["permissions"] == {"contents": "read"}
    assert {"push", "pull_request"} <= set(flow[True])  # `on`, as YAML 1.1 reads it
    for job in flow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert ("run" in step) != bool(re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "")))
            if "run" in step:
                words = step["run"].split()
                assert os.access(ROOT / words[0], os.X_OK) or (words[0] == "make" and set(words[1:]) <= targets)


def test_a_workflow_runs_the_checks() -> None:
    steps = [step.get("run") for path in WORKFLOWS for job in read(path)["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in steps


def test_the_citation() -> None:
    cited = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert "version" not in cited, "it stands in one place"
    assert cited["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]


@pytest.mark.long
def test_a_wheel_runs_outside_the_checkout(tmp_path: Path) -> None:
    """Everything that git has of the package is in it, and it finds that where nothing else is."""
    pytest.importorskip("hatchling")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"ordsmed-{ordsmed.__version__}-py3-none-any.whl"
    site, away = tmp_path / "site", tmp_path / "away"
    away.mkdir()
    with zipfile.ZipFile(wheel) as held:
        held.extractall(site)
    own = {path.relative_to(HOUSE) for path in HOUSE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    packed = {path.relative_to(site / "ordsmed") for path in (site / "ordsmed").rglob("*") if path.is_file()}
    commit, changed = commit_of(HOUSE)
    stamp = {Path(STAMP)} if commit else set()
    assert packed == own | stamp
    assert not stamp or json.loads((site / "ordsmed" / STAMP).read_text()) == {"commit": commit, "changed": changed}
    assert {path.name for path in site.iterdir()} == {"ordsmed", f"ordsmed-{ordsmed.__version__}.dist-info"}
    [script] = site.glob("*.dist-info/entry_points.txt")
    assert "ordsmed = ordsmed.cli:main" in script.read_text().splitlines()

    def run(*words: str) -> str:
        call = "import sys, ordsmed.cli as cli; print(cli.__file__, file=sys.stderr); cli.main(sys.argv[1:])"
        environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(
            [sys.executable, "-P", "-c", call, *words], cwd=away, env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.startswith(str(site)), "it is the wheel that ran"
        return ran.stdout

    assert run("version") == f"ordsmed {identity()}, code {digest_of(HOUSE)}\n", "as the checkout's own"
    assert "tiny/bert" in run("recipes")
    assert 'data = "stdlib-wordpiece"' in run("pretrain", "tiny/bert", "--dry-run")
    assert list(away.iterdir()) == []
    run("as", "nvidia", "--install", "theirs")
    assert (away / "theirs/scripts/run_pretraining.sh").is_file()

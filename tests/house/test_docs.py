"""What README and docs show is true: recipes decode, code runs, named commands and files exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ordsmed.base import run, settings
from ordsmed.cli import VERBS
from ordsmed.train.recipe import Pretraining

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def indented(text: str, beginning: str) -> str:
    """The indented block that begins with these words."""
    start = text.index("    " + beginning)
    lines = text[start:].splitlines()
    end = next((n for n, line in enumerate(lines) if line and not line.startswith("    ")), len(lines))
    return "\n".join(line[4:] for line in lines[:end])


def test_the_recipe_in_the_readme_decodes() -> None:
    recipe = settings.decode(Pretraining, tomllib.loads(indented(README, 'data = "stdlib-wordpiece"')), "README")
    assert recipe.phase[0].steps == 10_000
    assert recipe.model.width == 256


def test_commands_in_the_readme_exist() -> None:
    verbs = re.findall(r"^ {4}ordsmed (\w+)", README, re.MULTILINE)
    assert len(verbs) >= 5
    assert set(verbs) <= set(VERBS)
    for name in re.findall(r"ordsmed (?:pretrain|recipes) ([\w/-]+)", README):
        if not name.startswith(("work/", "-")):
            assert name in run.recipe_names() + run.recipe_names("pretrain")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_the_tree_in_the_readme_is_the_tree() -> None:
    named = set(re.findall(r"(\w+)/", indented(README, "src/ordsmed/"))) - {"src", "ordsmed", "docs"}
    folders = {p.parent.name for p in (ROOT / "src/ordsmed").glob("*/__init__.py")} | {"recipes", "sites"}
    assert named == folders

"""What README and docs show is true: recipes decode, code runs, named commands and files exist."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from kit.sources import offenders, text
from ordsmed.base import run, settings
from ordsmed.cli import verb
from ordsmed.tell.show import picture
from ordsmed.train.pretrain.recipe import Pretraining

ROOT = Path(__file__).parents[2]
WIDE = 120  # columns
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
    assert set(verbs) <= set(verb.names())
    for name in re.findall(r"ordsmed (?:pretrain|recipes) ([\w/-]+)", README):
        if not name.startswith(("work/", "-", "my-")):
            assert name in run.recipe_names() + run.recipe_names("pretrain")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page}: {link}"


def test_the_tree_of_the_design_is_the_tree() -> None:
    page = (ROOT / "docs/design/README.md").read_text(encoding="utf-8")
    picture = page[page.index("    serve  ") : page.index("The upper four")]
    wings = {p.parent.name for p in (ROOT / "src/ordsmed").glob("*/__init__.py")}
    assert set(re.findall(r"^ {4}(\w+)", picture, re.MULTILINE)) == wings
    readmes = {wing: (ROOT / "src/ordsmed" / wing / "README.md").read_text("utf-8") for wing in wings}
    assert all(len(readme.partition("## Reasons")[0].splitlines()) < 30 for readme in readmes.values())
    assert len(page.splitlines()) <= 150


def test_the_first_contribution_works(monkeypatch: pytest.MonkeyPatch) -> None:
    step, test = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs/first-contribution.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    module = types.ModuleType("ordsmed.corpus.cleaners.spaces")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(step, module.__dict__)
    namespace: dict[str, Any] = {}
    exec(test, namespace)
    namespace["test_hard_spaces_become_plain"]()


def test_paths_in_the_readme_exist() -> None:
    """Whatever is written as code and looks like a file of this checkout; what runs leave is theirs."""
    named = set(re.findall(r"`((?:docs|src|tests)/[\w./-]+|[\w-]+\.(?:md|py|toml))`", README))
    assert len(named) >= 6
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_functions_of_the_chain_of_calls_exist() -> None:
    page = (ROOT / "docs/how-data-flows.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)\.py` \| `([\w.]+)` \|", page, re.MULTILINE)
    assert len(rows) == 11
    for file, name in rows:
        owner: object = importlib.import_module(f"ordsmed.{file.removesuffix('/__init__').replace('/', '.')}")
        for part in name.split("."):
            owner = getattr(owner, part)


def test_tests_that_pages_name_exist() -> None:
    """The log's too: where a test has moved, who reads of it finds it."""
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"tests/[\w/]+\.py", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert sorted(named_by for named_by in named if not (ROOT / named_by[1]).exists()) == []


def test_rows_of_tables_stand_below_a_head() -> None:
    """What a blank line parts from its table is shown as a line of text; so is a row of more or fewer cells."""
    wrong = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"^\|.*\n(?:\|.*\n?)*", text, re.MULTILINE):
            rows = table.splitlines()
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
            if len(rows) < 2 or not re.fullmatch(r"\|([ :]*-+[ :]*\|)+", rows[1]) or len(cells) > 1:
                wrong.append(f"{page.relative_to(ROOT)}: {rows[0]}")
    assert wrong == []


def test_no_line_of_a_page_is_longer_than_a_screen() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md"]
    lines = (
        (page, number, len(line))
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    )
    assert [f"{page.relative_to(ROOT)}:{number}: {long}" for page, number, long in lines if long > WIDE] == []


def test_pictures_are_small_and_our_own() -> None:
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for path in pictures:
        assert path.stat().st_size < 60_000
        assert path.read_text(encoding="utf-8").startswith("<svg")


def kinds_of_lines(picture: str) -> set[str]:
    """Each line of it without its numbers."""
    return {re.sub(r"[-\d.,]*\d( |L)?", "", line) for line in picture.splitlines()}


def test_the_picture_of_the_readme_is_one_as_runs_draw_it() -> None:
    """Made again by `ordsmed quickstart` (work/quickstart/model/loss.svg) where runs are drawn otherwise."""
    shown = (ROOT / "docs/pictures/quickstart.svg").read_text(encoding="utf-8")
    training = [{"step": step, "phase": 1, "loss": 8 - step / 400} for step in range(1, 337)]
    judged = [{"step": step, "validation": 5.0} for step in (100, 200)]
    assert kinds_of_lines(shown) == kinds_of_lines(picture.svg(training, judged, "model"))


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md", *sorted(ROOT.glob("docs/**/*.md"))]
SHELL = ("&&", "|", ";", ">", "<", "||")


def commands(page: Path) -> list[list[str]]:
    """The words of every `ordsmed ...` in a page's indented blocks, as a shell reads them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found: list[list[str]] = []
    for line in re.findall(r"^ {4,}((?:\w+=\S+ )*[^\n`#|]*\bordsmed .*)$", text, re.MULTILINE):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        for start in [n for n, word in enumerate(words) if word == "ordsmed"]:
            end = next((n for n in range(start, len(words)) if words[n] in SHELL), len(words))
            found.append(words[start + 1 : end])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_can_be_given(page: Path) -> None:
    """The real parser takes it; the recipes it names are there, and take the settings it changes."""
    for words in commands(page):
        if page.parent.name == "log":  # what was done once
            continue
        named = verb.named(words)
        assert named in verb.names(), f"{page.name}: {words}"
        one = verb.find(named)
        asked = one.parser().read(one.own([word for word in words[len(named.split()) :] if word != "..."]))
        name = getattr(asked, "name", "")
        if one.recipe and name in run.recipe_names(named):
            module, kind = one.recipe
            run.load(getattr(importlib.import_module(module), kind), name, asked.overrides)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_flags_that_a_page_speaks_of_exist(page: Path) -> None:
    """`ordsmed VERB --flag` within a sentence."""
    for told in re.findall(r"`ordsmed ([^`]+)`", page.read_text(encoding="utf-8")):
        words = shlex.split(told)
        named = verb.named(words)
        if page.parent.name != "log" and named in verb.names():
            own = verb.find(named).own(words[len(named.split()) :])
            flags = {word.partition("=")[0] for word in own if word.startswith("--")}
            assert flags <= {*verb.find(named).parser().flags()}, f"{page.name}: {told}"


def test_the_commands_are_found() -> None:
    assert ["export", "work/pretrain/tiny-bert", "steps", "--step", "all"] in commands(ROOT / "docs/daily-use.md")
    assert sum(len(commands(page)) for page in PAGES) > 60


def test_commands_that_are_told_are_quoted_for_a_shell() -> None:
    """What stands in braces behind a verb may have spaces: base/screen.py's `command` writes such a line."""
    bare = re.compile(rf"ordsmed (?:{'|'.join(verb.names())}) [^`\"\n]*\{{.*")
    assert offenders(lambda path: [line for line in bare.findall(text(path)) if "{self.verb}" not in line]) == {}

"""The house's own rules, read from its source: imports point down, menus stand apart, help costs nothing."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from kit.sources import FILES, nodes, offenders, tree
from ordsmed.base import ending, menu
from ordsmed.command import verb
from ordsmed.report import send
from ordsmed.translate import program

HOUSE = menu.HOUSE
FLOORS = [
    {"base"},
    {"binary"},
    {"text", "nn", "launch"},
    {"markup", "labelled", "web", "tokenizers", "models"},
    {"score", "cleaners", "corpus"},
    {"corpora", "data"},
    {"learn"},
    {"mesh", "objectives", "tasks", "optimizers", "formats"},
    {"apply"},
    {"train", "likelihood"},
    {"pretrain", "finetune", "probes"},
    {"bench", "evaluation", "doctor"},
    {"show", "api", "report"},
    {"cluster", "install", "suite", "stability", "trackers"},
    {"translate"},
    {"dialects"},
    {"command"},
    {"verbs"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
MENUS = (*menu.MENUS, verb.MENU, program.MENU, send.MENU)
MENU_FILES = [p for name in menu.MENUS for p in sorted((HOUSE / name).glob("*.py")) if not p.stem.startswith("_")]


def name_of(path: Path) -> str:
    parts = ["ordsmed", *path.relative_to(HOUSE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@functools.cache
def imports(path: Path, *, top: bool = False) -> set[str]:
    """What a file imports, at the top of the module or anywhere."""
    found = set()
    for node in tree(path).body if top else nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            base = node.module or ""
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if name in MODULES} | ({base} if inner - set(MODULES) else set())
    return found


def ours(path: Path, *, top: bool = False) -> set[str]:
    return {name for name in imports(path, top=top) if name.split(".")[0] == "ordsmed"}


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(name) for name in MODULES} - {""}
    assert rooms == set(FLOOR), "a new folder needs its floor here"


def astray(path: Path) -> list[str]:
    """What a file imports that stands no lower, or in a menu, which only base/menu.py loads."""
    room = room_of(name_of(path))
    others = {name: room_of(name) for name in ours(path) if room_of(name) or not room}
    others = {name: other for name, other in others.items() if not room or other != room or room in MENUS}
    return [name for name, other in others.items() if not room or FLOOR[other] >= FLOOR[room] or other in MENUS]


def test_imports_point_down() -> None:
    assert offenders(astray) == {}


def test_no_circles() -> None:
    left = {name: ours(path) & set(MODULES) for name, path in MODULES.items()}
    while left:
        free = [name for name, needed in left.items() if not (needed - {name}) & set(left)]
        assert free, f"a circle among {sorted(left)}"
        left = {name: needed for name, needed in left.items() if name not in free}


def test_models_know_nothing_of_other_processes() -> None:
    for path in (HOUSE / "models").glob("*.py"):
        assert not any(name.startswith("torch.distributed") for name in imports(path)), path
        assert "distributed" not in path.read_text(encoding="utf-8"), path


ENTRANCE = [
    HOUSE / "cli.py",
    *(path for name in ("command", verb.MENU) for path in sorted((HOUSE / name).glob("*.py"))),
]


def heavy(path: Path) -> list[str]:
    near = ("base", "command")
    known = {*sys.stdlib_module_names}
    return [name for name in imports(path, top=True)
            if name.split(".")[0] not in known and name != "ordsmed" and room_of(name) not in near]  # fmt: skip


def test_the_command_line_imports_only_the_ground() -> None:
    """At the top; what is slow to import is imported by the verb that needs it, when it does."""
    assert offenders(heavy, ENTRANCE) == {}


def test_the_command_line_is_a_table_of_contents() -> None:
    assert len((HOUSE / "cli.py").read_text(encoding="utf-8").splitlines()) < 150


def test_every_module_says_what_it_is() -> None:
    said = lambda path: (ast.get_docstring(tree(path)) or "").split("\n\n")[0]  # noqa: E731
    vague = {"utils", "util", "common", "manager", "helpers", "misc"}
    assert offenders(lambda path: len(said(path)) <= 15 or vague & set(path.stem.split("_"))) == {}


def unclear(path: Path) -> list[str]:
    """What is wrong with the settings of a choice: they are one frozen dataclass, and told line by line."""
    classes = [n for n in tree(path).body if isinstance(n, ast.ClassDef) and n.name == "Settings"]
    if len(classes) != 1:
        return [f"{len(classes)} Settings"]
    marks = [ast.unparse(d).replace(", kw_only=True", "") for d in classes[0].decorator_list]
    wrong = [] if marks == ["dataclass(frozen=True)"] else [f"marked {marks}"]
    wrong += [] if ast.get_docstring(classes[0]) else ["no docstring"]
    return wrong + [f"no help: {line.name}" for line in menu.lines(name_of(path)) if not line.doc]


def test_a_menu_file_has_one_frozen_settings_all_told() -> None:
    assert len(MENU_FILES) > 40
    assert offenders(unclear, MENU_FILES) == {}


def test_every_setting_of_a_verb_is_told() -> None:
    """Also of the tables within, which are found by the annotations."""
    places = [one.recipe for one in verb.every() if one.recipe]
    places += [(inner.module, inner.name) for place in places for inner in menu.nested(*place)]
    untold = [f"{place} {line.name}" for place in places for line in menu.lines(*place) if not line.doc]
    assert untold == []
    assert ("ordsmed.learn.schedules", "Schedule") in places


def test_a_verb_says_what_it_is_where_it_stands_and_what_it_does() -> None:
    for stem in menu.entries(verb.MENU):
        module = menu.opened(verb.MENU, stem)
        one = verb.find(verb.name_of(stem))
        public = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
        assert {"arguments", "run"} <= public, stem
        assert one.group in verb.GROUPS, stem
        assert one.stopped in ("", ending.GOES_ON, ending.BEGINS_AGAIN), stem
        assert 15 < len(one.headline) < 118, stem
        assert not one.recipe or menu.lines(*one.recipe), stem


def loaded_by(*words: str) -> set[str]:
    code = (
        "import sys, io, contextlib\nfrom ordsmed.cli import main\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        f"    try:\n        main({list(words)!r})\n    except SystemExit as e:\n        assert not e.code\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["pretrain", "--help"],
        ["bench", "--help"],
        ["menus"],
        ["menus", "models"],
        ["recipes"],
        ["completion", "bash"],
    ],
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    heavy = {"torch", "numpy", "msgspec", "tokenizers", "rich", "zstandard", "safetensors", "transformers", "filelock"}
    found = loaded_by(*words)
    assert "ordsmed.cli" in found
    assert not heavy & found

"""The house's own rules, read from its source: imports point down, menus stand apart, help costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ordsmed.base import ending, menu
from ordsmed.command import verb

HOUSE = menu.HOUSE
FLOORS = [
    {"base"},
    {"text", "nn", "launch"},
    {"markup", "labelled", "web", "tokenizers", "models"},
    {"score", "cleaners", "corpus"},
    {"corpora", "data"},
    {"learn"},
    {"mesh", "objectives", "tasks", "optimizers", "formats", "apply"},
    {"train"},
    {"pretrain", "finetune"},
    {"bench"},
    {"show"},
    {"command"},
    {"verbs"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
MENUS = (*menu.MENUS, verb.MENU)
FILES = sorted(HOUSE.rglob("*.py"))
MENU_FILES = [p for name in menu.MENUS for p in sorted((HOUSE / name).glob("*.py")) if not p.stem.startswith("_")]


def name_of(path: Path) -> str:
    parts = ["ordsmed", *path.relative_to(HOUSE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path, *, top: bool = False) -> set[str]:
    """What a file imports, at the top of the module or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if top else ast.walk(tree):
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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    room = room_of(name_of(path))
    if not room:
        assert not ours(path)
        return
    for name in ours(path):
        other = room_of(name)
        if not other or (other == room and room not in MENUS):
            continue
        assert FLOOR[other] < FLOOR[room], f"{name_of(path)} imports {name}, which stands no lower"
        assert other not in MENUS, f"{name_of(path)} imports {name} of a menu: only base/menu.py loads one"


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


@pytest.mark.parametrize("path", ENTRANCE, ids=name_of)
def test_the_command_line_imports_only_the_ground(path: Path) -> None:
    """At the top; what is slow to import is imported by the verb that needs it, when it does."""
    found = imports(path, top=True)
    allowed = {*sys.stdlib_module_names}
    near = ("base", "command")
    assert all(name.split(".")[0] in allowed or name == "ordsmed" or room_of(name) in near for name in found)


def test_the_command_line_is_a_table_of_contents() -> None:
    assert len((HOUSE / "cli.py").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert doc
    first = doc.split("\n\n")[0]
    assert len(first) > 15
    assert not {"utils", "util", "common", "manager", "helpers", "misc"} & set(path.stem.split("_"))


@pytest.mark.parametrize("path", MENU_FILES, ids=name_of)
def test_a_menu_file_has_one_frozen_settings_all_told(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings"]
    assert len(found) == 1
    assert [ast.unparse(d).replace(", kw_only=True", "") for d in found[0].decorator_list] == ["dataclass(frozen=True)"]
    assert ast.get_docstring(found[0])
    assert [line.name for line in menu.lines(name_of(path)) if not line.doc] == []


def test_every_setting_of_a_verb_is_told() -> None:
    """Also of the tables within, which are found by the annotations."""
    places = [one.recipe for one in verb.every() if one.recipe]
    places += [(inner.module, inner.name) for place in places for inner in menu.nested(*place)]
    untold = [f"{place} {line.name}" for place in places for line in menu.lines(*place) if not line.doc]
    assert untold == []
    assert ("ordsmed.learn.schedules", "Schedule") in places


@pytest.mark.parametrize("stem", menu.entries(verb.MENU))
def test_a_verb_says_what_it_is_where_it_stands_and_what_it_does(stem: str) -> None:
    module = menu.opened(verb.MENU, stem)
    one = verb.find(verb.name_of(stem))
    public = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    assert {"arguments", "run"} <= public
    assert one.group in verb.GROUPS
    assert one.stopped in ("", ending.GOES_ON, ending.BEGINS_AGAIN)
    assert 15 < len(one.headline) < 118
    if one.recipe:
        assert menu.lines(*one.recipe)


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

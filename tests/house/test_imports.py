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
from ordsmed.cli import verb
from ordsmed.others.translate import program
from ordsmed.serve import call
from ordsmed.tell.report import send

HOUSE = menu.PACKAGE_ROOT
FLOORS = {  # each wing with its rooms, from the ground up; the wing's name among them: the files in the wing itself
    "base": ("base machine", "binary launch"),
    "nn": ("nn kernels", "models"),
    "text": ("text", "markup labelled tokenizers"),
    "corpus": ("corpus cleaners", "corpora"),
    "data": ("data",),
    "learn": ("score", "learn", "classification embedding question_answering tagging", "objectives tasks optimizers"),
    "weights": ("weights", "formats"),
    "train": ("mesh", "train", "pretrain finetune"),
    "use": ("use generation index",),
    "measure": ("likelihood", "babylm vectors", "probes judges", "bench evaluation"),
    "tell": ("show report", "stability trackers"),
    "api": ("api",),
    "maker": ("maker", "speedrun"),
    "cli": ("cli", "verbs"),
    "web": ("web", "corpora verbs"),
    "machines": ("sites", "doctor", "cluster install suite", "verbs"),
    "others": ("translate", "dialects", "verbs"),
    "serve": ("serve", "protocols", "verbs"),
}
ADD_ONS = ("web", "machines", "others", "serve")  # the core never imports them, and they do not import each other
MOST_PAIRS = 102  # of 153 pairs of packages; the goal is 75
WINGS = list(FLOORS)
FLOOR = {
    (wing, room): (WINGS.index(wing), height)
    for wing, floors in FLOORS.items()
    for height, rooms in enumerate(floors)
    for room in rooms.split()
}
MENUS = (*menu.MENUS, verb.MENU, program.MENU, send.MENU, call.MENU)
MENU_FILES = [
    p
    for name in menu.MENUS
    for p in sorted(q for folder in menu.folders_of(name) for q in folder.glob("*.py"))
    if not p.stem.startswith("_")
]


def name_of(path: Path) -> str:
    parts = ["ordsmed", *path.relative_to(HOUSE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}
PACKAGES = {name_of(path) for path in FILES if path.stem == "__init__"}


def room_of(module: str) -> tuple[str, str]:
    """The wing and the room of a module; of what stands above them (`ordsmed`, `ordsmed.__main__`) none."""
    wing, _, inner = module.partition(".")[2].partition(".")
    if wing not in FLOORS:
        return "", ""
    room = inner.split(".")[0]
    return wing, room if f"ordsmed.{wing}.{room}" in PACKAGES else wing


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
    rooms = {room_of(name) for name in MODULES if name.count(".") > 1}
    assert rooms == set(FLOOR), "a new folder needs its floor here"


def astray(path: Path) -> list[str]:
    """What a file imports that stands no lower, or in a menu, which only base/menu.py loads."""
    room = room_of(name_of(path))
    if not room[0]:
        return []
    others = {name: room_of(name) for name in ours(path) if name != "ordsmed"}
    return [
        name
        for name, other in others.items()
        if (other == room and room[1] in MENUS and name not in (f"ordsmed.{'.'.join(room)}", name_of(path)))
        or (other != room and (not other[0] or other[1] in MENUS or FLOOR[other] > FLOOR[room]))
    ]


def test_imports_point_down() -> None:
    assert offenders(astray) == {}


def test_add_ons_stand_alone() -> None:
    """The core imports none of them, and none imports another; commands and sources find them through the menus."""

    def wrong(path: Path) -> list[str]:
        own = room_of(name_of(path))[0]
        return [name for name in ours(path) if room_of(name)[0] in ADD_ONS and room_of(name)[0] != own]

    assert offenders(wrong) == {}


def test_fewer_pairs_of_packages_are_connected() -> None:
    """By an import, in either direction."""
    pairs = {frozenset((room_of(name_of(path))[0], room_of(name)[0])) for path in FILES for name in ours(path)}
    assert len({pair for pair in pairs if len(pair) == 2 and "" not in pair}) <= MOST_PAIRS


def test_the_choices_of_add_ons_are_named_for_those_who_have_the_core_alone() -> None:
    for name, packages in menu.ADD_ONS.items():
        for package, kinds in packages.items():
            folder = menu.PACKAGE_ROOT / package / name
            assert sorted(kinds) == sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")
            assert package in ADD_ONS


def test_no_circles() -> None:
    left = {name: ours(path) & set(MODULES) for name, path in MODULES.items()}
    while left:
        free = [name for name, needed in left.items() if not (needed - {name}) & set(left)]
        assert free, f"a circle among {sorted(left)}"
        left = {name: needed for name, needed in left.items() if name not in free}


def test_models_know_nothing_of_other_processes() -> None:
    for path in menu.folders_of("models")[0].glob("*.py"):
        assert not any(name.startswith("torch.distributed") for name in imports(path)), path
        assert "distributed" not in path.read_text(encoding="utf-8"), path


ENTRANCE = [*sorted((HOUSE / "cli").rglob("*.py")), *sorted(HOUSE.glob("*/verbs/*.py"))]


def heavy(path: Path) -> list[str]:
    near = ("base", "cli")
    known = {*sys.stdlib_module_names}
    return [
        name
        for name in imports(path, top=True)
        if name.split(".")[0] not in known and name != "ordsmed" and room_of(name)[0] not in near
    ]


def test_the_command_line_imports_only_the_ground() -> None:
    """At the top; what is slow to import is imported by the verb that needs it, when it does."""
    assert offenders(heavy, ENTRANCE) == {}


def test_the_command_line_is_a_table_of_contents() -> None:
    assert len((HOUSE / "cli/__init__.py").read_text(encoding="utf-8").splitlines()) < 150


def test_every_module_says_what_it_is() -> None:
    said = lambda path: (ast.get_docstring(tree(path)) or "").split("\n\n")[0]  # noqa: E731
    vague = {"utils", "util", "common", "manager", "helpers", "misc"}
    assert offenders(lambda path: len(said(path)) <= 15 or vague & set(path.stem.split("_"))) == {}


def unclear(path: Path) -> list[str]:
    """What is wrong with the settings of a choice: they are one frozen dataclass, and told line by line."""
    classes = [
        n for n in tree(path).body if isinstance(n, ast.ClassDef) and any(ast.unparse(b) == "Choice" for b in n.bases)
    ]
    if len(classes) != 1:
        return [f"{len(classes)} choices"]
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
        module = menu.import_choice(verb.MENU, stem)
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

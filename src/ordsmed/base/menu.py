"""Menus: a name in a recipe selects a file in a menu folder. The file system is the registry.

    kind = "bert"  in a [model]  ->  src/ordsmed/nn/models/bert.py  ->  class Bert(EncoderSettings, Choice)
    kind = "my_lab.my_objective" ->  that module                    ->  its class that derives from Choice

Settings are read from the source of a module, so that `--help` imports neither it nor torch.
"""

import ast
import functools
import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ordsmed.base import offers
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.other_names import answers
from ordsmed.base.say import say

PACKAGE_ROOT = Path(__file__).parent.parent
OTHER_NAMES_MARK = "; elsewhere "  # in a setting's help, before its names in other codes
INSTALL_WHOLE = "install ordsmed with its add-ons, not only its core"
FORMER_CLASS = "Settings"  # former class name of choices without the base class, which users' modules may still have
NAMES = "corpora cleaners tokenizers models objectives tasks optimizers formats probes judges"
MENUS = tuple(NAMES.split())
PACKAGES = {  # the packages that contain the files of a menu: first the core's, then those of add-ons
    "corpora": ("corpus", "web"),
    "cleaners": ("corpus",),
    "tokenizers": ("text",),
    "models": ("nn",),
    "objectives": ("learn",),
    "tasks": ("learn",),
    "optimizers": ("learn",),
    "formats": ("weights",),
    "probes": ("measure",),
    "judges": ("measure",),
    "trackers": ("tell",),
    "dialects": ("others",),
    "verbs": ("cli", "web", "machines", "others", "serve"),
    "protocols": ("serve",),
}
# the choices that add-ons have, so that an error can name an add-on that is not installed
ADD_ONS: dict[str, dict[str, tuple[str, ...]]] = {
    "corpora": {"web": ("web",)},
    "verbs": {
        "web": ("corpus_addresses", "fetch"),
        "machines": (
            "doctor",
            "estimate",
            "install",
            "sites",
            "sites_check",
            "sites_new",
            "submit",
            "survey",
            "validate",
        ),
        "others": ("as_",),
        "serve": ("serve",),
    },
}
_advised: set[str] = set()


class Choice:
    """The base class of a menu's choices. Each file of a menu has one frozen dataclass that derives from it."""


@dataclass(frozen=True)
class Menu:
    """Marks a field of settings whose value is a choice of a menu: `Annotated[Any, Menu("models")]`."""

    name: str
    usual: str = ""  # default of `kind`
    many: bool = False  # whether a list of choices is allowed as well


@dataclass(frozen=True)
class SettingLine:
    name: str
    type: str
    default: str
    doc: str


@dataclass(frozen=True)
class Nested:
    """A table within settings, such as `phase.schedule`, and the dataclass of its settings."""

    key: str
    module: str
    name: str
    kinds: tuple[str, ...] = ()  # the kinds of a menu that have this table; empty: all


def folders_of(menu: str) -> list[Path]:
    return [PACKAGE_ROOT / package / menu for package in PACKAGES[menu]]


def entries(menu: str) -> list[str]:
    return sorted(kind for folder in folders_of(menu) for kind in _kinds_in(folder))


def _kinds_in(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")]


def missing_add_on(menu: str, kind: str) -> str:
    """Return the name of the add-on that has a choice; "" if no add-on has it."""
    return next((package for package, kinds in ADD_ONS.get(menu, {}).items() if kind in kinds), "")


def load(menu: str, kind: str, *, place: str = "") -> type[Any]:
    """Return the class of a choice, or raise an error if it does not exist or does not fit its menu."""
    if kind in entries(menu):
        return choice(import_choice(menu, kind))
    place = place or f"{menu} kind"
    if add_on := missing_add_on(menu, kind):
        problem = f"`{kind}` is part of the add-on ordsmed.{add_on}, which is not installed"
        raise RecipeError(place, problem, "", INSTALL_WHOLE)
    if "." not in kind:
        instead = next(answers("kinds", kind, [menu]), "") or nearest(kind, entries(menu))
        raise RecipeError(place, f"`{kind}` is not in {menu}", "", instead)
    loaded = choice(offers.import_module(kind, place), place)
    offers.check(menu, kind, loaded, place)
    return loaded


def choice(module: ModuleType, location: str = "") -> type[Any]:
    """Return the class of a menu's module: the one that is derived from `Choice`."""
    classes: list[type[Any]] = [value for value in vars(module).values() if isinstance(value, type)]
    marked = [value for value in classes if issubclass(value, Choice) and value.__module__ == module.__name__]
    if len(marked) > 1:
        names = " and ".join(value.__name__ for value in marked)
        raise RecipeError(location or module.__name__, f"{names} derive from `Choice`", "one such class in a module")
    if marked:
        return marked[0]
    unmarked: type[Any] | None = getattr(module, FORMER_CLASS, None)
    if unmarked is None:
        wanted = "one frozen dataclass that derives from `ordsmed.base.menu.Choice`"
        raise RecipeError(location, f"`{module.__name__}` has no such class", wanted)
    if module.__name__ not in _advised and not issubclass(unmarked, Choice):
        _advised.add(module.__name__)
        say(f"{module.__name__}.{FORMER_CLASS}: derive the class from `ordsmed.base.menu.Choice` and rename it")
    return unmarked


def choice_name(module: str) -> str:
    classes = [node for node in _tree(module).body if isinstance(node, ast.ClassDef)]
    return next((node.name for node in classes if _derives_from_choice(module, node)), FORMER_CLASS)


def _derives_from_choice(module: str, node: ast.ClassDef) -> bool:
    """Return whether a class derives from `Choice`, directly or through base classes whose source is found."""
    for base in map(ast.unparse, node.bases):
        if base.rpartition(".")[2] == Choice.__name__:
            return True
        location = _definition_of(module, base)
        if (
            location
            and location != (module, node.name)
            and (parent := _class(*location))
            and _derives_from_choice(location[0], parent)
        ):
            return True
    return False


def is_choice(settings: object) -> bool:
    return isinstance(settings, Choice) or type(settings).__name__ == FORMER_CLASS


def import_choice(menu: str, kind: str) -> ModuleType:
    return importlib.import_module(module_of(menu, kind))


def kind_of(settings: object) -> str:
    """Return the `kind` by which recipes name the class of these settings."""
    module = type(settings).__module__
    location, _, kind = module.rpartition(".")
    known = {f"ordsmed.{package}.{menu}" for menu in MENUS for package in PACKAGES[menu]}
    return kind if location in known else module


def recipe_class(verb: str) -> type[Any]:
    """Return the class of the settings of a verb's recipe, which the file of the verb names as `RECIPE`."""
    module, _, name = str(constant(module_of("verbs", verb), "RECIPE")).partition(":")
    cls: type[Any] = getattr(importlib.import_module(module), name)
    return cls


def module_of(menu: str, kind: str) -> str:
    """Return the name of a kind's module: one of ordsmed's, or else `kind` itself, a user's module."""
    package = next((package for package in PACKAGES[menu] if kind in _kinds_in(PACKAGE_ROOT / package / menu)), "")
    return f"ordsmed.{package}.{menu}.{kind}" if package else kind


def headline(module: str) -> str:
    """Return the first sentence of a module's docstring, read from its source."""
    return (ast.get_docstring(_tree(module)) or "").split("\n\n")[0].replace("\n", " ")


def constant(module: str, name: str) -> object:
    """Return the value of a module's literal constant, read from its source, or None."""
    assigned = _assigned(module, name)
    return None if assigned is None else ast.literal_eval(assigned[0])


def lines(module: str, name: str = "") -> list[SettingLine]:
    """Return the settings of a dataclass, read from its source."""
    return [
        SettingLine(field.name, _type(field.annotation, field.module), _default(field.value, field.module), field.doc)
        for field in _fields(module, name or choice_name(module))
    ]


def choices_with_setting(menu: str, setting: str) -> str:
    """Return a sentence that names the choices of a menu with this setting; "" if there are none."""
    able = [kind for kind in entries(menu) if any(line.name == setting for line in lines(module_of(menu, kind)))]
    return f"`{setting}` is a setting of {', '.join(able)}" if able else ""


def nested(module: str, name: str = "", above: tuple[tuple[str, str], ...] = ()) -> list[Nested]:
    """Return the tables in the settings of a dataclass, at every level, including those of a menu's kinds.

    `above` are the classes that contain this one, as (module, name), so that a class in itself is read only once.
    """
    tables: list[Nested] = []
    name = name or choice_name(module)
    above = (*above, (module, name))
    for field in _fields(module, name):
        for node in _classes_in(field.annotation):
            if isinstance(node, ast.Call):
                tables += _nested_of_kinds(field.name, ast.literal_eval(node.args[0]), above)
            elif (location := _table(field.module, ast.unparse(node))) and location not in above:
                tables.append(Nested(field.name, *location))
                tables += [replace(inner, key=f"{field.name}.{inner.key}") for inner in nested(*location, above)]
    return tables


def names_in_other_codes(module: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the names that settings have in other codes: (name there, path of the setting here, its menu's kind)."""
    classes = [
        ("", module, name or choice_name(module), ""),
        *((f"{table.key}.", table.module, table.name, "") for table in nested(module, name)),
    ]
    for field in _fields(module, name or choice_name(module)):
        for node in _classes_in(field.annotation):
            if isinstance(node, ast.Call):
                kinds = entries(menu := ast.literal_eval(node.args[0]))
                modules = {kind: module_of(menu, kind) for kind in kinds}
                classes += [(f"{field.name}.", path, choice_name(path), kind) for kind, path in modules.items()]
    for path, location, cls, kind in classes:
        for line in lines(location, cls):
            for alias in filter(None, line.doc.partition(OTHER_NAMES_MARK)[2].split(", ")):
                yield alias, f"{path}{line.name}", kind


def _nested_of_kinds(key: str, menu: str, above: tuple[tuple[str, str], ...]) -> list[Nested]:
    """Return the tables in the settings of a menu's kinds. A table of several kinds is returned once."""
    owners: dict[Nested, list[str]] = {}
    for kind in entries(menu):
        location = (module_of(menu, kind), choice_name(module_of(menu, kind)))
        for inner in nested(*location, above) if location not in above else []:
            owners.setdefault(replace(inner, key=f"{key}.{inner.key}"), []).append(kind)
    return [replace(table, kinds=() if kinds == entries(menu) else tuple(kinds)) for table, kinds in owners.items()]


def _classes_in(annotation: ast.AST) -> list[ast.Name | ast.Attribute | ast.Call]:
    """Return the nodes of an annotation that name classes, and its calls `Menu("tasks")`."""
    if isinstance(annotation, ast.Call):
        return [annotation] if ast.unparse(annotation.func) == "Menu" else []
    if isinstance(annotation, ast.Name | ast.Attribute):
        return [annotation]
    return [name for node in ast.iter_child_nodes(annotation) for name in _classes_in(node)]


@dataclass(frozen=True)
class _Field:
    module: str
    name: str
    annotation: ast.expr
    value: ast.expr | None
    doc: str


def _fields(module: str, name: str) -> list[_Field]:
    """Return the fields of a dataclass with those it inherits, in the order of `dataclasses.fields`."""
    node = _class(module, name)
    if node is None:  # the module imports the class
        location = _definition_of(module, name)
        return _fields(*location) if location else []
    inherited: dict[str, _Field] = {}
    for base in reversed(node.bases):
        if location := _definition_of(module, ast.unparse(base)):
            inherited |= {field.name: field for field in _fields(*location)}
    fields: dict[str, _Field] = {}
    if not _is_dataclass(node):
        return list(inherited.values())
    for statement, next_statement in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if ast.unparse(statement.annotation).startswith("ClassVar"):
            continue
        explained = isinstance(next_statement, ast.Expr) and isinstance(next_statement.value, ast.Constant)
        doc = next_statement.value.value if explained else ""  # type: ignore[union-attr]
        fields[statement.target.id] = _Field(
            module, statement.target.id, statement.annotation, statement.value, " ".join(str(doc).split())
        )
    return list((inherited | fields).values())


def _table(module: str, name: str) -> tuple[str, str] | None:
    """Return (module, name) of a dataclass that `module` defines or imports; None for other names.

    Classes of packages other than ordsmed and the module's own do not count.
    """
    location = _definition_of(module, name)
    if location is None or location[0].split(".")[0] not in ("ordsmed", module.split(".")[0]):
        return None
    node = _class(*location)
    if node is None:
        return _table(*location)
    return location if _is_dataclass(node) else None


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any(ast.unparse(decorator).startswith("dataclass") for decorator in node.decorator_list)


def _definition_of(module: str, name: str) -> tuple[str, str] | None:
    """Return (module, name) of the definition of a class that `module` defines or imports, or None."""
    first, _, rest = name.partition(".")
    if _class(module, name):
        return module, name
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if first == (alias.asname or alias.name):
                    return (f"{node.module}.{alias.name}", rest) if rest else (str(node.module), alias.name)
    return None


def _class(module: str, name: str) -> ast.ClassDef | None:
    return next((node for node in _tree(module).body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _tree(module: str) -> ast.Module:
    """Return the parsed source of a module; an empty one if the module is not found."""
    shipped = PACKAGE_ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    path = shipped if module.startswith("ordsmed.") and shipped.is_file() else _source(module)
    return _parsed(path, path.stat().st_mtime_ns) if path else ast.Module([], [])


def _source(module: str) -> Path | None:
    """Return the file of a module, without importing the module. Its parent packages are imported."""
    package = module.rpartition(".")[0]
    try:
        parent = importlib.util.find_spec(package) if package else None
        if parent and parent.submodule_search_locations is None:
            return None
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.has_location and spec.origin else None


@functools.cache
def _parsed(path: Path, changed: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _assigned(module: str, name: str) -> tuple[ast.expr, str] | None:
    """Return (value, module that defines it) of a constant that `module` defines or imports, or None."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            return node.value, module
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _assigned(node.module, alias.name)
    return None


def _type(annotation: ast.expr, module: str) -> str:
    """Return a type as help texts write it: `one of models`, `'a' | 'b'`, `list of int`, `table`."""
    text = ast.unparse(annotation)
    if text.startswith("Annotated[Any, Menu("):
        return ("some of " if "many=True" in text else "one of ") + text.split("'")[1]
    if isinstance(annotation, ast.BinOp):
        return f"{_type(annotation.left, module)} | {_type(annotation.right, module)}"
    if isinstance(annotation, ast.Subscript):
        outer, inner = ast.unparse(annotation.value), getattr(annotation.slice, "elts", [annotation.slice])
        if outer == "Literal":
            return " | ".join(map(ast.unparse, inner))
        if outer == "tuple" and ast.unparse(inner[-1]) == "...":
            item = _type(inner[0], module)
            return f"list of {f'({item})' if ' | ' in item else item}"
    if isinstance(annotation, ast.Name) and (alias := _assigned(module, annotation.id)):
        return _type(*alias)
    return "table" if isinstance(annotation, ast.Name) and _table(module, annotation.id) else text


def _default(value: ast.expr | None, module: str) -> str:
    if value is None:
        return "required"
    if isinstance(value, ast.Name) and (constant := _assigned(module, value.id)):
        return _default(*constant)
    if isinstance(value, ast.Tuple):
        return f"[{', '.join(map(ast.unparse, value.elts))}]"
    text = ast.unparse(value)
    if text.startswith("field(default_factory="):
        text = text.removeprefix("field(default_factory=").removesuffix(")").removeprefix("lambda: ")
    return "its defaults" if _table(module, text.removesuffix("()")) else text

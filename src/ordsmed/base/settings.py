"""Recipes: convert TOML to typed, frozen settings and back, strictly, with overrides and suggestions for unknown keys.

    recipe.toml + ["model.width=256"] -> table -> decode(Pretrain, table) -> Pretrain(model=Bert(...), ...)

Settings are dataclasses in the modules that use them. This module walks the tables, and msgspec checks the leaves.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ordsmed.base import menu
from ordsmed.base.errors import RecipeError, meant, near, nearest
from ordsmed.base.folder import RECIPE
from ordsmed.base.other_names import answers
from ordsmed.base.say import say

T = TypeVar("T")
Table = dict[str, Any]
TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}  # names of types in errors
COUNTS = {2: "two", 3: "three"}
RENAMED = {  # former -> present names of settings; the former ones still work in recipes, overrides and runs
    "spread": "initializer_std",
    "places_spread": "positions_initializer_std",
    "hide": "mask_prob",
    "rate": "learning_rate",
    "flavour": "variant",
    "squeeze": "remove_extra_whitespaces",
    "mend": "repair_tags",
    "longer_than": "min_length",
    "fives": "dup_5gram",
    "sixes": "dup_6gram",
    "sevens": "dup_7gram",
    "eights": "dup_8gram",
    "nines": "dup_9gram",
    "tens": "dup_10gram",
    "least_characters": "min_characters",
    "least_gpus": "min_gpus",
    "least_line_words": "min_line_words",
    "least_mean_word": "min_mean_word",
    "least_nodes": "min_nodes",
    "least_ratio": "min_ratio",
    "least_words": "min_words",
    "most_characters": "max_characters",
    "most_epochs": "max_epochs",
    "most_gpus": "max_gpus",
    "most_mean_word": "max_mean_word",
    "most_nodes": "max_nodes",
    "most_processes": "max_processes",
    "most_ratio": "max_ratio",
    "most_steps": "max_steps",
    "most_unknown": "max_unknown",
    "most_words": "max_words",
}
FORMER = {name: former for former, name in RENAMED.items()}
_advised: set[str] = set()  # former names for which advice was printed


class _Unknown(RecipeError):
    """An unknown key of a table.

    `names` are the valid keys of the table. `elsewhere` is a sentence on which other choices of the menu have the key.
    """

    elsewhere = ""

    def __init__(self, place: str, key: str, names: Sequence[str]) -> None:
        self.key, self.names = key, names
        super().__init__(place, "unknown setting", "", nearest(key, names))


def read(
    path: Path, wanted: str = "a recipe (TOML)", remedy: str = "`ordsmed recipes` lists the built-in ones"
) -> Table:
    """Read a TOML file. `wanted` and `remedy` are for errors about a file that is not a recipe."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(path, "no such file", wanted, remedy) from None
    except IsADirectoryError:
        raise RecipeError(path, "is a folder", wanted) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        advice = ("", "correct that line") if path.suffix in ("", ".toml") else (wanted, remedy)
        raise RecipeError(path, f"not TOML: {error}", *advice) from None


def override(table: Table, words: Sequence[str]) -> Table:
    """Apply overrides of the form `key.path=value` to a table, and return the table.

    `phase[2].batch=64` sets the second phase, `phase.batch=64` sets all phases. `KEY=none` removes an optional setting,
    unless "none" is a valid value of the setting.
    """
    for word in words:
        path, equals, text = word.partition("=")
        if not word.isprintable() and any("\ud800" <= character <= "\udfff" for character in word):
            raise RecipeError(f"`{path}`", f"found {text!r}, which is not UTF-8", "a value in UTF-8")
        if not equals or not path:
            remedy = f"to give texts to a corpus, write `source.path={word}`" if os.path.exists(word) else ""
            raise RecipeError(f"`{word}`", "not an override", "key.path=value", remedy)
        _set(table, path.split("."), _value(text), word)
    return table


def decode(cls: type[T], table: object, location: str) -> T:
    """Build settings from a table, or raise an error with file, key, found, wanted and a similar key."""
    try:
        return _decoded(cls, table, location)
    except _Unknown as error:
        raise RecipeError(error.place, error.found, "", _suggestion(error, cls, table)) from None


def _decoded(cls: type[T], table: object, location: str) -> T:
    if isinstance(table, str) and any(f.name == "kind" for f in dataclasses.fields(cls)):  # type: ignore[arg-type]
        table = {"kind": table}
    if not isinstance(table, Mapping):
        raise RecipeError(location, f"found {_show(table)}", "a table of " + ", ".join(_names(cls)))
    hints = get_type_hints(cls, include_extras=True)
    table = _expand_short(cls, with_present_names(cls, _expand_size(cls, table, location), location), location)
    for key in table:
        if key not in _names(cls):
            raise _Unknown(_path_of(location, key), key, _names(cls))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        where = _path_of(location, field.name)
        if field.default is None and table.get(field.name) == "none" and _is_menu(hints[field.name]):
            values[field.name] = None  # removes an optional choice: model=none
        elif field.name in table:
            values[field.name] = _decode(hints[field.name], table[field.name], where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecipeError(where, "missing", _type_in_words(hints[field.name]), "")
    try:
        return cls(**values)
    except ValueError as error:
        key, _, rest = str(error).partition(": ")
        raise RecipeError(_path_of(location, key), rest or "cannot be") from None


def plain(settings: object, *, essence: bool = False) -> Any:
    """Return settings as tables, lists and scalars for TOML and JSON, without None.

    `essence` returns what fingerprints are computed from: without the settings in a class's HOW, which do not change
    the result, and without those in LATER_ADDED that have their default, so that older folders still fit. For the same
    reason, renamed settings have their former names in it.
    """
    if isinstance(settings, os.PathLike):
        return os.fspath(settings)
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        options = getattr(type(settings), "HOW", ()) if essence else ()
        newer = getattr(type(settings), "LATER_ADDED", ()) if essence else ()
        names = [
            f.name
            for f in dataclasses.fields(settings)
            if f.name not in options and not (f.name in newer and getattr(settings, f.name) == _default(f))
        ]
        fields = {name: plain(getattr(settings, name), essence=essence) for name in names}
        fingerprinted = essence and type(settings).__module__.startswith("ordsmed.")  # a plugin may use any name
        fields = {FORMER.get(k, k) if fingerprinted else k: v for k, v in fields.items() if v is not None}
        return {"kind": menu.kind_of(settings), **fields} if _is_choice(settings) else fields
    if isinstance(settings, Mapping):
        return {former_path(str(k)) if essence else str(k): plain(v, essence=essence) for k, v in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain(v, essence=essence) for v in settings]
    return settings


def _default(field: dataclasses.Field[object]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def without_defaults(settings: object) -> Any:
    """Return settings as `plain` does, without values that are defaults. Choices keep their `kind`."""
    if isinstance(settings, list | tuple):
        return [without_defaults(v) for v in settings]
    if not dataclasses.is_dataclass(settings) or isinstance(settings, type):
        return plain(settings)
    kind = {"kind": menu.kind_of(settings)} if _is_choice(settings) else {}
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    kept = {name: value for name, value in values.items() if value is not None}
    for name in list(kept):  # drop a value that is the default or follows from others, such as 4 x width
        with contextlib.suppress(TypeError, ValueError):
            if type(settings)(**{key: value for key, value in kept.items() if key != name}) == settings:
                del kept[name]
    return kind | {name: without_defaults(value) for name, value in kept.items()}


def lines(table: Table, path: str = "") -> list[str]:
    """Return a table as lines of readable TOML."""
    tables = {k: v for k, v in table.items() if isinstance(v, Mapping) or _is_tables(v)}
    written = [f"{_key(k)} = {as_toml(v)}" for k, v in table.items() if k not in tables]
    for key, below in tables.items():
        name = f"{path}.{_key(key)}" if path else _key(key)
        for inner in below if isinstance(below, list) else [below]:
            written += ["", f"[[{name}]]" if isinstance(below, list) else f"[{name}]", *lines(inner, name)]
    return written


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)


def as_toml(value: object) -> str:
    """Return a value as a line of TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(str(k))} = {as_toml(v)}' for k, v in value.items())} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, str) or value is True or value is False:
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def write(settings: object) -> str:
    import tomli_w

    return tomli_w.dumps(plain(settings))


def flat(table: object, prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys: `{"model.width": 256, ...}`."""
    if isinstance(table, Mapping):
        items = [(f"{prefix}.{k}" if prefix else str(k), v) for k, v in table.items()]
    elif isinstance(table, list) and table and isinstance(table[0], Mapping):
        items = [(f"{prefix}[{i + 1}]", v) for i, v in enumerate(table)]
    else:
        return {prefix: table}
    return {k: v for key, value in items for k, v in flat(value, key).items()}


def _decode(wish: object, value: object, location: str) -> Any:
    if _is_menu(wish):
        return _choice(get_args(wish)[1], value, location)
    if get_origin(wish) in (Union, types.UnionType):
        inner = [w for w in get_args(wish) if w is not type(None)]
        if value == "none" and len(inner) < len(get_args(wish)) and not any(_is_word(w) for w in inner):
            return None  # removes a setting of the recipe: near=none
        tables = [w for w in inner if dataclasses.is_dataclass(w)]
        if len(inner) == 1 or (tables and isinstance(value, Mapping)):
            return _decode(tables[0] if tables else inner[0], value, location)
        if tables:
            try:
                return _leaf(Union[tuple(w for w in inner if w not in tables)], value, location)  # noqa: UP007
            except RecipeError as error:
                wanted = f"{error.wanted} or a table of {', '.join(_names(cast(type, tables[0])))}"
                raise RecipeError(location, error.found, wanted, "") from None
    if get_origin(wish) is tuple and dataclasses.is_dataclass(get_args(wish)[0]):
        if not isinstance(value, list):
            wanted = f"one or more tables, written [[{location.split(': ')[-1]}]]"
            raise RecipeError(location, f"found {_show(value)}", wanted)
        return tuple(_decoded(get_args(wish)[0], v, f"{location}[{i + 1}]") for i, v in enumerate(value))
    if dataclasses.is_dataclass(wish):
        return _decoded(wish, value, location)  # type: ignore[arg-type]
    return _leaf(wish, value, location)


def _is_menu(wish: object) -> bool:
    return get_origin(wish) is Annotated and isinstance(get_args(wish)[1], menu.Menu)


def _is_word(wish: object) -> bool:
    return wish is str or "none" in _choices(wish)


def _expand_size(cls: type, table: Mapping[str, Any], location: str) -> Mapping[str, Any]:
    """Replace `size = "mini"` by the settings in the class's SIZES. Settings in `table` take precedence."""
    sizes = getattr(cls, "SIZES", None)
    if not sizes or "size" not in table:
        return table
    if table["size"] not in sizes:
        raise RecipeError(
            _path_of(location, "size"), f"found {_show(table['size'])}", "", nearest(str(table["size"]), sizes)
        )
    return {**sizes[table["size"]], **{k: v for k, v in table.items() if k != "size"}}


def _expand_short(cls: type, table: Mapping[str, Any], location: str) -> Mapping[str, Any]:
    """Move keys in a class's SHORT to their tables: `mask_prob = 0.3` -> `objective = { mask_prob = 0.3 }`."""
    short = {key: below for key, below in getattr(cls, "SHORT", {}).items() if key in table}
    if not short:
        return table
    whole = {key: value for key, value in table.items() if key not in short}
    for key, below in short.items():
        inner = whole.get(below, {})
        if not isinstance(inner, Mapping) or {key, other_name(key)} & inner.keys():
            raise RecipeError(_path_of(location, key), f"also set in `{below}`", "one of the two")
        whole[below] = {**inner, key: table[key]}
    return whole


def with_present_names(cls: type, table: Mapping[str, Any], location: str) -> Mapping[str, Any]:
    """Return a table of settings of `cls` with the present names of its keys."""
    names = {*_names(cls), *getattr(cls, "SHORT", ())}
    for former, name in RENAMED.items():
        if former in table and former not in names and name in names:
            if name in table:
                problem = f"its new name `{name}` is set as well"
                raise RecipeError(_path_of(location, former), problem, "one of the two", f"leave out `{former}`")
            table = {name if key == former else key: value for key, value in table.items()}
            if RECIPE not in location and former not in _advised:  # users do not edit stored recipes
                _advised.add(former)
                say(f"{location}: `{former}` is called `{name}` now; the former name works until version 1.0")
    return table


def other_name(key: str) -> str:
    """Return the former name of a renamed setting, or the present name of a former one; "" for other keys."""
    return RENAMED.get(key, FORMER.get(key, ""))


def former_path(path: str) -> str:
    """Return the path of a setting (`phase.mask_prob`) with former names, which are used in fingerprints."""
    return ".".join(FORMER.get(key, key) for key in path.split("."))


def renamed(table: Mapping[str, Any], names: Mapping[str, str] = RENAMED) -> Table:
    """Rename the keys of a table and of all nested tables: by default to present names, with FORMER to former ones."""
    result: Table = {}
    for key, value in table.items():
        # a group's rate is a factor, not a learning rate
        below = [renamed(entry, names) for entry in value] if _is_tables(value) and key != "group" else value
        result[names.get(key, key)] = renamed(value, names) if isinstance(value, Mapping) else below
    return result


def _choice(choices: menu.Menu, value: object, location: str) -> Any:
    if choices.many and isinstance(value, list):
        return tuple(_choice(choices, entry, f"{location}[{number}]") for number, entry in enumerate(value, 1))
    table = {"kind": value} if isinstance(value, str) else value
    if choices.usual and isinstance(table, Mapping) and "kind" not in table:
        table = {"kind": choices.usual, **table}
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise RecipeError(f"{location}.kind", "missing", "one of: " + ", ".join(menu.entries(choices.name)))
    chosen = menu.load(choices.name, table["kind"], place=f"{location}.kind")
    try:
        return _decoded(chosen, {k: v for k, v in table.items() if k != "kind"}, location)
    except _Unknown as error:
        if error.place == _path_of(location, error.key):
            error.elsewhere = menu.choices_with_setting(choices.name, error.key)
        raise


def _leaf(wish: object, value: object, location: str) -> Any:
    import msgspec

    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise RecipeError(location, f"found {_show(value)}", f"at most {2**63 - 1:,}")
    written = str(value)
    if isinstance(value, int | float) and written in _choices(wish):  # version = 2.0, without quotes
        return written
    try:
        return msgspec.convert(value, wish, strict=True)
    except msgspec.ValidationError:
        choices = [choice for choice in _choices(wish, inside=True) if isinstance(choice, str)]
        texts = [word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]
        like = next((near_by for word in texts if word not in choices and (near_by := meant(word, choices))), "")
        raise RecipeError(location, f"found {_show(value)}", _type_in_words(wish), like) from None


def _set(table: Table, path: list[str], value: object, word: str) -> None:
    key, bracket, index = path[0].partition("[")
    if wrong := _index_error(table, path):
        raise RecipeError(f"`{word}`", f"found {wrong[0]}", *wrong[1:])
    target = table.get(key)
    entries = _entries(table, key)
    if bracket:
        number = index.removesuffix("]")
        if not (index.endswith("]") and number.isascii() and number.isdigit() and 1 <= int(number) <= len(entries)):
            wanted = f"{key}[1] to {key}[{len(entries)}]" if entries else f"`{key}` without a number: it is not a list"
            raise RecipeError(f"`{word}`", f"found {path[0]}", wanted)
        if len(path) == 1:
            entries[int(number) - 1] = value
        else:
            _set(_table_at(entries, int(number) - 1), path[1:], value, word)
    elif len(path) == 1:
        table.pop(other_name(key), None)  # the recipe may use its other name
        table[key] = value
    elif entries:
        for position in range(len(entries)):
            _set(_table_at(entries, position), path[1:], value, word)
    else:
        if not isinstance(target, dict):
            table[key] = {} if target is None else {"kind": target}
        _set(table[key], path[1:], value, word)


def _entries(table: Table, key: str) -> list[Any]:
    """Return the entries of a list with at least one table, such as phases; else an empty list.

    Other entries may be names: `clean = ["unicode", {...}]`.
    """
    target = table.get(key)
    return target if isinstance(target, list) and any(isinstance(entry, dict) for entry in target) else []


def _table_at(entries: list[Any], number: int) -> Table:
    """Return an entry of a list as a table. A name is replaced by `{"kind": name}` in the list."""
    if not isinstance(entries[number], dict):
        entries[number] = {"kind": entries[number]}
    table: Table = entries[number]
    return table


def _index_error(table: Table, path: list[str]) -> tuple[str, str, str] | None:
    """Return found, wanted and suggestion for a path with a wrong index of a list; None for other paths.

    Wrong are phase.0.batch, phase0.batch and phase[0].batch: indices are in brackets and counted from 1.
    """
    match = re.fullmatch(r"([a-z_]+?)(\.|\[|)(\d+)(\]?)(\..+)?", ".".join(path))
    count = len(_entries(table, match[1])) if match else 0
    if not match or not count or (match[2] + match[4] == "[]" and 1 <= int(match[3]) <= count):
        return None
    right = f"{match[1]}[{min(max(int(match[3]), 1), count)}]{match[5] or ''}"
    wanted = f"{match[1]}[1]" + (f" to {match[1]}[{count}]" if count > 1 else "")
    return "".join(match.groups()[:4]), wanted, f"did you mean `{right}`?"


def words(table: Mapping[str, object], above: str = "") -> list[str]:
    """Return settings as `key=value` words of the command line."""
    return [f"{above}{key}={literal(plain(value))}" for key, value in table.items()]


def literal(value: object) -> str:
    """Return a Python value as a TOML word of the command line, with `none` for None."""
    tolist = getattr(value, "tolist", None)  # of NumPy
    value = plain(tolist() if callable(tolist) else value)
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | range):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, str | bool | int | float):
        raise RecipeError(f"`{value}`", f"found {type(value).__name__}", "a text, a number, a list or a table")
    return json.dumps(value, ensure_ascii=False)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _path_of(location: str, key: str) -> str:
    """Return the location of a key, for errors: `recipe.toml: phase[1].length`."""
    return f"{location}.{key}" if ": " in location else f"{location}: {key}"


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _is_choice(settings: object) -> bool:
    return menu.is_choice(settings)


def _show(value: object) -> str:
    if isinstance(value, list):
        text = f"[{', '.join(map(_show, value))}]"
    else:
        text = as_toml(value) if isinstance(value, bool | Mapping) else repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _choices(wish: object, *, inside: bool = False) -> tuple[Any, ...]:
    """Return the values of a Literal or of those in a union; with `inside`, also of those in a list."""
    if get_origin(wish) is Literal:
        return get_args(wish)
    among = get_args(wish) if inside or get_origin(wish) in (Union, types.UnionType) else ()
    return tuple(value for alternative in among for value in _choices(alternative, inside=inside))


def _type_in_words(wish: object) -> str:
    """Return a type in words, for errors."""
    origin, inner = get_origin(wish), [argument for argument in get_args(wish) if argument is not types.NoneType]
    if origin is Annotated:
        return (
            "one of " + ", ".join(menu.entries(inner[1].name))
            if isinstance(inner[1], menu.Menu)
            else _type_in_words(inner[0])
        )
    if origin in (Union, types.UnionType):
        return " or ".join(
            _type_in_words(argument) for argument in sorted(inner, key=lambda argument: get_origin(argument) is Literal)
        )
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if inner[1:] else str(inner[0])
    if origin is tuple:
        return _list_of(inner)
    if origin is list:
        return _list_of([*inner, ...])
    if origin is dict:
        return f"a table of {_plural_type(inner[1])}"
    if dataclasses.is_dataclass(wish):
        return f"a table of {', '.join(_names(wish))}"  # type: ignore[arg-type]
    if wish is dict:
        return "a table"
    return TYPE_NAMES[wish] if isinstance(wish, type) and wish in TYPE_NAMES else getattr(wish, "__name__", str(wish))


def _list_of(inner: Sequence[Any]) -> str:
    if inner[-1] is ...:
        return f"a list of {_plural_type(inner[0])}"
    if len(set(inner)) == 1:
        return f"a list of {COUNTS.get(len(inner), len(inner))} {_plural_type(inner[0])}"
    return f"a list of {' and '.join(_type_in_words(part) for part in inner)}"


def _plural_type(wish: object) -> str:
    if wish in (int, float, str):
        return _type_in_words(wish).removeprefix("a ") + "s"
    noun = "settings" if wish is Any else _type_in_words(wish)
    return noun.replace("one of ", "any of ", 1).replace("a list of ", "lists of ", 1)


def _suggestion(error: _Unknown, cls: type, table: object) -> str:
    """Return a suggestion for an unknown key: a setting with this or a similar name, here or in other codes.

    Settings of the same table come first.
    """
    present = table if isinstance(table, Mapping) else {}
    parent = re.sub(r"\[\d+\]", "", error.place.rpartition(": ")[2]).rpartition(".")[0]
    paths = {name: [f"{parent}.{name}" if parent else name] for name in error.names}
    for path, aliases in _paths(cls, present):
        for name in (path.rpartition(".")[2], *aliases):
            paths.setdefault(name, []).append(path)
        if former := FORMER.get(path.rpartition(".")[2]):
            paths.setdefault(former, []).append(path)
    instead = [
        name for path in answers("settings", error.key) if path in paths.get(name := path.rpartition(".")[2], [])
    ]
    for names in ([error.key.lower()], near(error.key, paths), instead):
        candidates = list(dict.fromkeys(path for name in names for path in paths.get(name, [])))
        alike = [path for path in candidates if path.rpartition(".")[0] == parent] or sorted(
            candidates, key=lambda path: "." in path and path.partition(".")[0] not in present
        )
        if alike:
            listed = " or ".join(f"`{path}`" for path in alike[:3])
            renamed = names == [error.key.lower()] and not alike[0].endswith(error.key.lower())
            return f"it is {listed} here" if renamed else f"did you mean {listed}?"
    return error.elsewhere or error.remedy


def _paths(cls: type, table: object, before: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield the path of each setting of a class and of its nested tables, with the setting's names in other codes.

    The settings of a menu are those of the choice that `table` names.
    """
    hints = get_type_hints(cls, include_extras=True)
    docs = {line.name: line.doc for line in menu.lines(cls.__module__, cls.__qualname__)}
    for name in _names(cls):
        yield f"{before}{name}", set(filter(None, docs.get(name, "").partition(menu.OTHER_NAMES_MARK)[2].split(", ")))
        below = table.get(name) if isinstance(table, Mapping) else None
        for kind in _tables(hints[name], below):
            yield from _paths(kind, below, f"{before}{name}.")


def _tables(wish: object, value: object) -> Iterator[Any]:
    """Yield the dataclasses whose settings a table at this place may have."""
    if get_origin(wish) is Annotated and isinstance(get_args(wish)[1], menu.Menu):
        choices = get_args(wish)[1]
        kind = value.get("kind", choices.usual) if isinstance(value, Mapping) else value or choices.usual
        if kind in menu.entries(choices.name):
            yield menu.load(choices.name, str(kind))
    elif dataclasses.is_dataclass(wish):
        yield wish
    elif get_origin(wish) in (Union, types.UnionType, tuple):
        for alternative in get_args(wish):
            yield from _tables(alternative, value)

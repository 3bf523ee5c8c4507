"""Recipes: TOML <-> typed, frozen settings; strict, with overrides and near names.

    recipe.toml + ["model.width=256"] -> table -> decode(Pretrain, table) -> Pretrain(model=bert.Settings(...), ...)

Settings are standard dataclasses in the file that does the work; msgspec checks the leaves, this file walks the tree.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ordsmed.base import menu
from ordsmed.base.errors import RecipeError, nearest

T = TypeVar("T")
Table = dict[str, Any]


def read(path: Path) -> Table:
    """A TOML file as a table."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(
            path, "no such file", "a recipe (TOML)", "`ordsmed recipes` lists the built-in ones"
        ) from None
    except IsADirectoryError:
        raise RecipeError(path, "is a folder", "a recipe (TOML)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(path, f"not TOML: {error}", "", "mend that line") from None


def override(table: Table, words: Sequence[str]) -> Table:
    """Apply `key.path=value` words. `phase[2].rate=1e-3` sets one phase (counted from 1), `phase.rate=...` all."""
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not path:
            raise RecipeError(f"`{word}`", "not an override", "key.path=value")
        _put(table, path.split("."), _value(text), word)
    return table


def decode(cls: type[T], table: object, place: str) -> T:
    """Build settings from a table; every complaint names file, key, found, wanted and the near name."""
    if isinstance(table, str) and any(f.name == "kind" for f in dataclasses.fields(cls)):  # type: ignore[arg-type]
        table = {"kind": table}
    if not isinstance(table, Mapping):
        raise RecipeError(place, f"found {_show(table)}", "a table of " + ", ".join(_names(cls)))
    hints = get_type_hints(cls, include_extras=True)
    table = _named_size(cls, table, place)
    for key in table:
        if key not in _names(cls):
            raise RecipeError(_at(place, key), "unknown setting", "", nearest(key, _names(cls)))
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        where = _at(place, field.name)
        if field.name in table:
            values[field.name] = _decode(hints[field.name], table[field.name], where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecipeError(where, "missing", _wish(hints[field.name]), "")
    try:
        return cls(**values)
    except ValueError as error:
        key, _, rest = str(error).partition(": ")
        raise RecipeError(_at(place, key), rest or "cannot be") from None


def plain(settings: object, *, essence: bool = False) -> Any:
    """Settings as tables, lists and scalars: what TOML and JSON can hold. Nothing said (None) is left out.

    `essence` leaves out what a class names in HOW: where and by whom it is done, which changes nothing of what is made.
    """
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        how = getattr(type(settings), "HOW", ()) if essence else ()
        names = [f.name for f in dataclasses.fields(settings) if f.name not in how]
        fields = {name: plain(getattr(settings, name), essence=essence) for name in names}
        fields = {k: v for k, v in fields.items() if v is not None}
        return {"kind": menu.kind_of(settings), **fields} if _is_choice(settings) else fields
    if isinstance(settings, Mapping):
        return {str(k): plain(v, essence=essence) for k, v in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain(v, essence=essence) for v in settings]
    return str(settings) if isinstance(settings, Path) else settings


def write(settings: object) -> str:
    """Settings as TOML text."""
    import tomli_w

    return tomli_w.dumps(plain(settings))


def flat(table: object, prefix: str = "") -> dict[str, Any]:
    """`{"model.width": 256, ...}`: for showing and comparing."""
    if isinstance(table, Mapping):
        items = [(f"{prefix}.{k}" if prefix else str(k), v) for k, v in table.items()]
    elif isinstance(table, list) and table and isinstance(table[0], Mapping):
        items = [(f"{prefix}[{i + 1}]", v) for i, v in enumerate(table)]
    else:
        return {prefix: table}
    return {k: v for key, value in items for k, v in flat(value, key).items()}


def _decode(wish: Any, value: Any, place: str) -> Any:
    if get_origin(wish) is Annotated and isinstance(get_args(wish)[1], menu.Menu):
        return _choice(get_args(wish)[1], value, place)
    if get_origin(wish) in (Union, types.UnionType):
        inner = [w for w in get_args(wish) if w is not type(None)]
        tables = [w for w in inner if dataclasses.is_dataclass(w)]
        if len(inner) == 1 or (tables and isinstance(value, Mapping)):
            return _decode(tables[0] if tables else inner[0], value, place)
        if tables:
            return _scalar(tuple(w for w in inner if w not in tables), tables[0], value, place)
    if get_origin(wish) is tuple and dataclasses.is_dataclass(get_args(wish)[0]):
        if not isinstance(value, list):
            raise RecipeError(
                place, f"found {_show(value)}", f"one or more tables, written [[{place.split(': ')[-1]}]]"
            )
        return tuple(decode(get_args(wish)[0], v, f"{place}[{i + 1}]") for i, v in enumerate(value))
    if dataclasses.is_dataclass(wish):
        return decode(wish, value, place)  # type: ignore[arg-type]
    return _leaf(wish, value, place)


def _scalar(wishes: tuple[Any, ...], table: Any, value: Any, place: str) -> Any:
    """A value where a table may stand too."""
    try:
        return _leaf(Union[wishes], value, place)  # noqa: UP007
    except RecipeError as error:
        wanted = f"{error.wanted} or a table of {', '.join(_names(table))}"
        raise RecipeError(place, error.found, wanted, "") from None


def _named_size(cls: type, table: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """`size = "mini"` stands for the numbers in the class's SIZES; numbers given beside it win."""
    sizes = getattr(cls, "SIZES", None)
    if not sizes or "size" not in table:
        return table
    if table["size"] not in sizes:
        raise RecipeError(_at(place, "size"), f"found {_show(table['size'])}", "", nearest(str(table["size"]), sizes))
    return {**sizes[table["size"]], **{k: v for k, v in table.items() if k != "size"}}


def _choice(choices: menu.Menu, value: Any, place: str) -> Any:
    if choices.many and isinstance(value, list):
        return tuple(_choice(choices, entry, f"{place}[{number}]") for number, entry in enumerate(value, 1))
    table = {"kind": value} if isinstance(value, str) else value
    if choices.usual and isinstance(table, Mapping) and "kind" not in table:
        table = {"kind": choices.usual, **table}
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise RecipeError(f"{place}.kind", "missing", "one of: " + ", ".join(menu.entries(choices.name)))
    chosen = menu.load(choices.name, table["kind"], place=f"{place}.kind")
    return decode(chosen, {k: v for k, v in table.items() if k != "kind"}, place)


def _leaf(wish: Any, value: Any, place: str) -> Any:
    import msgspec

    written = str(value)
    if isinstance(value, int | float) and written in _choices(wish):  # version = 2.0, without quotes
        return written
    try:
        return msgspec.convert(value, wish, strict=True)
    except msgspec.ValidationError as error:
        said = re.sub(r" - at `.*`$", "", str(error)).replace("`", "")
        wanted = re.match(r"Expected (.*), got .*", said)
        told = wanted[1].replace("array", "a list") if wanted and not _choices(wish) else _wish(wish)
        raise RecipeError(place, f"found {_show(value)}", told, "") from None


def _put(table: Table, path: list[str], value: Any, word: str) -> None:
    key, bracket, index = path[0].partition("[")
    target = table.get(key)
    entries = target if isinstance(target, list) and target and isinstance(target[0], dict) else []
    if bracket:
        number = index.removesuffix("]")
        if not (index.endswith("]") and number.isascii() and number.isdigit() and 1 <= int(number) <= len(entries)):
            wanted = f"{key}[1] to {key}[{len(entries)}]" if entries else f"`{key}` without a number: it is no list"
            raise RecipeError(f"`{word}`", f"found {path[0]}", wanted)
        if len(path) == 1:
            entries[int(number) - 1] = value
        else:
            _put(entries[int(number) - 1], path[1:], value, word)
    elif len(path) == 1:
        table[key] = value
    elif entries:
        for entry in entries:
            _put(entry, path[1:], value, word)
    else:
        if not isinstance(target, dict):
            table[key] = {} if target is None else {"kind": target}
        _put(table[key], path[1:], value, word)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _at(place: str, key: str) -> str:
    """`recipe.toml: phase[1].length`: the file, then the keys."""
    return f"{place}.{key}" if ": " in place else f"{place}: {key}"


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _is_choice(settings: object) -> bool:
    return type(settings).__name__ == "Settings"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _choices(wish: Any) -> tuple[Any, ...]:
    """The values of a Literal, which may be one of several wishes."""
    return tuple(value for each in _apart(wish) if get_origin(each) is Literal for value in get_args(each))


def _apart(wish: Any) -> tuple[Any, ...]:
    """The wishes of which any will do."""
    return get_args(wish) if get_origin(wish) in (Union, types.UnionType) else (wish,)


def _wish(wish: Any) -> str:
    if get_origin(wish) is Annotated and isinstance(get_args(wish)[1], menu.Menu):
        return "one of " + ", ".join(menu.entries(get_args(wish)[1].name))
    if choices := _choices(wish):
        others = [
            _wish(each) for each in _apart(wish) if get_origin(each) is not Literal and each is not types.NoneType
        ]
        return " or ".join([*others, f"one of {', '.join(map(str, choices))}" if choices[1:] else str(choices[0])])
    name = getattr(wish, "__name__", str(wish))
    return str(wish).replace("typing.", "") if get_args(wish) else name

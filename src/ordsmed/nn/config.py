"""Read a Hugging Face config.json as the settings of a network, with errors that name the keys of the config."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from ordsmed.base import settings as tables
from ordsmed.base.errors import RecipeError

S = TypeVar("S")


def expect(config: dict[str, Any], **supported: tuple[Any, ...]) -> None:
    """Raise an error if a key of the config has a value that is not supported; keys may be missing."""
    for key, values in supported.items():
        if key in config and not any(config[key] == v and type(config[key]) is type(v) for v in values):
            raise ValueError(f"{key}: found {short(config[key])}; wanted {' or '.join(str(v) for v in values)}")


def settings_of(
    cls: type[S],
    config: dict[str, Any],
    sizes: Mapping[str, str],
    optional: Mapping[str, str],
    *,
    less: Mapping[str, int] = MappingProxyType({}),
    **chosen: Any,
) -> S:
    """Build the settings `cls` from a config.json.

    Args:
        sizes: setting -> required key.
        optional: setting -> key that may be missing.
        less: setting -> number to subtract from the size in the config.
        chosen: settings that the caller has derived from other keys.
    """
    table: dict[str, Any] = {}
    for name, key in sizes.items():
        table[name] = whole(config, key, 1 + less.get(name, 0)) - less.get(name, 0)
    table |= {name: config[key] for name, key in optional.items() if key in config} | chosen
    try:
        return tables.decode(cls, table, "config.json")
    except RecipeError as error:
        key = error.place.removeprefix("config.json: ")
        problem = "; wanted ".join(part for part in (error.found, error.wanted) if part)
        raise ValueError(f"{({**optional, **sizes}).get(key, key)}: {problem}") from None


def whole(config: dict[str, Any], key: str, minimum: int = 1) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{key}: found {short(value)}; wanted a whole number, {minimum} or more")
    return value


def table_of(config: dict[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key}: found {short(value)}; wanted a table")
    return value or {}


def short(value: object) -> str:
    plain = isinstance(value, bool) or (isinstance(value, str) and value[:1].isalpha())
    text = str(value) if plain else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) < 60 else text[:57] + "..."

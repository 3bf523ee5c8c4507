"""You know it as: words of the field, and what they are called here, from words.toml beside this file."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path


@functools.cache
def table() -> dict[str, str]:
    """What others call it, comma by comma -> what it is here."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def lookup(text: str) -> list[tuple[str, str]]:
    """The rows that know a word: those with this very name, else those that have all its parts."""
    wanted, rows = _parts(text), [(names, [_parts(name) for name in names.split(", ")]) for names in table()]
    exact = [names for names, known in rows if wanted in known]
    near = [names for names, known in rows if wanted and all(any(part in name for name in known) for part in wanted)]
    return [(names, table()[names]) for names in exact or near]


def names() -> list[str]:
    """Every word that is known."""
    return [name for names in table() for name in names.split(", ")]


def _parts(text: str) -> list[str]:
    """As they are compared: in small letters, without signs between them and the plural's s."""
    return [
        part.removesuffix("s") for part in re.findall(r"[a-z0-9&.]+", text.lower().replace("parallelism", "parallel"))
    ]

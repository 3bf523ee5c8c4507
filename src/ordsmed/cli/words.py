"""Words of the field with their names in ordsmed (words.toml), and the glossary of ordsmed (glossary.toml)."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path


@functools.cache
def table() -> dict[str, str]:
    """Return terms of the field (synonyms separated by commas), each with its name in ordsmed."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@functools.cache
def glossary() -> dict[str, str]:
    return tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))


def rows() -> list[tuple[str, str]]:
    return [*glossary().items(), *table().items()]


def lookup(text: str) -> list[tuple[str, str]]:
    """Return the rows for a word: those with exactly this name, else those that contain all its parts."""
    wanted, known = _parts(text), [(row, [_parts(name) for name in row[0].split(", ")]) for row in rows()]
    exact = [row for row, names in known if wanted in names]
    near = [row for row, names in known if wanted and all(any(part in name for name in names) for part in wanted)]
    return exact or near


def names() -> list[str]:
    return list(dict.fromkeys(name for names, _ in rows() for name in names.split(", ")))


def _parts(text: str) -> list[str]:
    """Return the parts of a name for comparison: in lower case, without the plural s."""
    return [
        part.removesuffix("s") for part in re.findall(r"[a-z0-9&.]+", text.lower().replace("parallelism", "parallel"))
    ]

"""Fetch tables: TOML files with `title`, `licence`, `about`, `[[file]]` and `[[list]]`, built-in or the user's."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.other_names import recipe_instead
from ordsmed.base.say import size
from ordsmed.web.unpack import ENDS, inside


@dataclass(frozen=True)
class File:
    """One file of a fetch table."""

    path: str
    "path in the folder"
    url: str = ""
    "address of the file; default: unknown, so that a mirror must have the file"
    size: int | None = None
    "bytes"
    sha256: str | None = None
    "hexadecimal digest"
    sha1: str | None = None
    "hexadecimal digest"
    md5: str | None = None
    "hexadecimal digest"
    sums: str | None = None
    "address of a list of hashes, one `HASH  NAME` per line, that also has the file's hash"
    listed: str | None = None
    "name of the file in that list, or a pattern; default: the last part of the address"
    unpack: str | None = None
    "folder (`.`: that of the file) into which the file is unpacked: .zip, .tar, .tar.gz, .gz, ..."
    longest: int | None = None
    "maximum bytes of the file"

    def __post_init__(self) -> None:
        for key in ("path", "unpack"):
            if (value := getattr(self, key)) is not None and inside(value) is None:
                raise ValueError(f"{key}: found {value!r}; wanted a path in the folder")
        if self.unpack and not self.path.lower().endswith(ENDS):
            raise ValueError(f"unpack: found a file {self.path}; wanted one that ends in {' '.join(ENDS)}")


@dataclass(frozen=True)
class List:
    """A list of addresses, one per line; `#` begins a comment."""

    url: str
    "address or path of the list"
    longest: int = 1_000_000_000
    "maximum bytes of each of its files"


@dataclass(frozen=True)
class FetchTable:
    """The content of a fetch table."""

    title: str
    "short description"
    licence: str
    "license of the files"
    about: str = ""
    "further information"
    file: tuple[File, ...] = ()
    "files to fetch"
    list: tuple[List, ...] = ()
    "lists of further files"
    codes: dict[str, str] = field(default_factory=dict)
    "for a table with XX in its name: replacements of XX for languages whose code differs from the name"


def listing() -> list[str]:
    """Return a line for each built-in table: name, size, license, title."""
    lines = []
    for name, path in _builtin().items():
        table = _read(path)
        sizes = [file.size for file in table.file]
        known = size(sum(filter(None, sizes))) if any(sizes) else "?"
        known += " and more" if any(sizes) and not all(sizes) else ""
        lines.append(f"  {name:<19} {known:>16}  {table.licence}: {table.title}")
    return lines


def find(name: str) -> tuple[str, FetchTable]:
    """Return the folder's name and the table for the name of a built-in table, or for a file."""
    shipped = _builtin()
    if Path(name).is_file():
        return Path(name).stem, _read(Path(name))
    for pattern in (key for key in shipped if key.endswith("-XX")):
        language = name.removeprefix(pattern[:-2])
        if language == "XX":
            raise RecipeError(f"`{name}`", "XX is a placeholder for a language", f"a name such as {pattern[:-2]}en")
        if name.startswith(pattern[:-2]) and re.fullmatch("[a-z]{2,}(-[a-z]+)*", language):
            text = shipped[pattern].read_text(encoding="utf-8")
            code = tomllib.loads(text).get("codes", {}).get(language, language.replace("-", "_"))
            return name, settings.decode(FetchTable, tomllib.loads(text.replace("XX", code)), str(shipped[pattern]))
    if name not in shipped:
        instead = recipe_instead("fetch", name) or nearest(name, shipped)
        raise RecipeError(f"`{name}`", "not a fetch table or a file", "", instead)
    return name, _read(shipped[name])


def _builtin() -> dict[str, Path]:
    paths = (menu.PACKAGE_ROOT / "recipes" / "fetch").glob("*.toml")
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def _read(path: Path) -> FetchTable:
    return settings.decode(FetchTable, settings.read(path), str(path))

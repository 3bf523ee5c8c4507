"""Corpora by your own names, defined in one TOML file with a table like `[source]` for each.

# corpora.toml                                   in a recipe
[wikipedia]                                      [source]
kind = "jsonl"                                   kind = "named"
path = "/data/wiki/*.jsonl.zst"                  names = ["wikipedia", "webtext"]
[webtext]
kind = "jsonl"
path = "/data/web"
text_key = "body"
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.menu import Choice
from ordsmed.text.document import Document
from ordsmed.text.source import Source


@dataclass(frozen=True)
class Named(Choice):
    """Sources that another file defines, one after the other."""

    names: str | list[str]
    "one name or several"
    file: str = "corpora.toml"
    "the file that defines the names"

    def sources(self) -> list[Source]:
        table = settings.read(Path(self.file))
        return [self._source(table, name) for name in ([self.names] if isinstance(self.names, str) else self.names)]

    def documents(self) -> Iterator[Document]:
        for source in self.sources():
            yield from source.documents()

    def stamp(self) -> object:
        return [[settings.plain(source), source.stamp()] for source in self.sources()]

    def size(self) -> int:
        return sum(source.size() for source in self.sources())

    def _source(self, table: settings.Table, name: str) -> Source:
        location = f"{self.file}: {name}"
        if name not in table:
            raise RecipeError(location, "no such name", "", nearest(name, table))
        entry = table[name]
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            raise RecipeError(f"{location}.kind", "missing", "one of: " + ", ".join(menu.entries("corpora")))
        if entry["kind"] == "named":
            raise RecipeError(f"{location}.kind", "a name defined by `named`", "another kind")
        chosen = menu.load("corpora", entry["kind"], place=f"{location}.kind")
        return settings.decode(chosen, {k: v for k, v in entry.items() if k != "kind"}, location)

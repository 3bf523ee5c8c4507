"""The board: entries as Markdown tables, one for each track and score, the best entry first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, operations
from ordsmed.base.screen import markdown
from ordsmed.maker.speedrun import entry, scores

HEAD = ("score", "BLiMP", "recipe", "seeds", "words", "minutes", "machine", "commit", "date")
Facts = Mapping[str, Any]


def lines(folder: Path) -> list[str]:
    """Return the board of the entries `*.json` in a folder."""
    tables = defaultdict[tuple[str, str], list[tuple[Path, Facts]]](list)
    for path in sorted(folder.glob("*.json")):
        facts = entry.read(path)
        _check(path, facts)
        tables[facts["track"], facts["score"]].append((path, facts))
    if not tables:
        return ["No entry yet."]
    return [line for key in sorted(tables) for line in _table(*key, tables[key], folder.name)]


def _check(path: Path, facts: Facts) -> None:
    if facts.get("version") != entry.VERSION:
        raise DataError(path, f"is no entry of version {entry.VERSION}", f"an {entry.FILE} of `ordsmed speedrun`")
    if reasons := entry.why_none(facts):
        raise DataError(path, f"is no entry: {'; '.join(reasons)}", "one by the rules of its track")


def _table(track: str, score: str, entries: Sequence[tuple[Path, Facts]], home: str) -> Iterator[str]:
    """Yield a table, with links below it so that rows fit on a page."""
    ordered = sorted(entries, key=lambda pair: pair[1]["over"][score]["mean"])
    yield f"### {track}: {score}, {operations(ordered[0][1]['rules']['flops'])}"
    yield ""
    yield from markdown(HEAD, [row(facts, path.stem) for path, facts in ordered])
    yield ""
    yield from (f"[{path.stem}]: {home}/{path.name}" for path, _ in ordered)
    yield ""


def row(facts: Facts, name: str) -> list[str]:
    """Return the cells of an entry; `name` is the label of its link."""
    over, machine = facts["over"], facts["machine"]
    pairs = entry.with_deviation(over[scores.BLIMP], 1) if scores.BLIMP in over else ""
    where = machine["gpu"] or f"{machine['processor']}, {many(machine['threads'], 'thread')}"
    return [
        entry.with_deviation(over[facts["score"]]),
        pairs,
        f"[{facts['name']}]" if facts["name"] == name else f"[{facts['name']}][{name}]",
        ", ".join(map(str, facts["seeds"])),
        f"{facts['words'] / 1e6:.1f} M",
        f"{facts['minutes']['training']:.1f}",
        where,
        facts["ordsmed"].partition("+g")[2],
        facts["date"],
    ]

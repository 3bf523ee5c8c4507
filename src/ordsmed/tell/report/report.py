"""Report: what runs left, read once and written as a page, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordsmed.base import files
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import size
from ordsmed.tell.report import content, page, parts, speeds
from ordsmed.tell.report.markdown import markdown as write_markdown

USUAL = "report.html"


class WrittenReport(NamedTuple):
    """What was written of runs."""

    paths: list[Path]
    facts: dict[str, Any]  # all that the JSON holds
    lines: list[str]


def write(
    names: Sequence[str], *, out: str | None = None, markdown: str | None = None, json: str | None = None,
    watts: float = 0.0, title: str = "", author: str = "",
) -> WrittenReport:  # fmt: skip
    """The files that are asked for, the page where none is."""
    requested = [Path(name).resolve() for name in (out, markdown, json) if name]
    if twice := [path for path in requested if requested.count(path) > 1]:
        raise RecipeError(twice[0], "is to be two of the page, the Markdown and the JSON", "a file for each")
    report = content.content(names, watts=watts, title=title, author=author)
    texts = {}
    if out or not (markdown or json):
        texts[Path(out or USUAL)] = page.page(report)
    if markdown:
        texts[Path(markdown)] = write_markdown(report)
    if json:
        texts[Path(json)] = parts.dumps(report) + "\n"
    for path, text in texts.items():
        with files.survive_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
    notes = [f"{run['name']}: {note}" for run in report["runs"] for note in run["notes"]]
    lines = [
        f"{path}: {' and '.join(speeds.counted(report))}, {size(len(text.encode()))}" for path, text in texts.items()
    ]
    more = [f"and {len(notes) - 20} more notes"] if len(notes) > 20 else []
    return WrittenReport(list(texts), report, [*notes[:20], *more, *lines])

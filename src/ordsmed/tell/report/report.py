"""The command `report`: read runs once and write a page, Markdown or JSON."""

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
    """Files and facts of a report that was written."""

    paths: list[Path]
    facts: dict[str, Any]  # content of the JSON
    lines: list[str]


def write(
    names: Sequence[str],
    *,
    out: str | None = None,
    markdown: str | None = None,
    json: str | None = None,
    watts: float = 0.0,
    title: str = "",
    author: str = "",
) -> WrittenReport:
    requested = [Path(name).resolve() for name in (out, markdown, json) if name]
    if repeated := [path for path in requested if requested.count(path) > 1]:
        raise RecipeError(
            repeated[0], "is the output of two formats", "separate files for the page, the Markdown and the JSON"
        )
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

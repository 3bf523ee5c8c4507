"""Reports of the validation suite as JSON, JUnit XML and Markdown, and the comparison of two reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict
from xml.sax.saxutils import quoteattr

import msgspec

from ordsmed.base import files, screen
from ordsmed.base.errors import DataError, RecipeError

NAME, JUNIT, PAGE = "report.json", "junit.xml", "report.md"
SLOWER = 0.2  # relative loss of speed that counts as a regression
GREEN, RED = "ok", ("error", "missing")


def write(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / NAME, report)
    files.write_text(folder / JUNIT, junit(report))
    files.write_text(folder / PAGE, "\n".join(page(report)) + "\n")


def count(report: dict[str, Any]) -> dict[str, int]:
    return {state: sum(row["state"] == state for row in report["items"]) for state in ("ok", "error", "absent")}


def junit(report: dict[str, Any]) -> str:
    counts = count(report)
    seconds = sum(row["seconds"] for row in report["items"])
    head = f'tests="{len(report["items"])}" failures="{counts["error"]}" skipped="{counts["absent"]}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f'<testsuite name="ordsmed validate" {head} time="{seconds:.3f}" hostname={_quoted(report["host"])}>')
    for row in report["items"]:
        start = f'  <testcase classname={_quoted(row["item"])} name={_quoted(row["case"])} time="{row["seconds"]:.3f}"'
        text = " ".join(filter(None, (row["node"], row["text"], row["remedy"])))
        inner = {"error": "failure", "absent": "skipped"}.get(row["state"])
        lines.append(f"{start}><{inner} message={_quoted(text)}/></testcase>" if inner else f"{start}/>")
    return "\n".join([*lines, "</testsuite>", ""])


def _quoted(text: str) -> str:
    return quoteattr("".join(sign for sign in text if sign >= " "))


def page(report: dict[str, Any]) -> Iterator[str]:
    counts = count(report)
    yield f"# Validation of {report['host']}"
    yield ""
    yield f"{counts['ok']} ok, {counts['error']} wrong, {counts['absent']} absent; {report['made']}"
    yield ""
    yield from screen.markdown(["fact", "value"], sorted(report["facts"].items()), padded=True)
    yield ""
    rows = [
        [row["item"], row["case"], row["state"], _words(row), figures(row), f"{row['seconds']:.1f}"]
        for row in report["items"]
    ]
    yield from screen.markdown(["item", "case", "state", "result", "figures", "seconds"], rows, padded=True)


def _words(row: dict[str, Any]) -> str:
    return f"{row['node']}: {row['text']}" if row["node"] else str(row["text"])


def figures(row: dict[str, Any]) -> str:
    return ", ".join(f"{value:.4g} {name}" for name, value in row["figures"].items())


class ReportRow(TypedDict):
    """The fields of a case that are compared between reports."""

    item: str
    case: str
    state: str
    figures: dict[str, float]


class ReportShape(TypedDict):
    """The fields that a report must have; other fields are allowed."""

    items: list[ReportRow]
    host: NotRequired[str]
    site: NotRequired[str]
    facts: NotRequired[dict[str, str]]


def read(name: str) -> dict[str, Any]:
    path = Path(name)
    path = path / NAME if path.is_dir() else path
    if not path.is_file():
        raise RecipeError("--compare", f"{name}: no such report", f"a folder of `ordsmed validate`, with a {NAME}")
    return checked(path)


def checked(path: Path) -> dict[str, Any]:
    report = files.read_table(path)
    try:
        msgspec.convert(report, ReportShape)
    except msgspec.ValidationError as error:
        raise DataError(path, f"is not a report: {error}", "one that `ordsmed validate` wrote") from None
    return report


def regressions(old: dict[str, Any], new: dict[str, Any], share: float = SLOWER) -> list[str]:
    """Return the cases that passed and now fail or are missing, and the speeds that fell by more than `share`."""
    now = {(row["item"], row["case"]): row for row in new["items"]}
    lines = []
    for before in old["items"]:
        key = f"{before['item']}, {before['case']}"
        after = now.get((before["item"], before["case"]))
        if text := regression(before, after):
            lines.append(f"{key}: {text}")
        elif after:
            lines += [f"{key}: {line}" for line in _slower(before["figures"], after["figures"], share)]
    return lines


def regression(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> str:
    """Return how a case that passed changed; empty if it still passes, or did not pass before."""
    if before["state"] != GREEN or (after and after["state"] == GREEN):
        return ""
    return f"was ok, is {after['state']}: {after.get('text', '')}" if after else "was ok, is missing"


def _slower(old: dict[str, float], new: dict[str, float], share: float) -> Iterator[str]:
    for name, before in old.items():
        after = new.get(name)
        if name.endswith("/s") and after is not None and after < (1 - share) * before:
            yield f"{before:.4g} {name} before, {after:.4g} now, {1 - after / before:.0%} slower"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for fact in sorted({*old.get("facts", {}), *new.get("facts", {})}):
        before, after = (report.get("facts", {}).get(fact, "none") for report in (old, new))
        if before != after:
            yield f"{fact}: {before} before, {after} now"

"""Results of probes in a model's `scores/` folder: rows for its card and lines for `show`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.say import say

SCORES = "scores"  # subfolder of a model's folder
HEAD = ["model", "probe", "files", "score", "result", "± error", "guessing"]


class ResultFile(msgspec.Struct):
    """The fields of a result file, except its scores."""

    probe: str
    way: str
    files: Annotated[list[str], msgspec.Meta(min_length=1)]
    key: str
    model: str
    errors: dict[str, float | None]
    guessing: dict[str, float | None]
    settings: dict[str, Any] | None = None
    step: int | None = None
    precision: str = "fp32"


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the results in a folder. Other files are ignored; a damaged result is reported and skipped."""
    for path in sorted(folder.glob("*-*.json")):
        try:
            result = read_one(path)
        except DataError as error:
            say(f"{error}; skipped")
            continue
        if result:
            yield result


def read_one(path: Path) -> dict[str, Any]:
    """Return the result in a file, or an empty table for another file. Raise DataError if a field is malformed."""
    result = files.read_table(path)
    if not {"probe", "way", "files", "key", "errors", "guessing", "model"} <= set(result):
        return {}
    try:
        msgspec.convert(result, ResultFile)
    except msgspec.ValidationError as error:
        remedy = "the file is damaged; `ordsmed evaluate` computes it again"
        raise DataError(path, str(error).replace("$.", ""), "", remedy) from None
    return result


def question(result: dict[str, Any]) -> str:
    """Return a key of what was measured on which model, independent of step, weights and file contents."""
    about = [result["model"], result["probe"], result["way"], result.get("precision", "fp32"), result["files"]]
    return json.dumps([*about, result.get("settings")], sort_keys=True)


def rows(result: dict[str, Any]) -> list[list[str]]:
    name = Path(result["files"][0]).name
    name += f" and {len(result['files']) - 1} more" if result["files"][1:] else ""
    half = "" if result.get("precision", "fp32") == "fp32" else f", {result['precision']}"
    about = [who(result), f"{result['probe']} ({result['way']}{half})", name]
    return [
        [*about, key, said(value), said(result["errors"].get(key)), said(result["guessing"].get(key))]
        for key, value in result.items()
        if isinstance(value, float)
    ]


def lines(folder: Path) -> list[str]:
    """Return a line for each probe, set of files and step: scores, their errors, and the scores of guessing."""
    written = []
    results = sorted(read(folder / SCORES), key=lambda row: (row["probe"], row["files"], row["step"] or 0))
    for result in results:
        cells = rows(result)
        scores = ", ".join(
            f"{name} {value}" + (f" ± {error}" if error else "") + (f" (guessing {guess})" if guess else "")
            for *_, name, value, error, guess in cells
        )
        step = f" at step {result['step']:,}" if result.get("step") is not None else ""
        written += (
            [f"{cells[0][1]} of {cells[0][2]}{step}{_distinguishing(result, results)}: {scores}"] if cells else []
        )
    return written


def _distinguishing(result: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """Return the settings that distinguish a result from others of the same probe and files."""
    alike = [
        row.get("settings") or {} for row in results if all(row[k] == result[k] for k in ("probe", "way", "files"))
    ]
    settings = result.get("settings") or {}
    differing = [f"{key}={value}" for key, value in settings.items() if any(row.get(key) != value for row in alike)]
    return f", {' '.join(differing)}" if differing else ""


def who(result: dict[str, Any]) -> str:
    step = result.get("step")
    return Path(result["model"]).name + (f" step {step:,}" if step is not None else "")


def said(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return "none"
        if abs(value) >= 1000 and value == int(value):  # a count
            return f"{value:,.0f}"
        return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

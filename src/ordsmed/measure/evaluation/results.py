"""Results of probes: JSON files next to the model, a Markdown table, and charts over training steps.

scores/minimal_pairs-adjunct_island-1a2b3c4d.json      scores/scores.md      scores/parts/ (stored chunks)
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordsmed.base import chart, files, settings
from ordsmed.base.chart import Mean
from ordsmed.base.errors import DataError
from ordsmed.base.keys import value_key
from ordsmed.base.menu import kind_of
from ordsmed.base.say import say
from ordsmed.base.screen import markdown
from ordsmed.measure.likelihood.probe import Finding, Probe
from ordsmed.measure.vectors.probe import VectorProbe
from ordsmed.weights.probe_results import HEAD, SCORES, question, read, read_one, rows, said, who

AWAY = Path("work/evaluate")


@dataclass(frozen=True)
class Result:
    """The finding of one probe for one model."""

    model: str
    step: int | None
    probe: Probe | VectorProbe
    way: str
    files: list[str]
    name: str
    key: str
    folder: Path
    finding: Finding
    records: list[Any]
    precision: str = "fp32"
    seen: dict[str, int] = field(default_factory=dict)  # tokens and, if known, words of training up to this step
    cutting: str = ""  # hash that is equal for models whose tokenizers split all texts the same way

    def plain(self) -> dict[str, Any]:
        """Return the dictionary that is stored: scores first, then how they were obtained."""
        options = {
            k: v for k, v in settings.plain(self.probe, essence=True).items() if k not in ("files", "way", "kind")
        }
        about = {
            "model": self.model,
            "step": self.step,
            "probe": kind_of(self.probe),
            "way": self.way,
            "precision": self.precision,
        }
        facts = {**self.finding.plain(), **about, "files": self.files, "settings": options, "how": self.finding.note}
        facts |= {"seen": self.seen} if self.seen else {}
        return dict(finite({**facts, "key": self.key}))

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}-{self.key[:8]}.json"

    def write(self) -> None:
        """Write the result as JSON; delete older results of the same question at the same step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = {title: [head, *rows] for title, head, rows in self.finding.tables}
        plain = self.plain()
        for path in self.folder.glob(f"{self.name}-*.json"):
            try:
                older = read_one(path)
            except DataError:  # a damaged file does not prevent writing; reading it reports the damage
                continue
            if path != self.path and older and older["step"] == self.step and question(older) == question(plain):
                path.unlink(missing_ok=True)
        files.write_json(self.path, finite({**plain, "tables": tables}))

    def each(self, **about: str) -> Iterator[str]:
        for record in self.records:
            yield json.dumps({**about, **self.probe.as_line(record)}, ensure_ascii=False) + "\n"


def write_each(results: Sequence[Result], out: str) -> None:
    lines = (line for result in results for line in result.each(**({"model": result.model} if results[1:] else {})))
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    files.write_text(Path(out), "".join(lines))


def results_folder(folder: Path, out: str | None) -> Path:
    """Return the folder for a model's results; if the model's folder is read-only, another one, with a note."""
    if out is not None:
        return Path(out)
    scores = folder / SCORES
    if _writable(scores):
        return scores
    away = AWAY / folder.name / SCORES
    say(f"{folder}: is read-only; writing its results to {away}")
    return away


def _writable(folder: Path) -> bool:
    """Return whether results can be written to a folder; a folder created for the test is removed."""
    existed = folder.exists()
    trial = folder / f".{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.touch()
        trial.unlink()
        if not existed:
            with contextlib.suppress(OSError):  # another process wrote into it
                folder.rmdir()
    except OSError:
        return False
    return True


def table(results: Sequence[Result]) -> list[str]:
    cells = [row for result in results for row in rows(result.plain())]
    lines = markdown(HEAD, cells, padded=True)
    for result in results:
        lines += [f"{kind_of(result.probe)}: {result.finding.note}"] if result.finding.note else []
        for title, head, cells in result.finding.tables:
            lines += [
                "",
                f"{who(result.plain())}, {title}:",
                *markdown(head, [[said(c) for c in row] for row in cells], padded=True),
            ]
    return lines


def write_table(folder: Path) -> None:
    results = sorted(read(folder), key=lambda result: (result["probe"], result["files"], result["step"] or 0))
    cells = [row for result in results for row in rows(result)]
    files.write_text(folder / "scores.md", "\n".join(markdown(HEAD, cells, padded=True)) + "\n")


def draw(folder: Path) -> list[tuple[Path, str]]:
    """Draw the first score of each probe run at several steps; return path and x-axis of each new or changed chart."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in read(folder):
        if result.get("step") is not None:
            groups.setdefault(question(result), []).append(result)
    drawn = []
    for key, group in groups.items():
        if len({result["step"] for result in group}) < 2:
            continue
        title = f"{rows(group[0])[0][1]} of {rows(group[0])[0][2]}" if rows(group[0]) else ""
        drawn += _drawn(folder / _name(group[0], key), title, group, {"step": "steps", **_axes(group)})
    return drawn


def draw_models(results: Sequence[Result], out: str | None) -> list[tuple[Path, str]]:
    """Draw charts of several models that answered the same probe at several steps, over words or tokens seen."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in (result.plain() for result in results):
        groups.setdefault(probe_key(row), []).append(row)
    drawn = []
    for key, group in groups.items():
        models = list(dict.fromkeys(row["model"] for row in group))
        if len(models) < 2 or len(group) == len(models) or len({_score(row) for row in group}) > 1:
            continue
        short = [Path(model).name for model in models]
        names = dict(zip(models, short if len({*short}) == len(short) else models, strict=True))
        several = [{**row, "name": names[row["model"]]} for row in group]
        path = (AWAY if out is None else Path(out)) / _name(group[0], json.dumps([key, models]))
        drawn += _drawn(path, f"{group[0]['probe']} of {rows(group[0])[0][2]}", several, _axes(group))
    return drawn


def probe_key(result: dict[str, Any]) -> str:
    """Return a text that identifies a probe with its files and settings, independent of the model."""
    return json.dumps([result["probe"], result["files"], result["precision"], result["settings"]], sort_keys=True)


def _axes(results: Sequence[dict[str, Any]]) -> dict[str, str]:
    unit = next((unit for unit in ("words", "tokens") if all(unit in result.get("seen", {}) for result in results)), "")
    return {unit: f"{unit} seen"} if unit else {}


def _drawn(path: Path, title: str, results: Sequence[dict[str, Any]], axes: dict[str, str]) -> list[tuple[Path, str]]:
    score, changed = _score(results[0]), []
    for axis, label in axes.items() if score else ():
        picture = path.with_suffix(".svg") if axis == "step" else path.with_name(f"{path.name}-{axis}.svg")
        text = learning_curves(title, score, results, axis, "step of pretraining" if axis == "step" else label)
        if not picture.exists() or picture.read_text(encoding="utf-8", errors="replace") != text:
            picture.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(picture, text)
            changed.append((picture, label))
    return changed


def learning_curves(title: str, score: str, results: Sequence[dict[str, Any]], axis: str, label: str) -> str:
    lines: dict[str, list[Mean]] = {}
    for result in results:
        x = result["step"] if axis == "step" else result["seen"][axis]
        mean = Mean(result[score], result["errors"].get(score) or math.nan, x=x)
        lines.setdefault(f"model {result['name']}" if "name" in result else "", []).append(mean)
    lines = {name: sorted(means, key=lambda mean: mean.x) for name, means in lines.items()}
    level = results[0]["guessing"].get(score)
    guessing = level if level is not None and math.isfinite(level) else None
    return chart.over_log(f"{title}: {score}", lines, f"{label}; bars: standard error", guessing)


def _score(result: dict[str, Any]) -> str:
    return next((key for key, value in result.items() if isinstance(value, float)), "")


def _name(result: dict[str, Any], key: str) -> str:
    return f"{result['probe']}-{Path(result['files'][0]).name.split('.')[0]}-{value_key(key, 8)}"


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Results: what a probe found of a model, as JSON beside the model, as a Markdown table, and drawn as it learns.

scores/minimal_pairs-adjunct_island-1a2b3c4d.json      scores/scores.md      scores/parts/ (what is kept)
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
from ordsmed.measure.likelihood.probe import Finding, Probe, Record
from ordsmed.measure.vectors.probe import VectorProbe
from ordsmed.weights.probed import HEAD, SCORES, question, read, read_one, rows, said, who

AWAY = Path("work/evaluate")


@dataclass(frozen=True)
class Result:
    """What one probe found of one model."""

    model: str
    step: int | None
    probe: Probe | VectorProbe
    way: str
    files: list[str]
    name: str
    key: str
    folder: Path
    finding: Finding
    records: list[Record]
    precision: str = "fp32"
    seen: dict[str, int] = field(default_factory=dict)  # tokens, and words where they are known, up to this step
    cutting: str = ""  # of its tokenizer: the same where texts are cut alike

    def plain(self) -> dict[str, Any]:
        """The facts first, then of what they are."""
        how = {k: v for k, v in settings.plain(self.probe, essence=True).items() if k not in ("files", "way", "kind")}
        about = {"model": self.model, "step": self.step, "probe": kind_of(self.probe), "way": self.way,
                 "precision": self.precision}  # fmt: skip
        facts = {**self.finding.plain(), **about, "files": self.files, "settings": how, "how": self.finding.how}
        facts |= {"seen": self.seen} if self.seen else {}
        return dict(finite({**facts, "key": self.key}))

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}-{self.key[:8]}.json"

    def write(self) -> None:
        """As JSON, whole or not at all; what the same question was answered before, of other contents, goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = {title: [head, *rows] for title, head, rows in self.finding.tables}
        plain = self.plain()
        for path in self.folder.glob(f"{self.name}-*.json"):
            try:
                older = read_one(path)
            except DataError:  # a damaged one is no reason not to write; who reads it tells of it
                continue
            if path != self.path and older and older["step"] == self.step and question(older) == question(plain):
                path.unlink(missing_ok=True)
        files.write_json(self.path, finite({**plain, "tables": tables}))

    def each(self, **about: str) -> Iterator[str]:
        """Every record as a line of JSON."""
        for record in self.records:
            yield json.dumps({**about, **self.probe.as_line(record)}, ensure_ascii=False) + "\n"


def write_each(results: Sequence[Result], out: str) -> None:
    """The records of all models, which are named where they are several; whole or not at all."""
    lines = (line for result in results for line in result.each(**({"model": result.model} if results[1:] else {})))
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    files.write_text(Path(out), "".join(lines))


def place_of(folder: Path, out: str | None) -> Path:
    """Where the results of a model are put: beside it, or where that may only be read, elsewhere, which is said."""
    if out is not None:
        return Path(out)
    scores = folder / SCORES
    if _writable(scores):
        return scores
    away = AWAY / folder.name / SCORES
    say(f"{folder}: may only be read; its results are put into {away}")
    return away


def _writable(folder: Path) -> bool:
    """Can results be put there? Nothing is left of the trial."""
    stood = folder.exists()
    trial = folder / f".{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.touch()
        trial.unlink()
        if not stood:
            with contextlib.suppress(OSError):  # another process has put something there
                folder.rmdir()
    except OSError:
        return False
    return True


def table(results: Sequence[Result]) -> list[str]:
    """Markdown: a row a fact, with its error and what guessing gets."""
    cells = [row for result in results for row in rows(result.plain())]
    lines = markdown(HEAD, cells, padded=True)
    for result in results:
        lines += [f"{kind_of(result.probe)}: {result.finding.how}"] if result.finding.how else []
        for title, head, cells in result.finding.tables:
            lines += [
                "",
                f"{who(result.plain())}, {title}:",
                *markdown(head, [[said(c) for c in row] for row in cells], padded=True),
            ]
    return lines


def write_table(folder: Path) -> None:
    """`scores.md`: all results that stand in a folder."""
    results = sorted(read(folder), key=lambda result: (result["probe"], result["files"], result["step"] or 0))
    cells = [row for result in results for row in rows(result)]
    files.write_text(folder / "scores.md", "\n".join(markdown(HEAD, cells, padded=True)) + "\n")


def draw(folder: Path) -> list[tuple[Path, str]]:
    """Pictures over steps, and over what was seen, of the first score of each probe that was asked of several steps.

    Those that were not drawn so already, and over what.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in read(folder):
        if result.get("step") is not None:
            groups.setdefault(question(result), []).append(result)
    drawn = []
    for same, ones in groups.items():
        if len({result["step"] for result in ones}) < 2:
            continue
        title = f"{rows(ones[0])[0][1]} of {rows(ones[0])[0][2]}" if rows(ones[0]) else ""
        drawn += _drawn(folder / _name(ones[0], same), title, ones, {"step": "steps", **_axes(ones)})
    return drawn


def draw_models(results: Sequence[Result], out: str | None) -> list[tuple[Path, str]]:
    """Pictures over what was seen of several models that were asked the same at several steps."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in (result.plain() for result in results):
        groups.setdefault(asked_of(row), []).append(row)
    drawn = []
    for same, ones in groups.items():
        models = list(dict.fromkeys(row["model"] for row in ones))
        if len(models) < 2 or len(ones) == len(models) or len({_score(row) for row in ones}) > 1:
            continue
        short = [Path(model).name for model in models]
        names = dict(zip(models, short if len({*short}) == len(short) else models, strict=True))
        several = [{**row, "name": names[row["model"]]} for row in ones]
        path = (AWAY if out is None else Path(out)) / _name(ones[0], json.dumps([same, models]))
        drawn += _drawn(path, f"{ones[0]['probe']} of {rows(ones[0])[0][2]}", several, _axes(ones))
    return drawn


def asked_of(result: dict[str, Any]) -> str:
    """What was asked, whatever model it was asked of."""
    return json.dumps([result["probe"], result["files"], result["precision"], result["settings"]], sort_keys=True)


def _axes(ones: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Over what results can be drawn beside steps: words where all know them, else tokens."""
    unit = next((unit for unit in ("words", "tokens") if all(unit in result.get("seen", {}) for result in ones)), "")
    return {unit: f"{unit} seen"} if unit else {}


def _drawn(path: Path, title: str, results: Sequence[dict[str, Any]], axes: dict[str, str]) -> list[tuple[Path, str]]:
    """The pictures that are new or have changed."""
    score, drawn = _score(results[0]), []
    for axis, label in axes.items() if score else ():
        picture = path.with_suffix(".svg") if axis == "step" else path.with_name(f"{path.name}-{axis}.svg")
        text = learning_curves(title, score, results, axis, "step of pretraining" if axis == "step" else label)
        if not picture.exists() or picture.read_text(encoding="utf-8", errors="replace") != text:
            picture.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(picture, text)
            drawn.append((picture, label))
    return drawn


def learning_curves(title: str, score: str, results: Sequence[dict[str, Any]], axis: str, label: str) -> str:
    """How a score changes while models learn; several have their names."""
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
    """The first one."""
    return next((key for key, value in result.items() if isinstance(value, float)), "")


def _name(result: dict[str, Any], same: str) -> str:
    """Of a picture, without its ending."""
    return f"{result['probe']}-{Path(result['files'][0]).name.split('.')[0]}-{value_key(same, 8)}"


def finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

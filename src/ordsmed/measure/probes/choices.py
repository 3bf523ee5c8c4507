r"""Choices: multiple-choice questions defined by data, such as HellaSwag, PIQA, ARC, WinoGrande and MMLU.

text = "Question: {{goal}}\\nAnswer:"    choices = "{{[sol1, sol2]}}"    right = "label"    metrics = ["acc"]

Templates, metrics and their names are those of lm-evaluation-harness, and scores agree with it. Its tasks/*.yaml can be
used directly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ordsmed.base import settings
from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many
from ordsmed.measure.likelihood import harness, templates
from ordsmed.measure.likelihood.choosing import ChoiceProbe, ChoiceQuestion, cut_off, scores_by_choice
from ordsmed.measure.likelihood.items import Scores
from ordsmed.measure.likelihood.probe import Example, Record, paths_of, records, valid

Metric = Literal["acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info"]
PER = {"acc_norm": 1, "acc_bytes": 2, "acc_tokens": 3}  # index of the size that divides an option's score
REMEDY = "docs/evaluation.md shows one"
USUAL = {"delimiter": " ", "metrics": ("acc", "acc_norm")}


@dataclass(frozen=True)
class ChoicesRecord(Record):
    group: str
    place: str
    right: list[int]  # numbers of the right choices
    dropped: int  # tokens cut off because the context was too long
    options: list[list[float]]  # of each choice: score, characters, bytes, tokens, score without context if needed


@dataclass(frozen=True)
class ChoiceTask:
    files: tuple[str, ...] = ()
    """files of rows: JSON lines, JSON, CSV, .tsv with a header or Parquet, compressed or not"""
    text: str | None = None
    """context before all choices: a field's name, or a template such as "Question: {{question}}"; default: none"""
    choices: str | tuple[str, ...] | None = None
    """a field or template that yields a list, or the texts themselves"""
    right: int | str | None = None
    """the right choice: its number from 0, a field or template that yields it, its text, or a list of several"""
    ending: str | None = None
    """for choices that are contexts, as in WinoGrande: the text after each choice, which is scored; excludes `text`"""
    description: str | None = None
    """text to put before each context"""
    delimiter: str | None = None
    """between text and choice; default: a space; elsewhere target_delimiter"""
    metrics: tuple[Metric, ...] | None = None
    """acc compares sums; acc_norm, acc_bytes and acc_tokens compare means per character, byte and token;
    acc_mutual_info subtracts the score without context; default: acc and acc_norm"""
    group: str | None = None
    """field or template that names the group of similar examples; default: the file, if there are several"""


@dataclass(frozen=True)
class Choices(ChoiceTask, ChoiceProbe, Choice):
    """Accuracy over examples and over their groups."""

    file: str = ""
    """task file: TOML with the settings above, or YAML of lm-evaluation-harness; explicit settings take precedence"""
    way: str = ""
    """causal, masked, word, detect, forward, backward, mean; empty: the model's default"""
    start: bool = False
    """causal models: put the start token before each text, as lm-evaluation-harness does if the tokenizer adds it; a
    choice without context always gets it"""

    RECORD: ClassVar = ChoicesRecord
    HOW: ClassVar[tuple[str, ...]] = ("file",)

    def __post_init__(self) -> None:
        names = [field.name for field in dataclasses.fields(ChoiceTask)]
        overridden = {name for name in names if getattr(self, name) not in (None, ())}
        task = _task(Path(self.file), overridden) if self.file else ChoiceTask()
        for name in set(names) - overridden:
            value = getattr(task, name)
            object.__setattr__(self, name, USUAL.get(name) if value is None else value)
        for name in ("choices", "right"):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: missing; wanted a field or a template, here or in a task (`file`)")
        if self.ending and self.text:
            raise ValueError(
                "ending: found with a text; wanted only one of them: with `ending`, the choices are the contexts"
            )
        if not self.metrics:
            raise ValueError("metrics: none; wanted one or more of acc, acc_norm, acc_bytes, acc_tokens")
        for name in ("text", "choices", "right", "ending", "description", "group"):
            templates.check(getattr(self, name), f"{self.file or 'choices'}: {name}")

    def questions(self) -> Iterator[ChoiceQuestion]:
        paths = paths_of(self.files)
        for path in paths:
            stem = path.name.split(".")[0] if paths[1:] else ""
            for location, row in records(path):
                group = str(templates.rendered(self.group, row, location)) if self.group else stem
                yield self._question(row, location, group)

    def _question(self, row: templates.Row, location: str, group: str) -> ChoiceQuestion:
        """Build a question; if a metric needs them, the choices without context follow the choices."""
        choices = templates.texts(self.choices, row, location)
        valid("".join(choices), location)
        context = templates.text(self.description, row, location) + templates.text(self.text, row, location)
        if context.isdigit():
            wanted = "words; if the choices are contexts, their common `ending`"
            raise DataError(location, f"the text is {context}", wanted)
        endings = [f"{self.delimiter}{choice}" for choice in choices]
        pairs = [(context, ending) for ending in endings]
        if self.ending:
            pairs = [(choice, f"{self.delimiter}{templates.text(self.ending, row, location)}") for choice in choices]
        if "acc_mutual_info" in (self.metrics or ()):
            pairs += [("", ending) for ending in endings]
        sizes = [[len(choice), len(choice.encode())] for choice in choices]
        return ChoiceQuestion(
            location, pairs, [group, location, templates.numbers(self.right, choices, row, location), sizes]
        )

    def record(self, example: Example, scores: list[Scores]) -> ChoicesRecord:
        _, dropped, group, location, right, sizes = example.about
        values = scores_by_choice(example, scores)
        options = [[s.total, *size, len(s.logs)] for s, size in zip(values, sizes, strict=False)]
        for option, without_context in zip(options, values[len(options) :], strict=False):
            option.append(without_context.total)
        return ChoicesRecord(group, location, right, dropped, options)

    def marks(self, record: ChoicesRecord) -> dict[str, bool]:
        result: dict[str, bool] = {}
        for metric in self.metrics or ():
            values = _values(record, metric)
            result[metric] = values.index(max(values)) in record.right
        return result

    def guess(self, record: ChoicesRecord) -> float:
        return len(set(record.right)) / len(record.options)

    def note(self, records: list[ChoicesRecord]) -> str:
        ties = sum(_values(record, "acc").count(max(_values(record, "acc"))) > 1 for record in records)
        tied = f"{many(ties, 'example')} with several likeliest choices: the first counts" if ties else ""
        return "; ".join(filter(None, (cut_off([record.dropped for record in records]), tied)))

    def as_line(self, record: ChoicesRecord) -> dict[str, Any]:
        file, _, line = record.place.rpartition(":")
        about = {"file": file, "line": int(line), **({"group": record.group} if record.group else {})}
        scores = [option[0] for option in record.options]
        return {**about, "right": record.right, "scores": scores, **self.marks(record)}


def _values(record: ChoicesRecord, metric: str) -> list[float]:
    if metric == "acc_mutual_info":
        return [option[0] - option[4] for option in record.options]
    return [option[0] / (option[PER[metric]] if metric in PER else 1) for option in record.options]


def _task(path: Path, overridden: set[str]) -> ChoiceTask:
    yaml = path.suffix.lower() in (".yaml", ".yml")
    table = harness.read(path, overridden) if yaml else settings.read(path, "a task file (TOML or YAML)", REMEDY)
    files = table.get("files", [])
    return settings.decode(ChoiceTask, {**table, "files": [files] if isinstance(files, str) else files}, str(path))

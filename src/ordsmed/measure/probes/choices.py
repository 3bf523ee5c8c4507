"""Choices: which of several endings is the likeliest, as data say: HellaSwag, PIQA, ARC, WinoGrande, MMLU ...

text = "Question: {{goal}}\\nAnswer:"    choices = "{{[sol1, sol2]}}"    right = "label"    metrics = ["acc"]

Templates, metrics and their names are lm-evaluation-harness's, and so are the numbers; its tasks/*.yaml can be named.
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
PER = {"acc_norm": 1, "acc_bytes": 2, "acc_tokens": 3}  # where an option holds what its score is divided by
REMEDY = "docs/evaluation.md shows one"
USUAL = {"delimiter": " ", "metrics": ("acc", "acc_norm")}


@dataclass(frozen=True)
class ChoiceTask:
    """What a task file may say."""

    files: tuple[str, ...] = ()
    """rows: JSON lines, JSON, CSV, .tsv with a head or Parquet, packed or plain"""
    text: str | None = None
    """what stands before all choices: a field's name, or a template such as "Question: {{question}}"; none: nothing"""
    choices: str | tuple[str, ...] | None = None
    """a field or a template that gives a list, or the texts themselves"""
    right: int | str | None = None
    """the right one: its number from 0, a field or a template that gives it, its text, or a list of several"""
    ending: str | None = None
    """where contexts are chosen, as in WinoGrande: what stands behind each choice, and is scored; there is no text"""
    description: str | None = None
    """put before each text"""
    delimiter: str | None = None
    """between text and choice; none: a space; elsewhere target_delimiter"""
    metrics: tuple[Metric, ...] | None = None
    """acc compares sums; acc_norm, acc_bytes and acc_tokens means a character, byte, token; acc_mutual_info sums less
    those behind nothing; none: acc and acc_norm"""
    group: str | None = None
    """of examples that are much alike, a field or a template; none: the file, where there are several"""


@dataclass(frozen=True)
class Choices(ChoiceTask, ChoiceProbe, Choice):
    """Accuracy over examples, and over their groups."""

    file: str = ""
    """a task: TOML with the settings above, or YAML of lm-evaluation-harness; what is given beside it wins"""
    way: str = ""
    """causal, masked, word, detect, forward, backward, mean; empty: the model's usual one"""
    start: bool = False
    """of causal models: the sign that texts begin with stands before each text, as in lm-evaluation-harness where a
    tokenizer puts it; before what has no text it always does"""

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
            raise ValueError("ending: found with a text; wanted one of both: the choices are what stands before it")
        if not self.metrics:
            raise ValueError("metrics: none; wanted one or more of acc, acc_norm, acc_bytes, acc_tokens")
        for name in ("text", "choices", "right", "ending", "description", "group"):
            templates.check(getattr(self, name), f"{self.file or 'choices'}: {name}")

    def questions(self) -> Iterator[ChoiceQuestion]:
        paths = paths_of(self.files)
        for path in paths:
            stem = path.name.split(".")[0] if paths[1:] else ""
            for place, row in records(path):
                group = str(templates.rendered(self.group, row, place)) if self.group else stem
                yield self._question(row, place, group)

    def _question(self, row: templates.Row, place: str, group: str) -> ChoiceQuestion:
        """A row; behind its own choices those behind nothing, where a metric needs them."""
        choices = templates.texts(self.choices, row, place)
        valid("".join(choices), place)
        before = templates.text(self.description, row, place) + templates.text(self.text, row, place)
        if before.isdigit():
            wanted = "words; where contexts are to be chosen, their common `ending`"
            raise DataError(place, f"the text is {before}", wanted)
        endings = [f"{self.delimiter}{choice}" for choice in choices]
        pairs = [(before, ending) for ending in endings]
        if self.ending:
            pairs = [(choice, f"{self.delimiter}{templates.text(self.ending, row, place)}") for choice in choices]
        if "acc_mutual_info" in (self.metrics or ()):
            pairs += [("", ending) for ending in endings]
        sizes = [[len(choice), len(choice.encode())] for choice in choices]
        return ChoiceQuestion(place, pairs, [group, place, templates.numbers(self.right, choices, row, place), sizes])

    def record(self, example: Example, scores: list[Scores]) -> Record:
        """Group, place, the right ones, dropped tokens, and of each choice its score and by what it may be divided."""
        _, dropped, group, place, right, sizes = example.about
        values = scores_by_choice(example, scores)
        options = [[s.total, *size, len(s.logs)] for s, size in zip(values, sizes, strict=False)]
        for option, alone in zip(options, values[len(options) :], strict=False):
            option.append(alone.total)
        return [group, place, right, dropped, options]

    def marks(self, record: Record) -> dict[str, bool]:
        result: dict[str, bool] = {}
        for metric in self.metrics or ():
            values = _values(record, metric)
            result[metric] = values.index(max(values)) in record[2]
        return result

    def guess(self, record: Record) -> float:
        return len(set(record[2])) / len(record[4])

    def how(self, records: list[Record]) -> str:
        ties = sum(_values(record, "acc").count(max(_values(record, "acc"))) > 1 for record in records)
        tied = f"{many(ties, 'example')} with several likeliest choices, of which the first counts" if ties else ""
        return "; ".join(filter(None, (cut_off([record[3] for record in records]), tied)))

    def as_line(self, record: Record) -> dict[str, Any]:
        group, place, right, _, options = record
        file, _, line = place.rpartition(":")
        about = {"file": file, "line": int(line), **({"group": group} if group else {})}
        return {**about, "right": right, "scores": [option[0] for option in options], **self.marks(record)}


def _values(record: Record, metric: str) -> list[float]:
    """What choices are compared by."""
    if metric == "acc_mutual_info":
        return [option[0] - option[4] for option in record[4]]
    return [option[0] / (option[PER[metric]] if metric in PER else 1) for option in record[4]]


def _task(path: Path, overridden: set[str]) -> ChoiceTask:
    yaml = path.suffix.lower() in (".yaml", ".yml")
    table = harness.read(path, overridden) if yaml else settings.read(path, "a task file (TOML or YAML)", REMEDY)
    files = table.get("files", [])
    return settings.decode(ChoiceTask, {**table, "files": [files] if isinstance(files, str) else files}, str(path))

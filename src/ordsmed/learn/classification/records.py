"""Records of labeled texts, read from tables with named columns and from the files of GLUE and XNLI.

    settings of the files -> LabeledFiles.records(paths) -> Records(texts, seconds, gold)

Records hold the text of the files; labels become numbers in the features.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.learn.task import Files
from ordsmed.text import read
from ordsmed.text.labelled import glue, tables
from ordsmed.text.labelled.tables import Column, Format, Table
from ordsmed.text.read import Errors, files

SCORED = ("dev", "validation", "valid", "test")  # names of splits for evaluation; the first that a file has is used
NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")  # a number in a file of labels
MANY_NUMBERS = 10  # from this many different numbers with fractions, labels are probably not classes


@dataclass(frozen=True)
class Part:
    path: Path
    lines: list[int]
    split: str = ""  # GLUE's name of the split
    indexes: Sequence[str] = ()  # GLUE's ids of the rows of a test split


@dataclass(frozen=True)
class Records:
    texts: list[str]
    seconds: list[str]  # second texts of pairs, else empty
    gold: list[str]  # as written in the files; "" if unknown
    parts: list[Part]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def known(self) -> list[int]:
        """Return the numbers of the records whose right answer is known."""
        return [number for number, gold in enumerate(self.gold) if gold]

    @property
    def indexes(self) -> list[str]:
        return [index for part in self.parts for index in part.indexes]

    @property
    def locations(self) -> list[str]:
        """Return the line of each record, with its file if there are several; without tabs and line ends."""
        if len(self.parts) == 1:
            return [f"{line}" for line in self.parts[0].lines]
        named = ((str(part.path).translate(dict.fromkeys(map(ord, "\t\r\n"), " ")), part) for part in self.parts)
        return [f"{name}:{line}" for name, part in named for line in part.lines]


@dataclass(frozen=True, kw_only=True)
class LabeledFiles(Files):
    """Settings for files of labeled texts, the base of a task's settings."""

    name: str = ""
    """a task of GLUE (cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli), or xnli; `train` and `dev` are its files
    or their folder, by default the download of `ordsmed fetch glue` or `ordsmed fetch xnli`"""
    language: str = ""
    """language of xnli: ar, bg, de, el, en, es, fr, hi, ru, sw, th, tr, ur, vi, zh; left out: train on English and
    evaluate on all"""
    text: Column = "text"
    """column of the text, by its name or its number from 1"""
    second: Column | None = None
    """column of the second text, if examples are pairs"""
    label: Column = "label"
    """column of the label or number"""
    split: Column | None = None
    """column with the split of each row: train for training, dev (or else test) for evaluation"""
    format: Format | None = None
    """format of the files; left out: by their suffix"""
    header: bool = True
    """whether the first line of TSV and CSV has the names of columns"""
    errors: Errors = "strict"
    """bytes that are not UTF-8: strict: an error; otherwise replaced and counted"""
    labels: tuple[str, ...] = ()
    """the classes, in this order; left out: those of the training data, sorted"""
    number: bool = False
    """predict a number instead of a class"""
    scale: tuple[float, float] | None = None
    """numbers that are scaled to 0 and 1; left out: the lowest and highest of the training data"""
    unordered: bool | None = None
    """train on pairs in both orders; left out: only for mrpc and sts-b, as ELECTRA does"""

    def __post_init__(self) -> None:
        if self.benchmark:
            self._set_defaults(self.benchmark)
        if self.language and self.language not in (known := self.benchmark.languages if self.benchmark else ()):
            wanted = f"one of {', '.join(known)}" if known else "none: `name=xnli` has several"
            raise ValueError(f"language: found {self.language}; wanted {wanted}")
        if self.scale and not self.scale[0] < self.scale[1]:
            raise ValueError(f"scale: found {list(self.scale)}; wanted the lower and the higher end")
        if self.unordered and not self.pairs:
            raise ValueError("unordered: found without `second`; wanted pairs")

    def _set_defaults(self, task: glue.GlueTask) -> None:
        """Set what GLUE defines for a task; raise an error for settings that contradict it."""
        if (self.text, self.second, self.label, self.split) != ("text", None, "label", None):
            raise ValueError("name: found with columns; wanted none, because those of GLUE are known")
        if self.labels not in ((), task.labels):
            raise ValueError(f"labels: found {list(self.labels)}; wanted none, or GLUE's: {list(task.labels)}")
        unordered = task.unordered if self.unordered is None else self.unordered
        known = {"labels": task.labels, "number": task.range is not None, "scale": task.range, "unordered": unordered}
        for key, value in known.items():
            object.__setattr__(self, key, value)

    @property
    def benchmark(self) -> glue.GlueTask | None:
        return glue.named(self.name) if self.name else None

    @property
    def pairs(self) -> bool:
        return "second" in self.benchmark.columns if self.benchmark else self.second is not None

    @property
    def ends(self) -> tuple[float, float]:
        assert self.scale is not None, "call complete() first: the training data determine the scale"
        return self.scale

    def paths(self, split: str) -> tuple[str, ...]:
        named = super().paths(split)
        if not self.benchmark:
            return named
        paths: list[Path | None] = []
        for path in map(Path, named or super().paths("train") or (_fetched(self.benchmark),)):
            if path.is_dir():
                paths.append(glue.find(path, self.benchmark, self.language).get(split))
            elif named or not path.exists():
                paths.append(path)
        return tuple(str(path) for path in paths if path)

    def records(self, paths: Sequence[str], *, learning: bool = False) -> Records:
        texts: list[str] = []
        seconds: list[str] = []
        gold: list[str] = []
        parts: list[Part] = []
        for path in self._files(paths, learning):
            table, split = self._table(path, learning)
            columns = table.columns
            texts += columns["text"]
            seconds += columns.get("second", [])
            gold += columns.get("label", [""] * len(table))
            parts.append(Part(path, table.lines, split, columns.get("index", ())))
        if learning and self.unordered:
            texts, seconds, gold, parts = texts + seconds, seconds + texts, gold * 2, parts * 2
        return Records(texts, seconds, gold, parts)

    def count_scored(self, records: Records) -> int:  # type: ignore[override]
        return len(records.known)

    def example_file(self, location: str, columns: Mapping[str, list[Any]]) -> tuple[str, str, dict[str, Any]]:
        wanted = [] if self.benchmark else [c for c in (self.text, self.second, self.label, self.split) if c]
        if absent := [c for c in wanted if not (c <= len(columns) if isinstance(c, int) else c in columns)]:
            listed = ", ".join(map(str, wanted))
            remedy = "name the columns with `task.text`, `task.second` and `task.label`"
            raise RecipeError(location, f"no column `{absent[0]}`, but {', '.join(columns)}", listed, remedy)
        return super().example_file(location, columns)

    def about(self, texts: Sequence[str], seconds: Sequence[str] = ()) -> Records:
        if self.pairs != bool(seconds) or len(seconds) not in (0, len(texts)):
            problem = f"found {many(len(texts), 'text')} and {many(len(seconds), 'second text')}"
            wanted = "a second text for each" if self.pairs else "no second texts: the model did not learn pairs"
            raise RecipeError(self.METHOD, problem, wanted)
        return Records([*texts], [*seconds], [""] * len(texts), [])

    def _files(self, paths: Sequence[str], learning: bool) -> list[Path]:
        """Return the files of `paths`; a folder of GLUE is replaced by its training file or its evaluation file."""
        task, split = self.benchmark, "train" if learning else "dev"
        if not task:
            return files(paths)
        chosen: list[Path] = []
        for path in paths:
            if path != _fetched(task) and not Path(path).is_dir():
                chosen += files(path)
            elif file := glue.find(Path(path), task, self.language).get(split):
                chosen.append(file)
            else:
                raise DataError(path, f"no {split} file of {task.folder}", " or ".join(task.files[split]))
        return chosen

    def _table(self, path: Path, learning: bool) -> tuple[Table, str]:
        """Read a file; return its rows, and its split of GLUE ("" for other files)."""
        if self.benchmark:
            table, split = glue.read(self.benchmark, path, self.errors, self.format, self.language)
        else:
            table, split = self._columns(path, learning), ""
        if "label" not in table.columns and not split:
            column = self.benchmark.columns["label"][0] if self.benchmark else self.label
            say(f"{path}: no column `{column}`, so the right answers are not known")
        if self.split:
            table = table.where("split", "train" if learning else _score_column(table))
            say(f"{path}: the {many(len(table), 'row')} of {table.columns['split'][0]}")
        if "label" not in table.columns:
            if learning:
                raise DataError(path, "no labels", "training data with labels")
            return table, split
        table.columns["label"][:] = map(self.plain_label, table.columns["label"])
        if learning:
            table = self._learnable(table)
        if self.number:
            known = table.only([row for row, label in enumerate(table.columns["label"]) if label])
            known.numbers("label", self.scale if self.name and self.scale else (-math.inf, math.inf))
        return table, split

    def _columns(self, path: Path, learning: bool) -> Table:
        """Read the columns of a user's file; labels may be missing if they are not used for training."""
        roles = {"text": self.text, "second": self.second, "label": self.label, "split": self.split}
        columns = {role: column for role, column in roles.items() if column is not None}
        options: dict[str, Any] = {"format": self.format, "header": self.header, "errors": self.errors}
        try:
            return tables.table(path, columns, lacking=() if learning else ("label",), **options)
        except tables.NoColumn as error:
            missing = {text: role for role, c in columns.items() for text in (f"no column `{c}`", f"no column {c}")}
            chosen = f"choose it: task.{missing[error.found]}=COLUMN"
            asks = error.remedy.endswith("?")
            remedy = f"{error.remedy} {chosen}" if asks else ", or ".join(filter(None, [chosen, error.remedy]))
            raise tables.NoColumn(error.place, error.found, error.wanted, remedy) from None

    def plain_label(self, label: str) -> str:
        """Normalize a label: drop extra spaces, and use one name for labels of GLUE with several names."""
        label = " ".join(label.split())
        return self.benchmark.plain(label) if self.benchmark else label

    def _learnable(self, table: Table) -> Table:
        gold = table.columns["label"]
        rows = [row for row, label in enumerate(gold) if (label in self.labels if self.labels else label)]
        if not rows:
            wanted = ", ".join(self.labels) or "one in each row"
            raise DataError(table.path, "no row has a label to learn", wanted)
        if len(rows) < len(table):
            first = min(set(range(len(table))).difference(rows))
            skipped = f"skipped {len(table) - len(rows):,} of {many(len(table), 'row')} without a label to learn"
            say(f"{table.path}: {skipped}; the first, line {table.lines[first]}, has `{gold[first]}`")
        return table.only(rows)


def _fetched(task: glue.GlueTask) -> str:
    return read.FETCHED + task.fetched


def _score_column(table: Table) -> str:
    values = set(table.columns["split"])
    column = next((name for name in SCORED if name in values), None)
    if column is None:
        raise DataError(table.path, f"`split` is {', '.join(sorted(values)[:9])}", f"one of {', '.join(SCORED)}")
    return column


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels, sorted as numbers if all are numbers, otherwise by their characters."""
    different = sorted(set(labels) - {""})
    try:
        return tuple(sorted(different, key=float))
    except ValueError:
        return tuple(different)


def check_written_labels(counts: Mapping[str, int], path: Path) -> None:
    """Raise an error for training labels that mean the same (1, 1.0 and true), or are probably not classes.

    Numbers with fractions that mostly occur once are not classes; a few such numbers are only reported.
    """
    same: dict[str, list[str]] = {}
    for label in counts:
        same.setdefault(_plain(label), []).append(label)
    if twice := next((labels for labels in same.values() if len(labels) > 1), None):
        problem = f"labels {' and '.join(f'`{label}`' for label in sorted(twice))} mean the same"
        raise DataError(path, problem, "one spelling of each label", "or name the classes with `task.labels`")
    fraction = next((label for label in counts if not _plain(label).lstrip("-").isdecimal()), "")
    if not fraction or not all(NUMBER.fullmatch(label) for label in counts):
        return
    problem, rows = f"{many(len(counts), 'different label')}, all numbers, such as {fraction}", sum(counts.values())
    remedy = "`task.number=true` predicts a number"
    if len(counts) >= MANY_NUMBERS and 2 * len(counts) > rows:
        raise DataError(path, f"{problem}, in {many(rows, 'row')}", "classes", f"{remedy}; `task.labels` names classes")
    say(f"{path}: {problem}, are learned as classes; {remedy}")


def _plain(label: str) -> str:
    """Return 1 for 1.0 and true, and 0 for 0.0 and false; other labels stay as they are written."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", {"true": "1", "false": "0"}.get(label.lower(), label))

"""The GLUE tasks by name: their files in a folder, columns, labels, metrics, and what is handed in.

    "data/glue", SST-2  ->  find  ->  {"train": .../train.tsv, "dev": .../dev.tsv}  ->  read  ->  Table of text, label

Wang et al. 2019, GLUE: a multi-task benchmark. Labels stand in the order in which ELECTRA numbers them. A table has the
columns `text`, `second` where there are two texts, and `label`; that of a test split has `index` in place of the label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ordsmed.base.errors import DataError, RecipeError, nearest
from ordsmed.base.files import write_text
from ordsmed.base.say import say
from ordsmed.text import tables
from ordsmed.text.read import Errors
from ordsmed.text.read import lines as read_lines
from ordsmed.text.tables import Column, Table

TWO: dict[str, Column] = {"text": "sentence1", "second": "sentence2", "label": "label"}
FILES = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
MRPC = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt")  # as published; GLUE tells which rows are dev
ENTAILED = ("entailment", "not_entailment")
ENTAILED_NUMBERS = {"0": "entailment", "1": "not_entailment"}


@dataclass(frozen=True)
class Task:
    """What a task's files hold, and how it is scored."""

    folder: str
    rows: Mapping[str, int]  # how many GLUE has, by split
    columns: Mapping[str, Column]  # by their roles
    metrics: tuple[str, ...] = ("accuracy",)  # names of learn/scores.py; the first is the score of record
    labels: tuple[str, ...] = ("0", "1")  # none: a number within `range`
    spellings: Mapping[str, str] = field(default_factory=dict)  # the numbers that other copies have for the labels
    range: tuple[float, float] | None = None
    unordered: bool = False  # the two texts may change places: ELECTRA trains on both orders
    header: bool = True  # of train and dev; a test split always has one
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: FILES)  # by split; the first that is there
    test_columns: Mapping[str, Column] = field(default_factory=dict)  # where they are not those of train
    handed_in: Mapping[str, str] = field(default_factory=dict)  # name of the file, by split; else the folder's

    def wanted(self, split: str) -> dict[str, Column]:
        """The columns of a split by their roles."""
        if not split.startswith("test"):
            return dict(self.columns)
        texts = {role: column for role, column in self.columns.items() if role != "label"}
        return {"index": "index", **texts, **self.test_columns}


TASKS = {
    "cola": Task(
        "CoLA", {"train": 8551, "dev": 1043, "test": 1063}, {"text": 4, "label": 2}, ("matthews", "accuracy"),
        header=False, test_columns={"text": "sentence"},
        files=FILES | {"train": ("train.tsv", "in_domain_train.tsv"), "dev": ("dev.tsv", "in_domain_dev.tsv")},
    ),
    "sst-2": Task("SST-2", {"train": 67349, "dev": 872, "test": 1821}, {"text": "sentence", "label": "label"}),
    # GLUE's own board takes the mean of the two metrics of mrpc, qqp and sts-b; ELECTRA tells the first
    "mrpc": Task(
        "MRPC", {"train": 3668, "dev": 408, "test": 1725},
        {"text": "#1 String", "second": "#2 String", "label": "Quality"}, ("accuracy", "f1"), unordered=True,
        files={"train": ("train.tsv", MRPC[0]), "dev": ("dev.tsv", "dev_ids.tsv"), "test": ("test.tsv", MRPC[1])},
    ),
    "sts-b": Task(
        "STS-B", {"train": 5749, "dev": 1500, "test": 1379}, TWO | {"label": "score"}, ("spearman", "pearson"),
        labels=(), range=(0.0, 5.0), unordered=True,
    ),
    "qqp": Task(
        "QQP", {"train": 363846, "dev": 40430, "test": 390965},
        {"text": "question1", "second": "question2", "label": "is_duplicate"}, ("accuracy", "f1"),
        test_columns={"index": "id"},
    ),
    "mnli": Task(
        "MNLI",
        {
            "train": 392702, "dev": 9815, "dev_mismatched": 9832,
            "test": 9796, "test_mismatched": 9847, "test_diagnostic": 1104,
        },
        TWO | {"label": "gold_label"}, labels=("contradiction", "entailment", "neutral"),
        spellings={"0": "entailment", "1": "neutral", "2": "contradiction"},
        files={
            "train": ("train.tsv",), "dev": ("dev_matched.tsv",), "dev_mismatched": ("dev_mismatched.tsv",),
            "test": ("test_matched.tsv",), "test_mismatched": ("test_mismatched.tsv",),
            "test_diagnostic": ("diagnostic.tsv", "AX.tsv", "../AX/AX.tsv", "../diagnostic/diagnostic.tsv"),
        },
        handed_in={"test": "MNLI-m", "test_mismatched": "MNLI-mm", "test_diagnostic": "AX"},
    ),
    "qnli": Task(
        "QNLI", {"train": 104743, "dev": 5463, "test": 5463},
        {"text": "question", "second": "sentence", "label": "label"}, labels=ENTAILED, spellings=ENTAILED_NUMBERS,
    ),
    "rte": Task(
        "RTE", {"train": 2490, "dev": 277, "test": 3000}, TWO, labels=ENTAILED, spellings=ENTAILED_NUMBERS
    ),
    "wnli": Task("WNLI", {"train": 635, "dev": 71, "test": 146}, TWO),
}  # fmt: skip


def named(name: str) -> Task:
    """A task by its name, in any case, with or without its hyphen."""
    found = {_letters(known): task for known, task in TASKS.items()}.get(_letters(name))
    if found is None:
        raise RecipeError(f"`{name}`", "no task of GLUE", "", nearest(name.lower(), TASKS))
    return found


def find(folder: Path, task: Task) -> dict[str, Path]:
    """The files of a task by split, in a folder of all tasks or its own."""
    inner = [path for path in sorted(folder.glob("*/")) if _letters(path.name) == _letters(task.folder)]
    for place in (*inner, folder):
        paths = {split: _first(place, names) for split, names in task.files.items()}
        if paths["train"] or paths["dev"]:
            return {split: path for split, path in paths.items() if path}
    wanted = " or ".join(dict.fromkeys((*task.files["train"], *task.files["dev"])))
    raise DataError(
        folder, f"no files of {task.folder}", f"{wanted}, here or in {task.folder}/", "`ordsmed fetch glue` gets them"
    )


def split_of(task: Task, path: Path) -> str:
    """Which split a file is, by its name; "" where it is none of GLUE's."""
    for split, names in task.files.items():
        if path.name.removesuffix(path.suffix if path.suffix in tables.PACKED else "") in map(_last, names):
            return split
    return ""


def read(task: Task, split: str, path: Path, errors: Errors = "strict") -> Table:
    """The rows of a split."""
    if path.name in (*MRPC, "dev_ids.tsv"):
        found = _published(task, split, path, errors)
    else:
        header = task.header or split.startswith("test")
        found = tables.table(path, task.wanted(split), format="tsv", header=header, errors=errors)
    if len(found) != task.rows[split]:
        there = f"{task.rows[split]:,} in GLUE: not the same as published scores stand on"
        say(f"{path}: {len(found):,} rows of {task.folder} {split}, {there}")
    return found


def hand_in(folder: Path, task: Task, split: str, indexes: Sequence[str], predicted: Sequence[float]) -> Path:
    """Write predictions of a test split as gluebenchmark.com takes them: numbers of labels, or values."""
    path = folder / f"{task.handed_in.get(split, task.folder)}.tsv"
    lines = [f"{index}\t{_written(task, value)}\n" for index, value in zip(indexes, predicted, strict=True)]
    write_text(path, "index\tprediction\n" + "".join(lines))
    return path


def _published(task: Task, split: str, path: Path, errors: Errors) -> Table:
    """MRPC from the files that it was published in: dev is the rows of train whose two texts' numbers are listed."""
    if split == "test":
        found = tables.table(path, task.columns, format="tsv", errors=errors)
        texts = {role: values for role, values in found.columns.items() if role != "label"}
        return Table(path, found.lines, {"index": [str(row) for row in range(len(found))], **texts})
    ids = {"one": "#1 ID", "two": "#2 ID"}
    every = tables.table(path.with_name(MRPC[0]), {**task.columns, **ids}, format="tsv", errors=errors)
    listed = set(read_lines(path.with_name("dev_ids.tsv"), errors))
    pairs = map("\t".join, zip(every.columns["one"], every.columns["two"], strict=True))
    return every.only([row for row, pair in enumerate(pairs) if (pair in listed) == (split == "dev")])


def _written(task: Task, value: float) -> str:
    if task.range is None:
        return task.labels[int(value)]
    return f"{min(max(float(value), task.range[0]), task.range[1]):.6f}"


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    paths = (folder / (name + ending) for name in names for ending in ("", *tables.PACKED))
    return next((path for path in paths if path.is_file()), None)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())

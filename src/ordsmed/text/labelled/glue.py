"""The GLUE tasks and XNLI: their files in a folder, columns, labels, metrics, and the files for submission.

    "data/glue", SST-2  ->  find  ->  {"train": .../train.tsv, "dev": .../dev.tsv}  ->  read  ->  Table of text, label

Wang et al. 2019, GLUE: a multi-task benchmark. Conneau et al. 2018, XNLI: MNLI in 15 languages. Labels are in the order
of ELECTRA's label ids. A table has the columns `text`, `second` if there are two texts, `label` if the file has labels
under any name, and `index` for a test split with numbers. Copies name their columns differently: as GLUE, as the first
publication, or as Hugging Face.
"""

import contextlib
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, nearest
from ordsmed.base.files import write_text
from ordsmed.base.say import many, say
from ordsmed.base.screen import command
from ordsmed.text.labelled import tables
from ordsmed.text.labelled.tables import Column, Format, Table
from ordsmed.text.read import Errors
from ordsmed.text.read import lines as read_lines

Columns = Mapping[str, tuple[Column, ...]]
INDEX = ("index", "id", "idx")
ONE: Columns = {"text": ("sentence",), "label": ("label",)}
TWO: Columns = {"text": ("sentence1",), "second": ("sentence2",), "label": ("label",)}
# values of copies for a label that is withheld, or that annotators did not agree on
UNKNOWN = {"-1": "", "-1.0": "", "-": ""}
FILES = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
DEV_IDS = "dev_ids.tsv"
MRPC = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt")  # as published; GLUE lists which rows are dev
STS = ("sts-{}.csv", "sts-{}.tsv", "original/sts-{}.tsv")
ENTAILED = ("entailment", "not_entailment")
ENTAILED_NUMBERS = {"0": "entailment", "1": "not_entailment"}


@dataclass(frozen=True)
class GlueTask:
    """The files of a task, and its metrics."""

    folder: str
    rows: Mapping[str, int]  # number of rows in GLUE, by split
    columns: Columns  # names of the columns in different copies, by role
    metrics: tuple[str, ...] = ("accuracy",)  # names of learn/score/labels.py; the first is the main score
    labels: tuple[str, ...] = ("0", "1")  # empty: a number within `range`
    spellings: Mapping[str, str] = field(default_factory=dict)  # other copies' spellings of the labels
    range: tuple[float, float] | None = None
    unordered: bool = False  # the order of the two texts does not matter: ELECTRA trains on both
    bare: Mapping[str, Column] = field(default_factory=dict)  # columns of files without a header
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: FILES)  # names by split; the first that exists
    handed_in: Mapping[str, str] = field(default_factory=dict)  # submission file by split; default: the folder's name
    languages: tuple[str, ...] = ()  # replace `{}` in names of files; files without `{}` have rows of all languages
    fetched: str = "glue"  # the name of its data in `ordsmed fetch`

    def plain(self, label: str) -> str:
        """Return the standard spelling of a label; empty if the label is unknown."""
        return UNKNOWN.get(label, self.spellings.get(label, label))

    def understands(self, label: str) -> bool:
        """Return whether this is a label of the task."""
        if self.range is None:
            return self.plain(label) in self.labels
        try:
            return self.range[0] <= float(label) <= self.range[1]
        except ValueError:
            return False


TASKS = {
    "cola": GlueTask(
        "CoLA",
        {"train": 8551, "dev": 1043, "test": 1063},
        ONE,
        ("matthews", "accuracy"),
        bare={"text": 4, "label": 2},
        files=FILES | {"train": ("train.tsv", "in_domain_train.tsv"), "dev": ("dev.tsv", "in_domain_dev.tsv")},
    ),
    "sst-2": GlueTask("SST-2", {"train": 67349, "dev": 872, "test": 1821}, ONE),
    # GLUE's leaderboard uses the mean of the two metrics of mrpc, qqp and sts-b; ELECTRA reports the first
    "mrpc": GlueTask(
        "MRPC",
        {"train": 3668, "dev": 408, "test": 1725},
        {"text": ("#1 String", "sentence1"), "second": ("#2 String", "sentence2"), "label": ("Quality", "label")},
        ("accuracy", "f1"),
        unordered=True,
        files={"train": ("train.tsv", MRPC[0]), "dev": ("dev.tsv", DEV_IDS), "test": ("test.tsv", MRPC[1])},
    ),
    "sts-b": GlueTask(
        "STS-B",
        {"train": 5749, "dev": 1500, "test": 1379},
        {**TWO, "label": ("score", "label")},
        ("spearman", "pearson"),
        labels=(),
        range=(0.0, 5.0),
        unordered=True,
        bare={"label": 5, "text": 6, "second": 7},  # the STS benchmark as published, with tabs even in .csv
        files={split: (*FILES[split], *(name.format(split) for name in STS)) for split in FILES},
    ),
    "qqp": GlueTask(
        "QQP",
        {"train": 363846, "dev": 40430, "test": 390965},
        {"text": ("question1",), "second": ("question2",), "label": ("is_duplicate", "label")},
        ("accuracy", "f1"),
    ),
    "mnli": GlueTask(
        "MNLI",
        {
            "train": 392702,
            "dev": 9815,
            "dev_mismatched": 9832,
            "test": 9796,
            "test_mismatched": 9847,
            "test_diagnostic": 1104,
        },
        {
            "text": ("sentence1", "premise", "Premise"),
            "second": ("sentence2", "hypothesis", "Hypothesis"),
            "label": ("gold_label", "label", "Label"),
        },
        labels=("contradiction", "entailment", "neutral"),
        spellings={"0": "entailment", "1": "neutral", "2": "contradiction"},
        files={
            "train": ("train.tsv",),
            "dev": ("dev_matched.tsv",),
            "dev_mismatched": ("dev_mismatched.tsv",),
            "test": ("test_matched.tsv",),
            "test_mismatched": ("test_mismatched.tsv",),
            "test_diagnostic": (
                "diagnostic.tsv",
                "AX.tsv",
                "../AX/AX.tsv",
                "../diagnostic/diagnostic.tsv",
                "diagnostic-full.tsv",
            ),
        },
        handed_in={"test": "MNLI-m", "test_mismatched": "MNLI-mm", "test_diagnostic": "AX"},
    ),
    "qnli": GlueTask(
        "QNLI",
        {"train": 104743, "dev": 5463, "test": 5463},
        {"text": ("question",), "second": ("sentence",), "label": ("label",)},
        labels=ENTAILED,
        spellings=ENTAILED_NUMBERS,
    ),
    "rte": GlueTask("RTE", {"train": 2490, "dev": 277, "test": 3000}, TWO, labels=ENTAILED, spellings=ENTAILED_NUMBERS),
    "wnli": GlueTask("WNLI", {"train": 635, "dev": 71, "test": 146}, TWO),
}
BESIDE = {
    "xnli": GlueTask(
        "XNLI",
        {"train": 392702, "dev": 2490, "test": 5010},
        {
            "text": ("sentence1", "premise"),
            "second": ("sentence2", "hypothesis", "hypo"),
            "label": ("gold_label", "label"),
            "language": ("language",),
        },
        labels=("contradiction", "entailment", "neutral"),
        spellings={"0": "entailment", "1": "neutral", "2": "contradiction", "contradictory": "contradiction"},
        files={
            "train": tuple(f"{place}multinli.train.{{}}.tsv" for place in ("XNLI-MT-1.0/multinli/", "multinli/", "")),
            "dev": ("XNLI-1.0/xnli.dev.tsv", "xnli.dev.tsv"),
            "test": ("XNLI-1.0/xnli.test.tsv", "xnli.test.tsv"),
        },
        languages=("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"),
        fetched="xnli",
    )
}
KNOWN = TASKS | BESIDE


def named(name: str) -> GlueTask:
    known_task = {_plain_name(known): task for known, task in KNOWN.items()}.get(_plain_name(name))
    if known_task is None:
        raise RecipeError(f"`{name}`", "not a task of GLUE", "", nearest(name.lower(), KNOWN))
    return known_task


def find(folder: Path, task: GlueTask, language: str = "") -> dict[str, Path]:
    """Return the files of a task by split, from a folder of all tasks or its own. The default language is English."""
    inner = [path for path in sorted(folder.glob("*/")) if _plain_name(path.name) == _plain_name(task.folder)]
    for location in (*inner, folder):
        named = {split: [name.format(language or "en") for name in names] for split, names in task.files.items()}
        paths = {split: _first(location, names) for split, names in named.items()}
        if paths["train"] or paths["dev"]:
            return {split: path for split, path in paths.items() if path}
    wanted = " or ".join(dict.fromkeys((*task.files["train"], *task.files["dev"])))
    remedy = f"`{command('fetch', task.fetched)}` gets them"
    raise DataError(folder, f"no files of {task.folder}", f"{wanted}, here or in {task.folder}/", remedy)


def split_of(task: GlueTask, path: Path) -> str:
    """Return which split a file is by its name; "" if it is not a file of GLUE."""
    known = (
        (split, name.rpartition("/")[2].replace("{}", "*")) for split, names in task.files.items() for name in names
    )
    return next((split for split, name in known if fnmatch.fnmatchcase(_unpacked(path), name)), "")


def read(
    task: GlueTask, path: Path, errors: Errors = "strict", format: Format | None = None, language: str = ""
) -> tuple[Table, str]:
    """Return the rows of a file, of one language if it has several, and its split. Labels may be missing."""
    split = split_of(task, path)
    if _unpacked(path) in (*MRPC, DEV_IDS) and split:
        table = _published(task, split, path, errors)
    else:
        table = _table(task, split, path, errors, format)
    if language and "language" in table.columns:
        table = table.where("language", language)
    language_count = len(task.languages) if task.languages and not language and split != "train" else 1
    if split and len(table) != (wanted := task.rows[split] * language_count):
        whole = "XNLI" if task.languages else "GLUE"
        size = f"{wanted:,} in {whole}: scores are not comparable with published ones"
        say(f"{path}: {many(len(table), 'row')} of {task.folder} {split}, {size}")
    return table, split


def hand_in(folder: Path, task: GlueTask, split: str, indexes: Sequence[str], predicted: Sequence[float]) -> Path:
    """Write predictions of a test split in the format of gluebenchmark.com: label names, or values."""
    path = folder / f"{task.handed_in.get(split, task.folder)}.tsv"
    lines = [f"{index}\t{_written(task, value)}\n" for index, value in zip(indexes, predicted, strict=True)]
    write_text(path, "index\tprediction\n" + "".join(lines))
    return path


def _table(task: GlueTask, split: str, path: Path, errors: Errors, format: Format | None) -> Table:
    form = format or ("tsv" if split else None)
    columns: Columns = {**({"index": INDEX} if split.startswith("test") else {}), **task.columns}
    try:
        return tables.table(path, columns, lacking=("index", "label", "language"), format=form, errors=errors)
    except tables.NoColumn as missing:
        with contextlib.suppress(OrdsmedError):
            if task.bare:
                table = tables.table(path, task.bare, header=False, more=True, format=form, errors=errors)
                if task.understands(table.columns["label"][0]):
                    return table
        arguments = " ".join(f"task.{role}=COLUMN" for role in task.columns)
        remedy = f"name them yourself: task.name= {arguments}"
        raise tables.NoColumn(path, missing.found, missing.wanted, remedy) from None


def _published(task: GlueTask, split: str, path: Path, errors: Errors) -> Table:
    """Read MRPC in its original format: dev is the rows of train whose pairs of text ids are listed in a file."""
    if split == "test":
        table = tables.table(path, task.columns, format="tsv", errors=errors)
        numbers = [str(row) for row in range(len(table))]  # the numbers of GLUE, which has the same rows
        return replace(table, columns={"index": numbers, **table.columns})
    train, ids = _beside(path, MRPC[0]), _beside(path, DEV_IDS)
    if not ids.is_file():
        say(f"{path}: no {DEV_IDS} next to it, which lists the rows of dev: all rows are used")
        return tables.table(train, task.columns, format="tsv", errors=errors)
    columns: Columns = {**task.columns, "one": ("#1 ID",), "two": ("#2 ID",)}
    all_rows = tables.table(train, columns, format="tsv", errors=errors)
    listed = set(read_lines(ids, errors))
    pairs = map("\t".join, zip(all_rows.columns["one"], all_rows.columns["two"], strict=True))
    return all_rows.only([row for row, pair in enumerate(pairs) if (pair in listed) == (split == "dev")])


def _beside(path: Path, name: str) -> Path:
    return _first(path.parent, (name,)) or path.with_name(name)


def _unpacked(path: Path) -> str:
    return path.name.removesuffix(path.suffix if path.suffix in tables.PACKED else "")


def _written(task: GlueTask, value: float) -> str:
    if task.range is None:
        return task.labels[int(value)]
    return f"{min(max(float(value), task.range[0]), task.range[1]):.6f}"


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    paths = (folder / (name + ending) for name in names for ending in ("", *tables.PACKED))
    return next((path for path in paths if path.is_file()), None)


def _plain_name(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())

"""Classify: the class of a text or of two, or the number that it is given.

    [CLS] Rain falls . [SEP] It is wet . [SEP]  ->  states [L, D]  ->  pool [D]  ->  head  ->  entailment 0.93, ...

Two texts that are too long together are cut as transformers cuts them, the longer one first. A number is learned as its
place between the two ends of a scale, 0 and 1, and told as it was.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.files import write_text
from ordsmed.base.menu import Choice
from ordsmed.base.say import many, say
from ordsmed.data.batch import Batch
from ordsmed.data.features import Features, Text, framed
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.learn.kept import UNIT, told_scale
from ordsmed.learn.score import labels as scores
from ordsmed.learn.task import Arrays, ClassWeights, Files, LabelWeights, Task, by_example, check_labels, label_weights
from ordsmed.learn.usage import Usage, in_python, pipeline
from ordsmed.text import read
from ordsmed.text.labelled import glue, tables
from ordsmed.text.labelled.tables import Column, Format, Table
from ordsmed.text.read import Errors, files, lines
from ordsmed.text.tokenizer import Tokenizer

JUDGED = ("dev", "validation", "valid", "test")  # what rows that are not to learn from are called; the first that is
OF_NUMBERS = ("pearson", "spearman", "squared_error")
LOSSES = ("squared_error",)  # less is better, and no share of anything
OWN, OFFICIAL = ("line", "predicted", "gold"), ("index", "prediction")  # how files of predictions begin
UNKNOWN = -1
SIGNS = 2  # around a text
OTHER = 0.1  # the share of lines whose right answer may have been mended since they were predicted

Pool = Literal["first", "last", "mean", "max"]


@dataclass(frozen=True)
class Part:
    """A file's rows."""

    path: Path
    lines: list[int]
    split: str = ""  # of GLUE
    indexes: Sequence[str] = ()  # by which GLUE knows the rows of a test split


@dataclass(frozen=True)
class Records:
    """Texts with what is right for them, file after file."""

    texts: list[str]
    seconds: list[str]  # where examples are pairs; else empty
    gold: list[str]  # as the files write it; "" where it is not known
    parts: list[Part]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def known(self) -> list[int]:
        """The records whose right answer is known."""
        return [number for number, gold in enumerate(self.gold) if gold]

    @property
    def indexes(self) -> list[str]:
        """GLUE's, of a test split; else none."""
        return [index for part in self.parts for index in part.indexes]

    @property
    def places(self) -> list[str]:
        """Each one's line, with its file where there are several; they stand in a column, which no name ends."""
        if len(self.parts) == 1:
            return [f"{line}" for line in self.parts[0].lines]
        named = ((str(part.path).translate(dict.fromkeys(map(ord, "\t\r\n"), " ")), part) for part in self.parts)
        return [f"{name}:{line}" for name, part in named for line in part.lines]


@dataclass(frozen=True)
class LabelPredictions:
    """What is said of each record."""

    said: list[Any]  # labels or numbers
    shares: NDArray[np.float32] | None = None  # [records, labels]  the probability of each, where it is known


@dataclass(frozen=True, kw_only=True)
class Classify(Files, Choice):
    """A class, or a number, of one text or two."""

    name: str = ""
    """a task of GLUE (cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli), or xnli: `train` and `dev` are its files,
    or a folder that holds them; left out: what `ordsmed fetch glue`, or `fetch xnli`, has got"""
    language: str = ""
    """of xnli, whose rows: ar, bg, de, el, en, es, fr, hi, ru, sw, th, tr, ur, vi, zh; left out: English ones to learn
    from, all to be judged by"""
    text: Column = "text"
    """column of the text, by its name or its number from 1"""
    second: Column | None = None
    """column of the second text, where examples are pairs"""
    label: Column = "label"
    """column of the label or number"""
    split: Column | None = None
    """column that says what a row is for: those that say train are learned from, of the others dev, else test"""
    format: Format | None = None
    """of the files; left out: as their names end"""
    header: bool = True
    """does the first line of TSV and CSV name the columns?"""
    errors: Errors = "strict"
    """bytes that are no UTF-8: refused, or replaced and counted"""
    labels: tuple[str, ...] = ()
    """the classes in their order; left out: those of the training data, sorted"""
    number: bool = False
    """a number is predicted"""
    scale: tuple[float, float] | None = None
    """numbers that the network learns as 0 and 1; left out: the lowest and highest of the training data"""
    metrics: tuple[str, ...] = ()
    """accuracy, f1, macro_f1, matthews; of numbers pearson, spearman, squared_error; checkpoints go by the first"""
    length: int = 128
    """tokens of the longest example; what is longer is cut; elsewhere max_seq_length"""
    class_weights: ClassWeights = None
    """how much the loss of each label counts, 1 if not said; balanced: all classes alike, however often they are"""
    pool: Pool | None = None
    """state that the head is given; left out: the family's own (first, of causal ones last), of recurrent ones max"""
    unordered: bool | None = None
    """learn from pairs in both orders; left out: of mrpc and sts-b alone, as ELECTRA does"""

    METHOD: ClassVar[str] = "classify"
    role: ClassVar[str] = "classify"
    MADE_UP: ClassVar[str] = "texts.tsv"
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, "metrics", "class_weights", "pool")
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("language",)
    LATER: ClassVar[tuple[str, ...]] = (
        "train", "dev", "name", "language", "text", "second", "label", "split", "format", "header", "errors",
        "metrics", "length",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.name:
            self._adopt(glue.named(self.name))
        if self.language and self.language not in (known := glue.named(self.name).languages if self.name else ()):
            wanted = f"one of {', '.join(known)}" if known else "none: `name=xnli` has several"
            raise ValueError(f"language: found {self.language}; wanted {wanted}")
        usual = ("pearson", "spearman") if self.number else ("accuracy", "macro_f1")
        object.__setattr__(self, "metrics", self.metrics or usual)
        for metric in self.metrics:
            if metric not in scores.METRICS or (metric in OF_NUMBERS) != self.number:
                fit = [name for name in scores.METRICS if (name in OF_NUMBERS) == self.number]
                raise ValueError(f"metrics: found {metric}; wanted some of {', '.join(fit)}")
        if self.metrics[0] in LOSSES:
            raise ValueError(f"metrics: found {self.metrics[0]} as the first; wanted one of which more is better")
        check_labels(self.labels, self.class_weights)
        if self.number and (self.labels or self.class_weights):
            raise ValueError("number: found with labels or class_weights; wanted classes or a number")
        if self.scale and not self.scale[0] < self.scale[1]:
            raise ValueError(f"scale: found {list(self.scale)}; wanted the lower end and the higher one")
        pairs = "second" in glue.named(self.name).columns if self.name else self.second is not None
        if self.unordered and not pairs:
            raise ValueError("unordered: found without `second`; wanted pairs")

    def _adopt(self, task: glue.GlueTask) -> None:
        """What GLUE says of a task by name."""
        if (self.text, self.second, self.label, self.split) != ("text", None, "label", None):
            raise ValueError("name: found with columns; wanted none of them, for those of GLUE are known")
        if self.labels not in ((), task.labels):
            raise ValueError(f"labels: found {list(self.labels)}; wanted none, or GLUE's: {list(task.labels)}")
        adopted = {"labels": task.labels, "number": task.range is not None, "scale": task.range}
        adopted |= {"metrics": self.metrics or task.metrics}
        adopted |= {"unordered": task.unordered if self.unordered is None else self.unordered}
        for key, value in adopted.items():
            object.__setattr__(self, key, value)

    @classmethod
    def named(cls, name: str) -> dict[str, Any] | None:
        return {"name": name} if name.lower() in glue.KNOWN else None

    @classmethod
    def of_others(cls, role: str, labels: tuple[str, ...], number: bool) -> dict[str, Any] | None:
        if role != cls.role:
            return None
        return {"number": True, "scale": [*UNIT]} if number else {"labels": list(labels)} if labels else {}

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        rows = (f"{words(max(1, size - SIGNS))}\t{number % 2}\n" for number, size in enumerate(sizes.tolist()))
        return "text\tlabel\n" + "".join(rows)

    @property
    def record(self) -> str:
        return self.metrics[0]

    def paths(self, split: str) -> tuple[str, ...]:
        given = super().paths(split)
        if not self.name:
            return given
        paths: list[Path | None] = []
        for path in map(Path, given or super().paths("train") or (self._fetched,)):
            if path.is_dir():
                paths.append(glue.find(path, glue.named(self.name), self.language).get(split))
            elif given or not path.exists():
                paths.append(path)
        return tuple(str(path) for path in paths if path)

    @property
    def _fetched(self) -> str:
        """Where `ordsmed fetch` puts the files of a task that has a name."""
        return read.FETCHED + glue.named(self.name).fetched

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

    def about(self, texts: Sequence[str], seconds: Sequence[str] = ()) -> Records:
        """Texts that stand in no file."""
        pairs = self.second is not None or bool(self.name and "second" in glue.named(self.name).columns)
        if pairs != bool(seconds) or len(seconds) not in (0, len(texts)):
            found = f"found {many(len(texts), 'text')} and {len(seconds):,} second ones"
            wanted = "a second text for each" if pairs else "texts alone: it learned no pairs"
            raise RecipeError("classify", found, wanted)
        return Records([*texts], [*seconds], [""] * len(texts), [])

    def _files(self, paths: Sequence[str], learning: bool) -> list[Path]:
        """Of GLUE a folder stands for its file to learn from, or to be judged by."""
        if not self.name:
            return files(paths)
        task, split, chosen = glue.named(self.name), "train" if learning else "dev", []
        for path in paths:
            if path != self._fetched and not Path(path).is_dir():
                chosen += files(path)
            elif there := glue.find(Path(path), task, self.language).get(split):
                chosen.append(there)
            else:
                raise DataError(path, f"no {split} file of {task.folder}", " or ".join(task.files[split]))
        return chosen

    def _table(self, path: Path, learning: bool) -> tuple[Table, str]:
        """What a file holds, and which split of GLUE that is."""
        if self.name:
            table, split = glue.read(glue.named(self.name), path, self.errors, self.format, self.language)
        else:
            table, split = self._columns(path, learning), ""
        if "label" not in table.columns and not split:
            column = glue.named(self.name).columns["label"][0] if self.name else self.label
            say(f"{path}: no column `{column}`: what is right is not known")
        if self.split:
            table = table.where("split", "train" if learning else _score_column(table))
            say(f"{path}: the {len(table):,} rows of {table.columns['split'][0]}")
        if "label" not in table.columns:
            if learning:
                raise DataError(path, "no labels", "the training data")
            return table, split
        table.columns["label"][:] = map(self._plain, table.columns["label"])
        if learning:
            table = self._learnable(table)
        if self.number:
            known = table.only([row for row, label in enumerate(table.columns["label"]) if label])
            known.numbers("label", self.scale if self.name and self.scale else (-math.inf, math.inf))
        return table, split

    def _columns(self, path: Path, learning: bool) -> Table:
        """The columns of a file of one's own; where nothing is learned the labels may be lacking."""
        asked = {"text": self.text, "second": self.second, "label": self.label, "split": self.split}
        columns = {role: column for role, column in asked.items() if column is not None}
        how: dict[str, Any] = {"format": self.format, "header": self.header, "errors": self.errors}
        try:
            return tables.table(path, columns, lacking=() if learning else ("label",), **how)
        except tables.NoColumn as error:
            missing = {found: role for role, c in columns.items() for found in (f"no column `{c}`", f"no column {c}")}
            chosen = f"choose it: task.{missing[error.found]}=COLUMN"
            asks = error.remedy.endswith("?")
            remedy = f"{error.remedy} {chosen}" if asks else ", or ".join(filter(None, [chosen, error.remedy]))
            raise tables.NoColumn(error.place, error.found, error.wanted, remedy) from None

    def _plain(self, label: str) -> str:
        """A label as it is known: in GLUE some have other names too."""
        label = " ".join(label.split())
        return glue.named(self.name).plain(label) if self.name else label

    def _learnable(self, table: Table) -> Table:
        """The rows whose label is one to learn."""
        gold = table.columns["label"]
        rows = [row for row, label in enumerate(gold) if (label in self.labels if self.labels else label)]
        if not rows:
            wanted = ", ".join(self.labels) or "one in each row"
            raise DataError(table.path, "no row has a label to learn", wanted)
        if len(rows) < len(table):
            first = min(set(range(len(table))).difference(rows))
            left = f"left out {len(table) - len(rows):,} of {len(table):,} rows, without a label to learn"
            say(f"{table.path}: {left}; the first: line {table.lines[first]} has `{gold[first]}`")
        return table.only(rows)

    def settled(self, records: Records) -> Classify:
        seen, place = Counter(records.gold), records.parts[0].path
        if len(seen) < 2:
            raise DataError(place, f"`{records.gold[0]}` in every row", "two labels or numbers, or more")
        if self.number:
            numbers = [float(gold) for gold in seen]
            return replace(self, scale=self.scale or (min(numbers), max(numbers)))
        labels = self.labels or _sorted(seen)
        self._fits(labels)
        if absent := [label for label in labels if label not in seen]:
            say(f"{place}: no example of {', '.join(absent)} to learn from")
        return replace(self, labels=labels, class_weights=label_weights(self.class_weights, labels, seen))

    def _fits(self, labels: Sequence[str]) -> None:
        if "f1" in self.metrics and len(labels) != 2:
            raise RecipeError("task.metrics", f"f1 of {len(labels)} labels", "two", "use macro_f1")

    def features(self, records: Records, reader: TextReader) -> Features:
        texts = [reader.pieces(each) for each in (records.texts, records.seconds) if each]
        signs = reader.frame.joint(two=len(texts) == 2)
        if self.length <= signs:
            raise RecipeError("task.length", f"{self.length}, of which {signs} are signs", f"{signs + 1} or more")
        sizes = [np.diff(pieces.starts) for pieces in texts]
        kept = longest_first(sizes[0], sizes[1] if len(sizes) == 2 else 0 * sizes[0], self.length - signs)
        left = np.sum(kept, axis=0)
        if cut := int((left < np.sum(sizes, axis=0)).sum()):
            say(f"{cut:,} of {len(records):,} examples are longer than {self.length} tokens, and cut (task.length)")
        parts = [Text(p.ids, p.starts[:-1], p.starts[:-1] + k) for p, k in zip(texts, kept[: len(texts)], strict=True)]
        if not signs:
            parts[0] = _not_nothing(parts[0], left == 0, reader.tokenizer)
        starts, ids, types, _ = framed(reader.frame, *parts)
        letters, words = reader.listed() or (None, None)
        return Features(
            starts, ids.astype(np.int32), types if reader.frame.types else None, labels=self._labels(records),
            characters=letters, words=words,
        )  # fmt: skip

    def _labels(self, records: Records) -> NDArray[Any] | None:
        """What is right for each example, as the network learns it; -1, or no number, where it is not known."""
        if not records.known:
            return None
        if self.number:
            low, high = self._ends
            return ((_numbers(records.gold) - low) / (high - low)).astype(np.float32)
        numbers = {label: number for number, label in enumerate(self.labels)}
        strange = [gold for gold in records.gold if gold and gold not in numbers]
        if strange and len(strange) == len(records.known):
            problem = f"none of its {many(len(strange), 'label')} was learned, the first is `{strange[0]}`"
            remedy = "name their column with task.label=; one that is not there: no label is known"
            raise DataError(records.parts[0].path, problem, ", ".join(self.labels), remedy)
        if strange:
            problem = f"{len(strange):,} of {len(records):,} labels are none of the training data's, as `{strange[0]}`"
            say(f"{records.parts[0].path}: {problem}: what is said there counts as wrong")
        return np.array([numbers.get(gold, UNKNOWN) for gold in records.gold], np.int64)

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.scale is not None, "the training data tell the scale: settled() comes first"
        return self.scale

    def build(self, model: Any, tokenizer: Tokenizer) -> Classifier:
        return Classifier(self, model, tokenizer.vocabulary)

    def predictions(self, records: Records, features: Features, answers: Arrays) -> LabelPredictions:
        if self.number:
            low, high = self._ends
            return LabelPredictions((low + answers["number"].astype(np.float64) * (high - low)).tolist())
        shares = answers["probabilities"]
        return LabelPredictions([self.labels[number] for number in shares.argmax(1)], shares)

    def score(self, records: Records, predictions: LabelPredictions) -> dict[str, float]:
        if not records.known:
            return {}
        _, right, predicted = self._compared(records, predictions)
        raw = scores.scored(self.metrics, right, predicted)
        return {name: value if name in LOSSES else 100 * value for name, value in raw.items()}

    def _compared(
        self, records: Records, predictions: LabelPredictions
    ) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
        """Right and predicted where the right is known, as numbers; labels that are none of the task's come last."""
        known = records.known
        right, predicted = [records.gold[n] for n in known], [predictions.said[n] for n in known]
        if self.number:
            return [], _numbers(right), np.array(predicted, np.float64)
        own = self.labels or _sorted(right)
        self._fits(own)
        labels = list(dict.fromkeys([*own, *_sorted([*right, *predicted])]))
        numbers = {label: number for number, label in enumerate(labels)}
        return labels, np.array([numbers[label] for label in right]), np.array([numbers[label] for label in predicted])

    def fitted(self, records: Records, features: Features, answers: Arrays) -> Classify:
        return self

    def guesses(self, train: Records, records: Records) -> LabelPredictions:
        if self.number:
            return LabelPredictions(scores.mean_guess(_numbers(train.gold), records.texts).tolist())
        numbers = [self.labels.index(gold) for gold in train.gold]
        return LabelPredictions([self.labels[number] for number in scores.majority(numbers, records.texts)])

    def write(self, folder: Path, records: Records, predictions: LabelPredictions) -> list[Path]:
        predicted = [f"{value:.6g}" for value in predictions.said] if self.number else predictions.said
        columns = [records.places, predicted, records.gold]
        labels: tuple[str, ...] = ()
        if predictions.shares is not None:
            labels = self.labels
            columns += [[f"{share:.6g}" for share in shares] for shares in predictions.shares.T]
        path = folder / "predictions.tsv"
        write_text(path, "".join("\t".join(row) + "\n" for row in [(*OWN, *labels), *zip(*columns, strict=True)]))
        return [path, *self._handed_in(folder, records, predictions)]

    def _handed_in(self, folder: Path, records: Records, predictions: LabelPredictions) -> list[Path]:
        """Of test splits of GLUE, what its board takes."""
        written, begin = [], 0
        for part in records.parts:
            predicted = predictions.said[begin : begin + len(part.lines)]
            begin += len(part.lines)
            if part.indexes:
                values = predicted if self.number else [self.labels.index(label) for label in predicted]
                written.append(glue.hand_in(folder, glue.named(self.name), part.split, part.indexes, values))
        return written

    def read(self, path: Path, records: Records) -> LabelPredictions:
        rows = [line.split("\t") for line in lines(path, self.errors)]
        while rows and rows[-1] == [""]:
            rows.pop()
        head = tuple(rows[0]) if rows else ()
        if head[: len(OWN)] == OWN or head == OFFICIAL:
            keys = records.places if head != OFFICIAL else records.indexes or [str(n) for n in range(len(records))]
            rows_of = {row[0]: row[1] for row in rows[1:] if len(row) > 1}
            if head != OFFICIAL:
                self._check_gold(path, rows, records)
            written = [rows_of.pop(key, "") for key in keys]
            if rows_of:
                raise DataError(path, f"a prediction for `{next(iter(rows_of))}`", "one for each row of the data alone")
        else:
            written = ["\t".join(row) for row in rows]
        return LabelPredictions(self._understood(path, written, records, len(rows)))

    def _check_gold(self, path: Path, rows: Sequence[Sequence[str]], records: Records) -> None:
        """Refuse predictions that were made for other data: what was right there is not what is right here."""
        right = dict(zip(records.places, records.gold, strict=True))
        pairs = [(row[0], self._plain(row[2]), right.get(row[0], "")) for row in rows[1:] if len(row) > 2]
        known = [(place, then, now) for place, then, now in pairs if then and now]
        other = [(place, then, now) for place, then, now in known if not self._same(then, now)]
        if not other:
            return
        place, then, now = other[0]
        problem = (
            f"{len(other):,} of {len(known):,} lines are not what they were, as {place}: `{then}` then, `{now}` now"
        )
        if len(other) > OTHER * len(known):
            raise DataError(path, f"made for other data: {problem}", "predictions for these")
        say(f"{path}: {problem}")

    def _same(self, one: str, other: str) -> bool:
        with contextlib.suppress(ValueError):
            return float(one) == float(other) if self.number else one == other
        return False

    def _understood(self, path: Path, written: Sequence[str], records: Records, last: int) -> list[Any]:
        """Labels or numbers, one a record; `last` is the line of the last."""
        # a number of -1 is one: only where it stands for what is right does it say that this is not known
        predicted = [*written] if self.number else [self._plain(label) for label in written]
        given = len(predicted) - predicted.count("")
        if given != len(records) or len(predicted) != len(records):
            forms = "one a row of the data: a label a line, or as `ordsmed` or GLUE write them"
            raise DataError(path, f"{given:,} predictions for {many(len(records), 'row')}", forms)
        if self.number:
            table = Table(path, list(range(last - len(predicted) + 1, last + 1)), {"prediction": predicted})
            return table.numbers("prediction")
        known = {*(self.labels or records.gold), *records.gold}
        strange = [label for label in predicted if label not in known]
        if len(strange) == len(predicted):
            problem = f"none of the {many(len(predicted), 'prediction')} is a label, the first is `{strange[0]}`"
            raise DataError(path, problem, ", ".join(self.labels or _sorted(records.gold)), "are they of another task?")
        if strange:
            problem = f"{len(strange):,} of {len(predicted):,} predictions are no label, as `{strange[0]}`"
            say(f"{path}: {problem}: they count as wrong")
        return predicted

    def details(self, records: Records, predictions: LabelPredictions) -> list[tuple[str, list[str], list[list[Any]]]]:
        if not records.known:
            return []
        labels, right, predicted = self._compared(records, predictions)
        if self.number:
            rows = (("right", right), ("predicted", predicted), ("too high by", predicted - right))
            spread = [[name, *(float(f(values)) for f in (np.mean, np.std, np.min, np.max))] for name, values in rows]
            return [("numbers", ["", "mean", "deviation", "lowest", "highest"], spread)]
        counts = scores.report(labels, right, predicted)
        shares = [[c.label, 100 * c.precision, 100 * c.recall, 100 * c.f1, c.support] for c in counts]
        return [
            ("labels", ["label", "precision", "recall", "f1", "examples"], shares),
            ("right (rows) and predicted", ["", *labels], [[c.label, *c.predicted.values()] for c in counts]),
        ]


class Classifier(Task):
    """A network, what may stand on it, and a head over one state an example."""

    def __init__(self, settings: Classify, model: Any, vocabulary: int) -> None:
        super().__init__(settings.top, model, vocabulary)
        assert settings.labels or settings.number, "the training data tell the labels: settled() comes first"
        self.labels, self.number, self.weights = settings.labels, settings.number, {"classify": 1.0}
        given = settings.class_weights
        self.label_weights = LabelWeights(given, self.labels) if isinstance(given, dict) else None
        recurrent = model.capabilities.state or (self.top is not None and self.top.recurrent is not None)
        usual: Pool = "max" if recurrent else "last" if model.capabilities.causal else "first"
        self.pool = settings.pool or usual
        self.add_head("classify", 1 if self.number else len(self.labels))

    def count(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch.labels
        if labels is None:
            return {"classify": torch.zeros((), dtype=torch.float64)}
        if self.number:
            return {"classify": (~labels.isnan()).sum(dtype=torch.float64)}
        known, weights = labels != UNKNOWN, self._label_weights(labels.device)
        counted = known if weights is None else weights[labels.clamp(min=0)] * known
        return {"classify": counted.sum(dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        state = pooled(self.states(batch), batch, self.pool)
        logits = self.get_submodule("classify")(state).float()
        return {"scores": logits.squeeze(1) if self.number else logits}  # [E] or [E, labels]

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        logits, labels = scores["scores"], batch.labels
        assert labels is not None
        if self.number:
            right = torch.where(labels.isnan(), logits.detach(), labels)
            return {"classify": F.mse_loss(logits, right, reduction="sum")}
        weights = self._label_weights(labels.device)
        return {"classify": F.cross_entropy(logits, labels, weights, ignore_index=UNKNOWN, reduction="sum")}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        logits = scores["scores"]
        return {"number": logits} if self.number else {"probabilities": logits.softmax(-1)}

    def usage(self, name: str, tokenizer: Tokenizer, learned: Classify) -> Usage:
        pairs = learned.second or (learned.name and "second" in glue.named(learned.name).columns)
        asked = '{"text": "Rain falls.", "text_pair": "It is wet."}' if pairs else '"Rain falls."'
        asked, texts = f"ask({asked}, truncation=True, max_length={learned.length})", "two texts" if pairs else "a text"
        does, note = f"tells the class of {texts}: " + ", ".join(f"`{label}`" for label in self.labels), ""
        if self.number:
            low, high = learned._ends
            does = f"tells a number of {texts}, from {low:g} to {high:g}"
            if (low, high) != UNIT and told_scale(self, learned) is None:
                asked, note = (
                    f'{low:g} + {high - low:g} * {asked}[0]["score"]',
                    "  # its class has no place for the scale",
                )
        kind = "text-classification"
        return Usage(kind, does, in_python(name, f"{pipeline(kind, name)}print({asked}){note}"))

    def _label_weights(self, device: torch.device) -> Tensor | None:
        return None if self.label_weights is None else self.label_weights.on(device)


def pooled(states: Tensor, batch: Batch, pool: Pool) -> Tensor:
    """One state an example, [B, T, D] -> [E, D]; its signs are tokens too."""
    assert batch.spans is not None
    begin, size = batch.spans.unbind(1)
    if pool in ("first", "last"):
        return states.flatten(0, 1).index_select(0, begin if pool == "first" else begin + size - 1)
    if pool == "mean":
        return by_example(states, batch).sum(1, dtype=torch.float32) / size[:, None]
    return by_example(states, batch, fill=-math.inf).amax(1)


def longest_first(one: Ints, two: Ints, room: int) -> tuple[Ints, Ints]:
    """How much of two texts of so many tokens stays: only the longer is cut while it is, then both by turns."""
    short = np.minimum(np.minimum(one, two), room // 2)
    long = room - short
    fits = one + two <= room
    return np.where(fits, one, np.where(one > two, long, short)), np.where(fits, two, np.where(one > two, short, long))


def _not_nothing(part: Text, empty: NDArray[np.bool_], tokenizer: Tokenizer) -> Text:
    """Where there are no signs, an empty text becomes one token: there must be a state to ask."""
    token = next((n for n in (tokenizer.end, tokenizer.stop, tokenizer.unknown, tokenizer.pad) if n is not None), 0)
    place = len(part.ids)
    first, last = np.where(empty, place, part.first), np.where(empty, place + 1, part.last)
    return Text(np.append(part.ids, token), first, last)


def _score_column(table: Table) -> str:
    """What the rows are called that are not to learn from."""
    there = set(table.columns["split"])
    column = next((name for name in JUDGED if name in there), None)
    if column is None:
        raise DataError(table.path, f"`split` is {', '.join(sorted(there)[:9])}", f"one of {', '.join(JUDGED)}")
    return column


def _sorted(labels: Iterable[str]) -> tuple[str, ...]:
    """Each once, as numbers where all are, else by their letters."""
    different = sorted(set(labels) - {""})
    try:
        return tuple(sorted(different, key=float))
    except ValueError:
        return tuple(different)


def _numbers(written: Sequence[str]) -> NDArray[np.float64]:
    """Not a number where nothing is written."""
    return np.array([float(value or "nan") for value in written])

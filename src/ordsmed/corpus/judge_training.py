"""Train a linear quality classifier of documents from a table of labels, from answers of a model, or from texts per
label.

annotated.jsonl  {"text": "...", "answer": "... Score: 4"}  --label answer --pattern 'Score: (\\d)'
good=work/corpus/textbooks random=work/corpus/web           positives against random documents
->  OUT/linear.npz, status.json: labels, and scores on documents held out
"""

from __future__ import annotations

import heapq
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import files
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import STATUS, FolderKind, kind_of_folder
from ordsmed.base.keys import text_number
from ordsmed.base.menu import load
from ordsmed.base.say import many, say
from ordsmed.base.screen import table
from ordsmed.corpus import folder as folders
from ordsmed.corpus import linear
from ordsmed.text import read
from ordsmed.text.labelled import tables

LINES = {".json", ".jsonl", ".ndjson"}
LOST = 0.5  # largest share of rows without a label


@dataclass(frozen=True)
class JudgeLearning:
    """Settings for training a classifier."""

    text: str = "text"
    label: str = "label"
    pattern: str = ""
    most: int = 100_000
    dev: float = 0.1
    bits: int = 20
    epochs: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.dev < 1:
            raise RecipeError("--dev", f"found {self.dev:g}", "a share above 0, below 1")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise RecipeError("--pattern", f"found {self.pattern!r} ({error})", "a regular expression") from None


def learn(sources: Sequence[str], out: str, settings: JudgeLearning, *, anew: bool = False) -> list[str]:
    """Train a classifier on the documents of `sources` and write it to a folder. Return lines to print."""
    target = Path(out)
    if target.exists() and not (anew and kind_of_folder(target) is FolderKind.JUDGE):
        remedy = "name another" + ("" if anew else ", or add --anew: it moves this judge aside")
        raise RecipeError(target, "exists", "a new folder", remedy)
    texts, gold = _sampled(_labeled(sources, settings), settings)
    labels = _sorted(Counter(gold))
    if len(labels) < 2:
        raise DataError(sources[0], f"only one label, `{gold[0]}`" if gold else "no label", "two or more")
    numbers = np.array([labels.index(label) for label in gold])
    dev = np.array([text_number(f"{settings.seed}\n{text}") < settings.dev * 2**64 for text in texts])
    missing = [label for n, label in enumerate(labels) if not ((numbers == n) & ~dev).any()]
    if missing or not dev.any():
        location = missing[0] if missing else "the documents held out"
        raise DataError(location, "no document", "more documents of each label", "or another --dev")
    began, training_rows = time.monotonic(), np.flatnonzero(~dev)
    model = linear.learn(
        [texts[n] for n in training_rows],
        numbers[training_rows].tolist(),
        labels,
        bits=settings.bits,
        epochs=settings.epochs,
        seed=settings.seed,
    )
    shares = np.stack([model.probabilities(texts[n]) for n in np.flatnonzero(dev)])
    facts, rows = _scored(shares, numbers[dev], labels)
    counts = Counter(gold)
    with files.making(target, keep=True) as folder:
        model.save(folder)
        status = {"verb": FolderKind.JUDGE.value, "state": "done", "labels": list(labels), "documents": dict(counts)}
        files.write_json(folder / STATUS, {**status, "scores": facts, "seconds": round(time.monotonic() - began, 1)})
    lines = [
        f"{target}: trained on {many(len(training_rows), 'document')}, evaluated on {many(int(dev.sum()), 'other')}"
    ]
    by = f", label = {_quoted(labels[0])}" if linear.label_range(labels) is None else ""
    threshold = 0.5 if by else sum(linear.label_range(labels) or ()) / 2
    step = f'{{ kind = "judge", run = {_quoted(out)}{by}, least = {threshold:g} }}'
    lines += [f"  {name}: {value:.2f}" for name, value in facts.items() if isinstance(value, float)]
    return [*lines, "", *table(rows, numbers=True), "", "in the recipe of a corpus:", f"  clean = [{step}]"]


def _labeled(sources: Sequence[str], settings: JudgeLearning) -> Iterator[tuple[str, str]]:
    for source in sources:
        label, sign, path = source.partition("=")
        if sign and not Path(source).exists():
            yield from ((label, text) for text in _texts(path, settings))
        else:
            for file in read.files(source):
                yield from _of_table(file, settings)


def _of_table(path: Path, settings: JudgeLearning) -> Iterator[tuple[str, str]]:
    if kind_of_folder(path.parent) is FolderKind.CORPUS:
        raise RecipeError(path, "is part of a corpus, whose documents have no labels", f"LABEL={path.parent}")
    rows_of = tables.table(path, {"text": settings.text, "label": settings.label})
    rows = [
        (_label(label, settings), text)
        for label, text in zip(rows_of.columns["label"], rows_of.columns["text"], strict=True)
    ]
    labeled_rows = [(label, text) for label, text in rows if label]
    if len(labeled_rows) < len(rows):
        first = next(at for at, (label, _) in enumerate(rows) if not label)
        problem = f"{len(rows) - len(labeled_rows):,} of {many(len(rows), 'row')} without a label"
        left_out = f"{problem}; the first: `{rows_of.columns['label'][first][:60]}`"
        if len(labeled_rows) < (1 - LOST) * len(rows):
            raise DataError(rows_of.place(first), left_out, "a label in most rows", "check --label and --pattern")
        say(f"{path}: left out {left_out}")
    yield from labeled_rows


def _label(cell: str, settings: JudgeLearning) -> str:
    if not settings.pattern:
        return " ".join(cell.split())
    match = re.search(settings.pattern, cell)
    return " ".join((match[match.re.groups and 1] or "").split()) if match else ""


def _texts(path: str, settings: JudgeLearning) -> Iterator[str]:
    if kind_of_folder(path) is FolderKind.CORPUS:
        for part in folders.parts(Path(path), "train"):
            yield from (document.text for document in folders.documents(part))
    elif LINES & {*Path(path).suffixes}:
        for file in read.files(path):
            yield from tables.table(file, {"text": settings.text}).columns["text"]
    else:
        yield from (document.text for document in load("corpora", "text")(path).documents())


def _sampled(labeled: Iterable[tuple[str, str]], settings: JudgeLearning) -> tuple[list[str], list[str]]:
    """Return texts and labels, at most `how.most` of each label: those with the smallest hashes, each text once."""
    by_label: dict[str, list[tuple[int, str]]] = {}
    for label, text in labeled:
        of_label = by_label.setdefault(label, [])
        entry = (-text_number(f"drawn {settings.seed}\n{text}"), text)
        if len(of_label) < settings.most:
            heapq.heappush(of_label, entry)
        elif entry > of_label[0]:
            heapq.heapreplace(of_label, entry)
    rows = [(label, text) for label in sorted(by_label) for text in sorted({text for _, text in by_label[label]})]
    return [text for _, text in rows], [label for label, _ in rows]


def _sorted(labels: Iterable[str]) -> tuple[str, ...]:
    names = sorted(labels)
    return tuple(names if linear.label_range(names) is None else sorted(names, key=float))


def _scored(shares: np.ndarray, gold: np.ndarray, labels: Sequence[str]) -> tuple[dict[str, Any], list[list[str]]]:
    likeliest, rows, by = shares.argmax(1), [["label", "documents", "precision", "recall"]], dict[str, list[float]]()
    for n, label in enumerate(labels):
        right = int(((likeliest == n) & (gold == n)).sum())
        by[label] = [100 * right / max(int((likeliest == n).sum()), 1), 100 * right / max(int((gold == n).sum()), 1)]
        rows.append([label, f"{int((gold == n).sum()):,}", *(f"{value:.1f}" for value in by[label])])
    facts: dict[str, Any] = {"accuracy": float(100 * (likeliest == gold).mean()), "precision_recall": by}
    if linear.label_range(labels):
        values = np.array([float(label) for label in labels])
        facts["mean_error"] = float(np.abs(shares @ values - values[gold]).mean())
    return facts, rows


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)

"""Retrieval data: questions, passages and relevance judgments, from BEIR folders or SQuAD files.

    corpus.jsonl   {"_id": "p1", "title": "Newts", "text": "Newts swim."}
    queries.jsonl  {"_id": "q1", "text": "What swims?"}
    qrels/test.tsv q1 TAB p1 TAB 1      -> RetrievalSet(questions, passages, grades)

In SQuAD files every context is a passage, and the context of a question is its only relevant passage. Passages are
sorted by descending id, because trec_eval ranks equal scores in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say
from ordsmed.measure.likelihood.probe import records, valid
from ordsmed.text import read
from ordsmed.text.labelled import questions

CORPUS, QUERIES, JUDGMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
PACKED = ("", ".gz", ".bz2", ".xz", ".zst")
REMEDY = "a folder in the format of BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv; or SQuAD's JSON"
Judgment = tuple[str, str, int]  # ids of a question and of a passage, grade


@dataclass(frozen=True)
class RetrievalSet:
    questions: dict[str, str]  # id -> text, only questions with judgments
    passages: dict[str, str]  # id -> text, by descending id
    grades: dict[str, dict[str, int]]  # question id -> passage id -> grade; some passages may not be in the corpus


def read_set(names: Sequence[str], split: str) -> RetrievalSet:
    """Read a BEIR folder or SQuAD files; print how many ids have no text, and raise an error if nothing is left."""
    paths = [Path(name) for name in names]
    if folders := [path for path in paths if path.is_dir()]:
        if len(paths) > 1:
            raise DataError(folders[0], f"is one of {len(paths)}", "one folder, whose passages are searched together")
        return _checked(folders[0], *_of_folder(folders[0], split))
    return _checked(paths[0], *_of_squad(names))


def _of_folder(folder: Path, split: str) -> tuple[dict[str, str], dict[str, str], list[Judgment]]:
    path = _file(folder, CORPUS)
    passages = _texts(path, lambda row: f"{row.get('title') or ''} {row.get('text') or ''}".strip())
    queries = _texts(_file(folder, QUERIES), lambda row: str(row.get("text") or "").strip())
    splits = sorted(path.name for path in (folder / JUDGMENTS).glob("*.tsv*"))
    chosen = next((name for name in splits if name.split(".")[0] == split), None)
    if chosen is None:
        available = f"it has {', '.join(name.split('.')[0] for name in splits)}" if splits else REMEDY
        raise DataError(folder / JUDGMENTS, f"has no {split}.tsv", "judgments of that split", available)
    return queries, passages, [*_judgments(folder / JUDGMENTS / chosen)]


def _file(folder: Path, name: str) -> Path:
    paths = [folder / f"{name}{ending}" for ending in PACKED]
    if not any(path.exists() for path in paths):
        raise DataError(folder, f"has no {name}", REMEDY)
    return next(path for path in paths if path.exists())


def _texts(path: Path, text: Callable[[dict[str, Any]], str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for location, row in records(path):
        name = row.get("_id", row.get("id"))
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise DataError(location, f"has no id (keys: {', '.join(list(row)[:8]) or 'none'})", "`_id`, a text")
        if texts.setdefault(str(name), content := text(row)) != content:
            raise DataError(location, f"another text with the id {name}", "a unique id for each text")
        valid(content, location)
    if not texts:
        raise DataError(path, "is empty", "a text a line")
    return texts


def _judgments(path: Path) -> Iterator[Judgment]:
    for number, line in enumerate(read.lines(path), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) == 4:
            del cells[1]
        if not cells or (number == 1 and len(cells) == 3 and not _whole(cells[2])):
            continue
        if len(cells) != 3 or not _whole(cells[2]):
            raise DataError(f"{path}:{number}", f"found {line[:40]!r}", "the ids of a question and a passage, a grade")
        yield cells[0], cells[1], int(float(cells[2]))


def _whole(text: str) -> bool:
    try:
        return float(text).is_integer()
    except ValueError:
        return False


def _of_squad(names: Sequence[str]) -> tuple[dict[str, str], dict[str, str], list[Judgment]]:
    all_questions, _ = questions.read(names, repair=False)
    answered = [question for question in all_questions if not question.impossible]
    if len(answered) < len(all_questions):
        say(f"{names[0]}: {many(len(all_questions) - len(answered), 'question')} left out that no passage answers")
    contexts = {context: f"{n:06d}" for n, context in enumerate(dict.fromkeys(q.context for q in all_questions))}
    graded = [(question.id, contexts[question.context], 1) for question in answered]
    passages = {number: context for context, number in contexts.items()}
    return {question.id: question.question.strip() for question in answered}, passages, graded


def _checked(
    path: Path, texts: dict[str, str], passages: dict[str, str], judgments: Sequence[Judgment]
) -> RetrievalSet:
    """Build the set from the questions and passages that exist, and print what was left out."""
    grades: dict[str, dict[str, int]] = {}
    for question, passage, grade in judgments:
        grades.setdefault(question, {})[passage] = grade
    unknown = [name for name in grades if not texts.get(name)]
    missing_passages = {passage for graded in grades.values() for passage in graded if passage not in passages}
    repeated = len(judgments) - sum(map(len, grades.values()))
    for count, noun, problem in (
        (len(unknown), "question", "without a text left out"),
        (len(missing_passages), "passage", "in the judgments that the corpus does not have"),
        (repeated, "judgment", "repeated: the last counts"),
        (sum(not passage for passage in passages.values()), "passage", "without a text"),
    ):
        if count:
            say(f"{path}: {many(count, noun)} {problem}")
    known = {name: texts[name] for name in grades if name not in set(unknown)}
    if not known or len(missing_passages) == len({passage for graded in grades.values() for passage in graded}):
        missing = f"text for {many(len(grades), 'question')}" if not known else "passage"
        raise DataError(path, f"has no {missing} of the judgments", "ids that corpus, queries and judgments share")
    if len(passages) < 2:
        raise DataError(path, "has one passage", "two or more: every search would find it")
    ordered = {name: passages[name] for name in sorted(passages, reverse=True)}
    return RetrievalSet(known, ordered, {name: grades[name] for name in known})

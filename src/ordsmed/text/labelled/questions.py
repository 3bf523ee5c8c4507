"""Read questions about texts from SQuAD's files or flat records, check them, and repair their answers.

    {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}   \\
    [{"id", "context", "question", "answers"}], or under "data", or as JSON lines                /  -> Question

An answer is {"text", "answer_start"}, or the answers are columns: {"text": [...], "answer_start": [...]}. Offsets count
characters (code points). Questions for training are repaired: an answer moves to the nearest occurrence of its text,
and a question without an answer in its context is left out. Questions for evaluation keep their answers unchanged.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say, with_article
from ordsmed.text import read as reading

FORM = "SQuAD: data > paragraphs > qas; or one record per question: id, context, question, answers"
NESTS = ("data", "paragraphs", "qas")
VERSIONS = {"squad-1.1": "1.1", "squad-2.0": "2.0"}  # versions of SQuAD by the names of their metrics

MOVED = "answers moved to where their text is"
SPACED = "answers found except for white space"
CASED = "answers found except for upper and lower case"
LOST = "answers dropped: not in the context"
TEXTLESS = "answers dropped: no text"
UNFOUND = "questions left out: none of their answers is in the context"
UNANSWERED = "questions left out: no answer, and not marked impossible"
BLANK_OUT = "questions left out: empty question or context"
BLANK_KEPT = "questions kept with an empty question or context"
ANSWERS_WIN = "questions marked impossible, with answers, taken as answered"
MARK_WINS = "questions marked impossible, with answers, taken as impossible"
UNMARKED = "questions with an empty list of answers and no mark, taken as impossible"
UNTOLD = "questions without an answer, not marked impossible, taken as having none"
TWICE = "questions repeated, answers joined"
RENAMED = "questions renamed, because another one has their id"
HALVES = "texts with lone surrogates (\\ud800 to \\udfff), replaced by U+FFFD"

_HALF = re.compile("[\ud800-\udfff]")
_VALUE = re.compile(r"[^ \t\r\n]")


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of an answer and its offset in the context, or -1 if the offset is not given."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context. Questions about the same context share one string."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    impossible: bool
    title: str = ""


@dataclass
class Report:
    """Counts of questions read, and the ids of questions that were repaired or left out, by kind."""

    questions: int = 0
    contexts: int = 0
    noted: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, name: str) -> None:
        self.noted.setdefault(kind, []).append(name)

    def counts(self) -> dict[str, int]:
        return {kind: len(names) for kind, names in self.noted.items()}

    def line(self) -> str:
        kinds = [f"{_many(len(names), kind)} ({shortened(names)})" for kind, names in self.noted.items()]
        return "; ".join([f"{many(self.questions, 'question')} about {many(self.contexts, 'context')}", *kinds])


def _many(count: int, kind: str) -> str:
    """Return the count with the kind in its singular or plural: `2 questions left out`, `1 question left out`."""
    noun, _, remainder = kind.partition(" ")
    return f"{many(count, noun.removesuffix('s'))} {remainder}"


def read(
    paths: str | Sequence[str], *, repair: bool, errors: reading.Errors = "strict"
) -> tuple[list[Question], Report]:
    """Read questions, repaired for training (`repair`) or unchanged. Print what was unusual."""
    report = Report()
    finish = _repaired if repair else _kept
    unchecked = _unchecked(reading.files(paths), errors, report)
    questions = [finished for question in unchecked if (finished := finish(question, report))]
    answered = [bool(question.answers) or question.impossible for question in questions]
    if any(answered):  # otherwise no answer is known, and nothing is scored
        for question, known in zip(questions, answered, strict=True):
            if not known:
                report.note(UNTOLD, question.id)
    report.questions, report.contexts = len(questions), len({id(question.context) for question in questions})
    if not questions:
        raise DataError(paths if isinstance(paths, str) else ", ".join(paths), report.line(), "questions", FORM)
    if report.noted:
        say(report.line())
    return questions, report


def placed(answer: Answer, context: str) -> tuple[Answer | None, str]:
    """Return the answer with its offset in the context, or None if it is not there, and the kind of repair."""
    text = answer.text.strip()
    start = answer.start + len(answer.text) - len(answer.text.lstrip())
    if not text:
        return None, TEXTLESS
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start), SPACED if text != answer.text else ""
    words = r"\s+".join(map(re.escape, text.split()))
    for pattern, flags, kind in ((re.escape(text), 0, MOVED), (words, 0, SPACED), (words, re.IGNORECASE, CASED)):
        # a lookahead, because matches may overlap
        spans = [match.span(1) for match in re.finditer(f"(?=({pattern}))", context, flags)]
        if spans:
            begin, end = min(spans, key=lambda span: abs(span[0] - start))
            return Answer(context[begin:end], begin), kind
    return None, LOST


def shortened(names: Sequence[str]) -> str:
    return ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])


def json_values(path: Path, errors: reading.Errors | None = "strict") -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a file, one or many (JSON lines), each with the file and line at which it begins."""
    with reading.replacements_told(path):
        text = "".join(reading.texts(path, errors))
    at, line = 0, 1
    decoder = json.JSONDecoder()
    while value_start := _VALUE.search(text, at):
        start = value_start.start()
        line += text.count("\n", at, start)
        try:
            value, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _bad_json(path, error) from None
        except (ValueError, RecursionError) as error:  # numbers or nesting beyond Python's limits
            raise DataError(f"{path}:{line}", f"bad JSON: {error}") from None
        yield f"{path}:{line}", value
        line += text.count("\n", start, at)


def _bad_json(path: Path, error: json.JSONDecodeError) -> DataError:
    location, reason = f"{path}:{error.lineno}", error.msg[:1].lower() + error.msg[1:]
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        return DataError(
            location, f"column {error.colno:,}: the file stops in the middle ({reason})", "", "copy it again"
        )
    if not error.doc[: error.pos].strip(" \t\r\n["):
        return DataError(location, f"not JSON: {reason}", FORM)
    return DataError(location, f"column {error.colno:,}: bad JSON: {reason}", "JSON, whole or by lines")


def _unchecked(paths: Sequence[Path], errors: reading.Errors, report: Report) -> list[Question]:
    by_id: dict[str, Question] = {}
    contexts: dict[str, str] = {}
    for path in paths:
        for head, value in json_values(path, errors):
            for location, record in _records(value, head):
                question = _named(_question(record, location, contexts, report), by_id, report)
                if first := by_id.get(question.id):
                    answers = first.answers + tuple(a for a in question.answers if a not in first.answers)
                    question = replace(first, answers=answers, impossible=first.impossible and question.impossible)
                    report.note(TWICE, question.id)
                by_id[question.id] = question
    questions = list(by_id.values())
    counts = report.counts()
    if counts.get(UNMARKED) == len(questions) + counts.get(TWICE, 0):  # files without answers, such as a test set
        del report.noted[UNMARKED]
        return [replace(question, impossible=False) for question in questions]
    return questions


def _records(value: object, head: str, inner: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of single questions in a nested value, with their place and fields of outer objects."""
    location = f"{head}: {inner}" if inner else head
    if isinstance(value, list):
        for number, inner_value in enumerate(value):
            yield from _records(inner_value, head, f"{inner}[{number}]")
        return
    if not isinstance(value, dict):
        raise DataError(location, f"a JSON {type(value).__name__}", "an object {...}", FORM)
    nest = next((key for key in NESTS if isinstance(value.get(key), list)), None)
    if nest is None:
        yield location, value
        return
    common = {key: value[key] for key in ("title", "context") if key in value}
    for where, record in _records(value[nest], head, f"{inner}.{nest}".removeprefix(".")):
        yield where, {**common, **record}


def _question(record: dict[str, Any], location: str, contexts: dict[str, str], report: Report) -> Question:
    missing = [f"`{key}`" for key in ("id", "question", "context") if record.get(key) is None]
    if missing:
        raise DataError(location, f"no {', '.join(missing)}; keys: {', '.join(list(record)[:8]) or 'none'}", "", FORM)
    name, marked = record["id"], record.get("is_impossible")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(location, f"`id` is {with_article(type(name).__name__)}", "a string or a whole number")
    if marked not in (None, True, False):
        raise DataError(location, f"`is_impossible` is {marked!r}", "true or false")
    name = str(name)
    answers = _answers(record.get("answers"), location)
    if unmarked := marked is None and answers == []:
        report.note(UNMARKED, name)
    context = _text(record["context"], "context", location, name, report)
    question, title = _text(record["question"], "question", location, name, report), str(record.get("title") or "")
    known = tuple(filter(None, (_answer(answer, location, name, report) for answer in answers or [])))
    return Question(name, question, contexts.setdefault(context, context), known, bool(marked) or unmarked, title)


def _answers(answers: object, location: str) -> list[dict[str, Any]] | None:
    """Return one object per answer, from a list of them or from columns; None if the record has no answers."""
    if isinstance(answers, dict):
        texts = answers.get("text")
        starts = answers.get("answer_start") or (len(texts) * [None] if isinstance(texts, list) else None)
        if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
            raise DataError(
                f"{location}: answers", "an object", '{"text": [...], "answer_start": [...]} of equal lengths'
            )
        return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if answers is None:
        return None
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        raise DataError(f"{location}: answers", repr(answers)[:60], 'a list of {"text": "...", "answer_start": 0}')
    return answers


def _answer(answer: dict[str, Any], location: str, name: str, report: Report) -> Answer | None:
    start = answer.get("answer_start")
    if answer.get("text") is None:
        report.note(TEXTLESS, name)
        return None
    if isinstance(start, bool) or not isinstance(start, int | None):
        raise DataError(f"{location}: answer_start", repr(start), "a whole number: characters before the answer")
    return Answer(_text(answer["text"], "answers: text", location, name, report), -1 if start is None else start)


def _text(value: object, key: str, location: str, name: str, report: Report) -> str:
    if not isinstance(value, str):
        raise DataError(f"{location}: {key}", f"a JSON {type(value).__name__}", "a string", FORM)
    whole, halves = _HALF.subn("\ufffd", value)
    if halves:
        report.note(HALVES, name)
    return whole


def _named(question: Question, by_id: dict[str, Question], report: Report) -> Question:
    """Return the question under its id, or under id#2 and so on if another question has that id.

    Predictions are stored by id.
    """
    name, number = question.id, 1
    while (first := by_id.get(name)) and (first.question, first.context) != (question.question, question.context):
        number += 1
        name = f"{question.id}#{number}"
    if number == 1:
        return question
    if not first:
        report.note(RENAMED, name)
    return replace(question, id=name)


def _kept(question: Question, report: Report) -> Question:
    if _blank(question):
        report.note(BLANK_KEPT, question.id)
    if question.impossible and question.answers:
        report.note(ANSWERS_WIN, question.id)
        return replace(question, impossible=False)
    return question


def _repaired(question: Question, report: Report) -> Question | None:
    """Return a question for training with its answers placed in the context, or None if there are none."""
    if _blank(question):
        report.note(BLANK_OUT, question.id)
        return None
    if question.impossible:
        if question.answers:
            report.note(MARK_WINS, question.id)
        return replace(question, answers=())
    if not question.answers:
        report.note(UNANSWERED, question.id)
        return None
    placements = [placed(answer, question.context) for answer in question.answers]
    for _, kind in placements:
        if kind:
            report.note(kind, question.id)
    answers = tuple(answer for answer, _ in placements if answer)
    if not answers:
        report.note(UNFOUND, question.id)
        return None
    return replace(question, answers=answers)


def _blank(question: Question) -> bool:
    return not question.question.strip() or not question.context.strip()
